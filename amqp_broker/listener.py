"""Listeners: TCP sockets, TLS and WebSocket where the URL says so, and a bound on sockets that have not
logged in.

    accept --> Admission (512 strangers in all, 32 of each address) --> TLS (5 s) --> WebSocket (5 s)
           --> serve_connection(stream, peer)

On an `amqp` listener with a certificate TLS begins where the client's first header asks for it (5.2.1).

A socket counts as a stranger until the connection task calls `peer.logged_in()` or the handler returns.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from amqp_broker.configuration import CertificateConfig, ListenerConfig
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.frames import TLS_HEADER
from amqp_broker.links import LOGIN, Refusals
from amqp_broker.listener_tls import AddressUnavailable, ListenError, ListenerTls
from amqp_broker.log_setup import logger
from amqp_broker.peers import AddressRates, Admission, PeerInfo, peer_of_stream

if TYPE_CHECKING:
    from amqp_broker.given_sockets import GivenSockets

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
KEPT_DESCRIPTORS: Final = 256
"""What sockets leave of those that the process may have, a quarter where that is less: for the files of the
store that are written and read, for backups and certificates. A want of them would be the store's end.
"""
RECOVERED_S: Final = 10.0
"""A table that is full again sooner was full all the time."""


ServeConnection = Callable[[trio.abc.Stream, PeerInfo], Awaitable[None]]


@attrs.define(eq=False)
class OpenListener:
    """A bound socket.  `url` is what a client dials, with the port that the system chose; `place` is where
    its `config` stands among those that were opened with it.
    """

    config: ListenerConfig
    url: str
    tls: ListenerTls | None = attrs.field(repr=False)
    trio_listener: trio.SocketListener = attrs.field(repr=False)
    place: int


async def open_listeners(
    configs: Sequence[ListenerConfig], certificates: Sequence[CertificateConfig] = (),
    given: GivenSockets | None = None,
) -> list[OpenListener]:  # fmt: skip
    """Bind all sockets, or none. `certificates` are more ones for those that have TLS; who finds sockets
    among those that are `given` binds none. Raises ListenError, which names the listener.
    """
    opened: list[OpenListener] = []
    try:
        for index, config in enumerate(configs):
            opened += await _open_listener(config, index, certificates, given)
        if given is not None:
            given.check_all_taken()
    except BaseException:
        for listener in opened:
            listener.trio_listener.socket.close()
        raise
    return opened


async def _open_listener(
    config: ListenerConfig, place: int, certificates: Sequence[CertificateConfig],
    given: GivenSockets | None,
) -> list[OpenListener]:  # fmt: skip
    field = field_of(place)
    if config.websocket:
        _load_websocket(field)
    tls = tls_of(config, place, certificates)
    host, port, backlog = config.host, config.port, config.backlog_sockets
    try:
        sockets = [] if given is None else await given.take(host, port, backlog)
        sockets = sockets or await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    except OSError as error:
        told = f'{field}.url = "{config.url}": cannot listen: {reason_of(error)}'
        raise AddressUnavailable(told) from error
    return [OpenListener(config, _url_of(config, listener), tls, listener, place) for listener in sockets]


def tls_of(
    config: ListenerConfig, place: int, certificates: Sequence[CertificateConfig]
) -> ListenerTls | None:
    """The TLS of a listener, if it has some, with the files as they are now. Raises ListenError."""
    if config.certificate_file is None:
        return None
    return ListenerTls(config, certificates, field_of(place))


def field_of(place: int) -> str:
    """How errors name a listener."""
    return f"listener[{place}]"


def _load_websocket(field: str) -> None:
    """Have what a WebSocket needs, or say at the start that it is missing."""
    try:
        import amqp_broker.websocket  # noqa: F401
    except ImportError as error:
        needed = f"needs pip install 'amqp-broker[websocket]' ({error})"
        raise ListenError(f"{field}.url: {needed}") from None


def reason_of(error: OSError) -> str:
    """Why a socket cannot listen, for people."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program"
    return error.strerror or str(error)


def _url_of(config: ListenerConfig, listener: trio.SocketListener) -> str:
    host, port = listener.socket.getsockname()[:2]
    return f"{config.scheme}://[{host}]:{port}" if ":" in host else f"{config.scheme}://{host}:{port}"


async def serve_listeners(
    listeners: Sequence[OpenListener],
    limits: Callable[[], BrokerLimits],
    serve_connection: ServeConnection,
    *,
    refusals: Refusals,
    handler_nursery: trio.Nursery,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until cancelled; connections run in `handler_nursery` and outlive the listeners. `limits` are
    those that hold when they are asked for.

    The sockets are closed when this is cancelled.  A handler that raises is logged once and ends alone.
    """
    admission, rates = Admission(limits), AddressRates(limits)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            server = _Server(listener, limits, admission, rates, serve_connection, refusals)
            nursery.start_soon(accept, listener.trio_listener, listener.url, server.handle, handler_nursery)
        task_status.started()


async def accept(
    listener: trio.SocketListener, url: str, handle: Any, handler_nursery: trio.Nursery
) -> None:
    """Accept for ever. While the process or the system has no descriptor or memory for one more socket, those
    who dial wait in the backlog (the first of them accepted, where the rest is kept for the store): one event
    when it begins, and one when it is over.
    """
    failures = 0
    first = last = 0.0
    stream: trio.SocketStream | None = None
    async with listener:
        try:
            while True:
                try:
                    if stream is None:
                        stream = await listener.accept()
                    _check_descriptors(stream.socket.fileno())
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
                stream = None
        finally:
            if stream is not None:
                stream.socket.close()


def _check_descriptors(of_socket: int) -> None:
    """Whether enough is left with a socket of this descriptor: the system gives the lowest one that is free.
    Raises OSError.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return
    sockets = most - min(KEPT_DESCRIPTORS, most // 4)
    if of_socket < sockets:
        return
    lowest = os.dup(of_socket)  # others may have gone since it was accepted
    os.close(lowest)
    if lowest >= sockets:
        told = f"{sockets} of {most} descriptors are in use, the rest is kept for the store"
        raise OSError(errno.EMFILE, told)


class _Server:
    """What happens with each accepted socket of one listener."""

    def __init__(
        self,
        listener: OpenListener,
        limits: Callable[[], BrokerLimits],
        admission: Admission,
        rates: AddressRates,
        serve_connection: ServeConnection,
        refusals: Refusals,
    ) -> None:
        self._refusals = refusals
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
            limit, reason = refusal
            self._refusals.met(limit)
            _log.warning("connection.refused", peer=f"{host}:{port}", reason=f"{reason} ({limit})")
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
        """Layer by layer: TLS, from the start or where the client asks for it, then a WebSocket. Who has all
        layers logs in as the listener says by then.
        """
        config, tls = self._listener.config, self._listener.tls
        layered: trio.abc.Stream = stream
        try:
            with_tls = tls is not None and (config.tls or await self._asks_for_tls(stream, peer))
        except (OSError, trio.BrokenResourceError) as error:
            _log.info("connection.reset_before_header", peer=peer.address, reason=str(error))
            return
        if tls is not None and with_tls:
            secure = await self._shake_hands(stream, peer, tls)
            if secure is None:
                return
            layered = secure
        if config.websocket:
            from amqp_broker.websocket import WebSocketRefused, accept_websocket

            try:
                scheme = "https" if with_tls else "http"
                layered = await accept_websocket(
                    layered, config.origins, self._limits(), lambda: peer.is_stranger, scheme
                )
            except (WebSocketRefused, trio.BrokenResourceError) as error:
                if isinstance(error, WebSocketRefused) and error.limit:
                    self._refusals.met(error.limit)
                _log.info("connection.websocket_failed", peer=peer.address, reason=str(error))
                return
        if self._listener.tls is not tls:  # whose certificates count is another matter by now
            _log.info("connection.refused", peer=peer.address, reason="a reload came in between")
            return
        peer.listener = self._listener.config
        await self._serve_connection(layered, peer)

    async def _asks_for_tls(self, stream: trio.SocketStream, peer: PeerInfo) -> bool:
        """Whether the client's first protocol header is that of TLS (5.2.1), which is answered then. Any
        other stays where it is, for whoever reads it. Raises BrokenResourceError.
        """
        sock, asks = stream.socket, False
        with trio.move_on_after(self._limits().header_timeout_ms / 1_000):
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVLOWAT, len(TLS_HEADER))
            await trio.lowlevel.wait_readable(sock)
            asks = await sock.recv(len(TLS_HEADER), trio.socket.MSG_PEEK) == TLS_HEADER
            if asks:
                await sock.recv(len(TLS_HEADER))
                await stream.send_all(TLS_HEADER)
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVLOWAT, 1)
        return asks

    async def _shake_hands(
        self, stream: trio.SocketStream, peer: PeerInfo, tls: ListenerTls
    ) -> trio.SSLStream[trio.SocketStream] | None:
        """The stream inside TLS; None where there is none, which the log says."""
        context = tls.context(trio.current_time())
        secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        timeout_ms = self._limits().tls_timeout_ms
        with trio.move_on_after(timeout_ms / 1_000) as scope:
            try:
                await secure.do_handshake()
            except (trio.BrokenResourceError, ssl.SSLError) as error:
                if _refuses_certificate(error):
                    self._refusals.met(LOGIN)
                _log.info("connection.tls_failed", peer=peer.address, reason=_tls_reason(error))
                return None
        if scope.cancelled_caught:
            reason = f"no TLS handshake within {timeout_ms} ms (tls_timeout_ms)"
            self._refusals.met("tls_timeout_ms")
            _log.info("connection.tls_failed", peer=peer.address, reason=reason)
            return None
        peer.tls = True
        peer.certificate = secure.getpeercert() or None
        peer.shown_certificate = tls.shown_on(secure)
        peer.client_ca = tls.client_ca_on(secure)
        return secure


def _refuses_certificate(error: BaseException) -> bool:
    """Whether the handshake failed since the client has no certificate, or one that proves nothing."""
    cause = _tls_cause(error)
    return isinstance(cause, ssl.SSLCertVerificationError) or (
        isinstance(cause, ssl.SSLError) and cause.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    )


def _tls_reason(error: BaseException) -> str:
    return str(_tls_cause(error))


def _tls_cause(error: BaseException) -> BaseException:
    return (error.__cause__ if isinstance(error, trio.BrokenResourceError) else None) or error
