"""The client for programs without an event loop: scripts, threads, Spark executors. It never imports trio.

    with connect("amqp://127.0.0.1:5672") as connection:
        connection.open_sender("orders").send("one pair of shoes")
        receiver = connection.open_receiver("orders")
        received = receiver.receive(timeout_s=5)
        print(received.body)
        receiver.accept(received)

Every object may be used from any thread. A connection does not come back by itself: what is waited for then
ends with a Gone, and the caller connects again.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from amqp_broker.client.blocking_bytes import PlainBytes, SecureBytes, TransportBytes
from amqp_broker.client.blocking_links import OpensLinks
from amqp_broker.client.blocking_pump import Pump
from amqp_broker.client.blocking_requests import BlockingRequester
from amqp_broker.client.core import ClientCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ConnectFailed, ConnectionGone
from amqp_broker.client.settings import Endpoint
from amqp_broker.client.shells import AnyConnection, AnySession, settings_of, tls_of

if TYPE_CHECKING:
    from amqp_broker.client.blocking_producer import BlockingCheck, BlockingTransactionProducer

TIMEOUT_S: Final = 30.0  # more than the broker's longest answers, a commit of a large discharge included


def connect(
    url: str,
    *,
    timeout_s: float | None = TIMEOUT_S,
    ssl_context: ssl.SSLContext | None = None,
    **settings: Any,
) -> BlockingConnection:
    """Connects, logs in and opens. `amqps` uses TLS, with the system's authorities unless `ssl_context` says
    otherwise; `settings` are fields of ClientSettings (`container_id`, `user`, `password`, ...).

    `timeout_s` is for each answer that is waited for, None for ever. Raises ConnectFailed, LoginRefused,
    ConnectionGone, WaitTimeout, WrongUse.
    """
    made, endpoint = settings_of(url, settings)
    context = tls_of(endpoint, ssl_context)
    transport = _dial(endpoint, made.open_timeout_s)
    octets: TransportBytes = PlainBytes()
    if context is not None:
        octets = secure = SecureBytes(context, endpoint.host)
        endpoint = attrs.evolve(endpoint, channel=secure.tls)
    core = ClientCore(made, endpoint, time.monotonic())
    opening = core.open()
    pump = Pump(transport, octets, core)
    connection = BlockingConnection(pump, timeout_s)
    try:
        pump.wait(opening, timeout_s)
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionGone) and not octets.ready:
            raise ConnectFailed(f"expected TLS with {endpoint}, but {core.gone}") from None
        raise
    return connection


def _dial(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    try:
        transport = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    except OSError as error:
        raise ConnectFailed(f"expected a listener at {endpoint}, but: {error}") from error
    transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return transport


class BlockingSession(AnySession[Pump], OpensLinks):
    """A session: links of one session have one window, and one error of theirs ends them all (2.5)."""

    def __init__(self, pump: Pump, session: SessionCore, timeout_s: float | None) -> None:
        super().__init__(pump, timeout_s)
        self.core = session

    def open_requester(self, address: str) -> BlockingRequester:
        """Links to ask the node `address`, and for its replies. Raises LinkRefused."""
        return BlockingRequester(self, address)

    def _session_core(self) -> SessionCore:
        return self.core


class BlockingConnection(AnyConnection[Pump], OpensLinks):
    """An open connection. Made by `connect`; a context manager that closes it."""

    def __init__(self, pump: Pump, timeout_s: float | None) -> None:
        super().__init__(pump, timeout_s)
        self._session: BlockingSession | None = None
        self._beginning = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_session(self) -> BlockingSession:
        """One more session."""
        begun = self._pump.wait(self._pump.call(self._pump.core.begin), self.timeout_s)
        return BlockingSession(self._pump, begun, self.timeout_s)

    def open_requester(self, address: str) -> BlockingRequester:
        """Links to ask the node `address`, and for its replies, on this connection's usual session. Raises
        LinkRefused.
        """
        return BlockingRequester(self, address)

    def producer(
        self, group: str, check: BlockingCheck | None = None, **options: Any
    ) -> BlockingTransactionProducer:
        """A producer of half messages for this group: see BlockingTransactionProducer."""
        from amqp_broker.client.blocking_producer import BlockingTransactionProducer

        return BlockingTransactionProducer(self, group, check, **options)

    def close(self) -> None:
        """Closes, and waits for the peer's close, a few seconds at most. Harmless when called again."""
        core = self._pump.core
        self._pump.wait(self._pump.call(core.close), core.settings.close_timeout_s + 1.0)
        self._pump.join(core.settings.close_timeout_s)

    def _session_core(self) -> SessionCore:
        with self._beginning:
            session = self._session
            if session is None or session.core.gone is not None:
                session = self._session = self.open_session()
            return session.core
