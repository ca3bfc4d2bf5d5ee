"""The command `amqp-broker console`: run the console until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import ipaddress
import re
import signal
import socket
import sys
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn

from amqp_broker.client.errors import WrongUse
from amqp_broker.client.settings import parse_url
from amqp_broker.console.limits import CONNECTIONS_MAX, KEEP_ALIVE_S, REQUEST_HEAD_BYTES_MAX
from amqp_broker.console.server import application
from amqp_broker.looking.broker_view import Broker

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_TAKEN: Final = frozenset(("login", "logout", "static"))
STOP_S: Final = 5


class BadOption(Exception):
    """An option that can't be meant."""


def brokers_of(told: list[str]) -> list[Broker]:
    """From `NAME=URL` or `URL`. Raises BadOption."""
    found: dict[str, Broker] = {}
    for each in told:
        name, sign, url = each.partition("=")
        if not sign:
            name, url = "broker" if not found else f"broker-{len(found) + 1}", each
        try:
            endpoint = parse_url(url)
        except WrongUse as error:
            raise BadOption(f"--broker: {error}") from None
        if endpoint.user is not None:
            raise BadOption("--broker: expected a URL without a user: who looks logs in")
        if not _NAME.fullmatch(name) or name in _TAKEN or name in found:
            raise BadOption(f"--broker: expected another name of small letters and digits than {name!r:.40}")
        found[name] = Broker(name, url)
    return [*found.values()]


def address_of(url: str, *, tls: bool) -> tuple[str, int]:
    """The host and port to listen on. Raises BadOption."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise BadOption(f"--listen: expected http://HOST:PORT or https://HOST:PORT, got {url!r:.80}")
    if (parts.scheme == "https") is not tls:
        raise BadOption("--listen: https needs --certificate and --key, http takes neither")
    if not tls and not _is_loopback(parts.hostname):
        raise BadOption("--listen: expected https where others can listen on the way: passwords are sent")
    return parts.hostname, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_for_this_machine(host: str, names: list[str]) -> bool:
    """Whether nobody else reaches it: a name is one that a proxy has, which anybody may come by."""
    return _is_loopback(host) and not names


class _Server(uvicorn.Server):
    """Says where it listens, as `amqp-broker serve` does."""

    def __init__(self, config: uvicorn.Config, scheme: str) -> None:
        super().__init__(config)
        self._scheme = scheme

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                print(f"listening on {self._scheme}://{shown}:{port}", flush=True)


def run(options: argparse.Namespace) -> int:
    """Run it; the exit status. Raises BadOption."""
    tls = options.certificate is not None
    if tls != (options.key is not None):
        raise BadOption("expected --certificate and --key, or none of them")
    host, port = address_of(options.listen, tls=tls)
    anonymous = options.anonymous or is_for_this_machine(host, options.name)
    app = application(brokers_of(options.broker), options.name, secure=tls, anonymous=anonymous)
    server = _Server(config_of(app, host, port, options.certificate, options.key), "https" if tls else "http")
    # uvicorn stops cleanly at the first one, and raises it anew when it has: then nothing is left to do.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        server.run()
    except SystemExit:  # it has said why on standard error
        return 1
    except KeyboardInterrupt:
        return 0
    if not server.started:
        print("amqp-broker: the console could not listen", file=sys.stderr)
        return 1
    return 0


def config_of(
    app: Any, host: str, port: int, certificate: str | None = None, key: str | None = None
) -> uvicorn.Config:
    """How the server runs: with bounds, and without a word of who it is."""
    return uvicorn.Config(
        app, host, port, ssl_certfile=certificate, ssl_keyfile=key, http="h11", ws="none", lifespan="on",
        log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S, h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
    )  # fmt: skip
