"""The connections of this process: one for each broker address, made when it is first needed.

Readers and writers are pickled, so they hold the address and ask here. The key has the process id: a worker
that Spark forks must not use its parent's socket.
"""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path
from typing import Any, Final

from amqp_broker.client import (
    BlockingConnection,
    ConnectFailed,
    ConnectionGone,
    LoginRefused,
    WaitTimeout,
    connect,
    parse_url,
)
from amqp_broker.pipeline.errors import BrokerUnreachable, OptionError
from amqp_broker.pipeline.options import BrokerAddress

_pool: Final[dict[tuple[int, BrokerAddress], BlockingConnection]] = {}
_opening: Final = threading.Lock()


def connection_to(broker: BrokerAddress) -> BlockingConnection:
    """The connection of this process, a new one where there was none or it is gone. Raises BrokerUnreachable,
    OptionError for credentials that are not there.
    """
    key = (os.getpid(), broker)
    with _opening:
        found = _pool.get(key)
        if found is None or found.gone is not None:
            found = _pool[key] = open_connection(broker)
        return found


def drop_connection(broker: BrokerAddress) -> None:
    """Closes the one of this process, if there is one."""
    with _opening:
        found = _pool.pop((os.getpid(), broker), None)
    if found is not None:
        found.close()


def open_connection(broker: BrokerAddress) -> BlockingConnection:
    """A connection outside of the pool: the first URL that answers. Raises as `connection_to`."""
    user, password = credentials(broker.credentials)
    failures = []
    for url in broker.urls:
        fields: dict[str, Any] = {} if user is None else {"user": user, "password": password}
        try:
            return connect(
                url,
                timeout_s=broker.timeout_ms / 1_000,
                ssl_context=_tls(broker, url),
                container_id=f"spark-{os.getpid()}-{os.urandom(6).hex()}",
                **fields,
            )
        except LoginRefused as error:
            raise BrokerUnreachable(
                f"the broker at {parse_url(url)} did not take the login: {error}; the option "
                "amqp.credentials (env:NAME or file:PATH) says where USER:PASSWORD stands"
            ) from None
        except (ConnectFailed, ConnectionGone, WaitTimeout) as error:
            failures.append(str(error))
    raise BrokerUnreachable(
        f"no broker at {broker} ({'; '.join(failures)}): start one with `amqp-broker serve`, or mend the "
        "option amqp.url; every worker has to reach it"
    )


def credentials(reference: str | None) -> tuple[str | None, str | None]:
    """User and password from where the option amqp.credentials says. Raises OptionError."""
    if reference is None:
        return None, None
    kind, _, place = reference.partition(":")
    try:
        text = os.environ[place] if kind == "env" else Path(place).read_text(encoding="utf-8")
    except KeyError:
        raise OptionError(
            f"option amqp.credentials: expected USER:PASSWORD in the environment variable {place}, which is "
            "not set here; it has to be set on the driver and on every worker"
        ) from None
    except OSError as error:
        raise OptionError(
            "option amqp.credentials: expected a file with USER:PASSWORD on the driver and on every worker, "
            f"but: {error}"
        ) from None
    user, colon, password = text.strip().partition(":")
    if not colon or not user:
        raise OptionError(
            f"option amqp.credentials: expected USER:PASSWORD in {reference}, found no colon in it"
        )
    return user, password


def _tls(broker: BrokerAddress, url: str) -> ssl.SSLContext | None:
    if not parse_url(url).tls:
        return None
    try:
        context = ssl.create_default_context(cafile=broker.ca_file)
        if broker.certificate_file is not None:
            context.load_cert_chain(broker.certificate_file, broker.key_file)
    except OSError as error:
        files = [file for file in (broker.ca_file, broker.certificate_file, broker.key_file) if file]
        raise OptionError(
            f"options amqp.tls.*: expected PEM files at {', '.join(files)}, but: {error}"
        ) from None
    return context
