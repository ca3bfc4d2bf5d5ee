"""Listeners: TCP sockets, TLS where the URL says amqps, and a bound on sockets that have not logged in.

    accept --> Admission (512 strangers in all, 32 of each address) --> TLS (5 s) --> serve_connection(stream,
    peer)

A socket counts as a stranger until the connection task calls `peer.logged_in()` or the handler returns.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import trio

from amqp_broker.configuration import ListenerConfig
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.log_setup import logger
from amqp_broker.peers import AddressRates, Admission, PeerInfo, peer_of_stream

__all__ = [
    "ListenError",
    "OpenListener",
    "PeerInfo",
    "ServeConnection",
    "open_listeners",
    "peer_of_stream",
    "serve_listeners",
]

_log = logger("listener")

OUT_OF_RESOURCES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
ACCEPT_AGAIN_S: Final = 0.1
"""After a failed accept: a descriptor is free when somebody goes, which nobody tells us."""
RECOVERED_S: Final = 10.0
"""A table that is full again sooner was full all the time."""


class ListenError(Exception):
    """A listener cannot be opened: the message names its field, its URL and the system's reason."""


ServeConnection = Callable[[trio.abc.Stream, PeerInfo], Awaitable[None]]


@attrs.frozen
class OpenListener:
    """A bound socket.  `url` is what a client dials, with the port that the system chose."""

    config: ListenerConfig
    url: str
    tls_context: ssl.SSLContext | None
    trio_listener: trio.SocketListener = attrs.field(repr=False)


async def open_listeners(configs: Sequence[ListenerConfig]) -> list[OpenListener]:
    """Bind all sockets, or none.  Raises ListenError, which names the listener."""
    opened: list[OpenListener] = []
    try:
        for index, config in enumerate(configs):
            opened += await _open_listener(config, f"listener[{index}]")
    except BaseException:
        for listener in opened:
            listener.trio_listener.socket.close()
        raise
    return opened


async def _open_listener(config: ListenerConfig, field: str) -> list[OpenListener]:
    context = tls_context_of(config, field) if config.tls else None
    try:
        sockets = await trio.open_tcp_listeners(config.port, host=config.host, backlog=config.backlog_sockets)
    except OSError as error:
        raise ListenError(f'{field}.url = "{config.url}": cannot listen: {reason_of(error)}') from error
    return [OpenListener(config, _url_of(config, listener), context, listener) for listener in sockets]


def reason_of(error: OSError) -> str:
    """Why a socket cannot listen, for people."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program"
    return error.strerror or str(error)


def _url_of(config: ListenerConfig, listener: trio.SocketListener) -> str:
    host, port = listener.socket.getsockname()[:2]
    return f"{config.scheme}://[{host}]:{port}" if ":" in host else f"{config.scheme}://{host}:{port}"


def tls_context_of(config: ListenerConfig, field: str = "listener") -> ssl.SSLContext:
    """The TLS settings of a listener.  Raises ListenError for files that cannot be used."""
    assert config.certificate_file is not None and config.key_file is not None, "amqps has both"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.certificate_file, config.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        names = f"{config.certificate_file} with key_file {config.key_file}"
        raise ListenError(f"{field}.certificate_file = {names}: cannot be used: {error}") from error
    if config.client_ca_file is not None:
        try:
            context.load_verify_locations(config.client_ca_file)
        except (OSError, ValueError) as error:
            raise ListenError(
                f"{field}.client_ca_file = {config.client_ca_file}: cannot be used: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED if config.require_client_certificate else ssl.CERT_OPTIONAL
    return context


def _no_password() -> str:
    """OpenSSL would ask on the terminal, where a broker has nobody to answer."""
    raise ValueError("the key is encrypted; a broker cannot ask for its password")


async def serve_listeners(
    listeners: Sequence[OpenListener],
    limits: BrokerLimits,
    serve_connection: ServeConnection,
    *,
    handler_nursery: trio.Nursery,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until cancelled; connections run in `handler_nursery` and outlive the listeners.

    The sockets are closed when this is cancelled.  A handler that raises is logged once and ends alone.
    """
    admission, rates = Admission(limits), AddressRates(limits)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            server = _Server(listener, limits, admission, rates, serve_connection)
            nursery.start_soon(accept, listener.trio_listener, listener.url, server.handle, handler_nursery)
        task_status.started()


async def accept(
    listener: trio.SocketListener, url: str, handle: Any, handler_nursery: trio.Nursery
) -> None:
    """Accept for ever. While the process or the system has no descriptor or memory for one more socket, those
    who dial wait in the backlog: one event when it begins, and one when it is over.
    """
    failures = 0
    first = last = 0.0
    async with listener:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                last = trio.current_time()
                failures += 1
                if failures == 1:
                    first = last
                    reason = error.strerror or str(error)
                    _log.error("listener.out_of_resources", url=url, reason=reason)
                await trio.sleep(ACCEPT_AGAIN_S)
                continue
            if failures and trio.current_time() - last > RECOVERED_S:
                _log.warning(
                    "listener.accepts_again", url=url, after_s=last - first, failures=failures
                )
                failures = 0
            handler_nursery.start_soon(handle, stream)


class _Server:
    """What happens with each accepted socket of one listener."""

    def __init__(
        self,
        listener: OpenListener,
        limits: BrokerLimits,
        admission: Admission,
        rates: AddressRates,
        serve_connection: ServeConnection,
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._admission = admission
        self._rates = rates
        self._serve_connection = serve_connection

    async def handle(self, stream: trio.SocketStream) -> None:
        """Admit, shake hands, serve, close; whatever happens stays in this connection."""
        try:
            await self._admit(stream)
        finally:
            await trio.aclose_forcefully(stream)

    async def _admit(self, stream: trio.SocketStream) -> None:
        try:
            host, port = stream.socket.getpeername()[:2]
        except OSError:  # it has gone already
            return
        refusal = self._admission.refusal(host)
        if refusal is not None:
            _log.warning("connection.refused", peer=f"{host}:{port}", reason=refusal)
            return
        self._admission.enter(host)
        operations = self._rates.of(host, trio.current_time())
        peer = PeerInfo(
            self._listener.config, f"{host}:{port}", host, operations=operations, admission=self._admission
        )
        try:
            await self._serve(stream, peer)
        except Exception:
            _log.exception("connection.failed", peer=peer.address)
        finally:
            peer.logged_in()

    async def _serve(self, stream: trio.SocketStream, peer: PeerInfo) -> None:
        context = self._listener.tls_context
        if context is None:
            await self._serve_connection(stream, peer)
            return
        secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with trio.move_on_after(self._limits.tls_timeout_ms / 1_000) as scope:
            try:
                await secure.do_handshake()
            except (trio.BrokenResourceError, ssl.SSLError) as error:
                _log.info("connection.tls_failed", peer=peer.address, reason=_tls_reason(error))
                return
        if scope.cancelled_caught:
            reason = f"no TLS handshake within {self._limits.tls_timeout_ms} ms (tls_timeout_ms)"
            _log.info("connection.tls_failed", peer=peer.address, reason=reason)
            return
        peer.tls = True
        peer.certificate_name = certificate_name(secure.getpeercert())
        await self._serve_connection(secure, peer)


def _tls_reason(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
    return str(cause or error)


def certificate_name(certificate: Any) -> str | None:
    """The common name of a client certificate that TLS has verified, or None.

    `certificate` is what `getpeercert()` gives.  More than one common name proves nothing, and is None.
    """
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and names[0] and names[0].isprintable() else None
