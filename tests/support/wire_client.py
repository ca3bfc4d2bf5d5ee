"""A small AMQP 1.0 client over a blocking socket, for tests: the codec of `frames` and nothing else of the
broker.

It knows nothing of `links`, so that a mistake in our engine does not meet the same mistake on the other side.
One thread uses one connection. Whatever arrives is handled in `pump`; the calls that wait (`begin`,
`attach_...`, `close`) pump by themselves. A transport that is gone is a `ConnectionLost`, a close, end or
detach with an error a `PeerError`.

    with WireConnection.connect("127.0.0.1", port) as connection:
        session = connection.begin()
        sender = session.attach_sender("s", "orders")
        number = sender.send(encode_message(body=b"hello"))
        connection.pump_until(lambda: number in sender.outcomes)
        receiver = session.attach_receiver("r", "orders", credit=10)
        connection.pump_until(lambda: receiver.deliveries)
        receiver.settle([receiver.deliveries.popleft()], Accepted())
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    RECEIVER,
    SASL_HEADER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Frame,
    FrameReader,
    Open,
    ProtocolHeader,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    encode_frame,
    encode_sasl_frame,
)
from tests.support.wire_links import MAX_FRAME_SIZE, SERIAL, Arrived, Outcome, WireReceiver, WireSender

__all__ = [
    "Arrived",
    "ConnectionLost",
    "Outcome",
    "PATIENCE_S",
    "PeerError",
    "WireConnection",
    "WireReceiver",
    "WireSender",
    "WireSession",
]

READ_BYTES: Final = 262_144
WINDOW: Final = 2**31 - 1
PATIENCE_S: Final = 120.0
"""How long a peer may take for anything, on a busy machine, too: only a fault takes so long."""

_Expected = TypeVar("_Expected")


class ConnectionLost(Exception):
    """The transport ended without a close frame."""


class PeerError(Exception):
    """The peer closed, ended or detached with an error, or refused the login."""

    def __init__(self, scope: str, error: Error | None) -> None:
        super().__init__(f"{scope}: {error}")
        self.scope = scope
        self.error = error


class WireConnection:
    """One open connection."""

    def __init__(self, transport: socket.socket, timeout: float) -> None:
        self.transport = transport
        self.timeout = timeout
        self.remote_open: Open | None = None
        self.closed: Close | None = None
        self.sessions: dict[int, WireSession] = {}  # by our channel
        self.by_remote_channel: dict[int, WireSession] = {}
        self._reader = FrameReader(MAX_FRAME_SIZE)
        self._output: list[bytes] = []
        self._last_write = time.monotonic()

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        container_id: str = "wire-client",
        login: tuple[str, bytes | None] | None = None,
        timeout: float = PATIENCE_S,
    ) -> Self:
        """Connect and open. `login` is a SASL mechanism with its initial response; without one the bare
        header is sent.
        """
        try:
            transport = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(transport, timeout)
        try:
            connection._open(container_id, host, login)
        except BaseException:
            connection.abort()
            raise
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _open(self, container_id: str, hostname: str, login: tuple[str, bytes | None] | None) -> None:
        self._reader.expect_header()
        if login is not None:
            self.put(SASL_HEADER)
            self._expect(ProtocolHeader)
            self._expect(SaslMechanisms)
            self.put(
                encode_sasl_frame(SaslInit(mechanism=login[0], initial_response=login[1], hostname=hostname))
            )
            outcome = self._expect(SaslOutcome)
            if outcome.code != 0:
                raise PeerError(
                    "login", Error(condition="amqp:unauthorized-access", description=f"code {outcome.code}")
                )
            self._reader.expect_header()
        self.put(AMQP_HEADER)
        self.put(
            encode_frame(0, Open(container_id=container_id, hostname=hostname, max_frame_size=MAX_FRAME_SIZE))
        )
        header = self._expect(ProtocolHeader)
        if header.protocol_id != 0:
            raise PeerError("header", None)
        self.remote_open = self._expect(Open)

    def _expect(self, kind: type[_Expected]) -> _Expected:
        """The next header or performative, which has to be of this kind."""
        self.flush()
        while (item := self._reader.next()) is None:
            data = self._read(self.timeout)
            if data is None:
                raise TimeoutError(f"no {kind.__name__} within {self.timeout} s")
            self._reader.feed(data)
        found = item.performative if isinstance(item, Frame) else item
        if isinstance(found, Close):
            raise PeerError("connection", found.error)
        assert isinstance(found, kind), f"expected {kind.__name__}, got {found!r}"
        return found

    def begin(self) -> WireSession:
        """Begin a session and wait for the answer."""
        session = WireSession(self, max(self.sessions, default=-1) + 1)
        self.sessions[session.channel] = session
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW, handle_max=1023)
        self.put(encode_frame(session.channel, begin))
        self.pump_until(lambda: session.remote_begin is not None)
        return session

    def close(self, error: Error | None = None) -> None:
        """Close, wait for the peer's close, and end the transport."""
        self.put(encode_frame(0, Close(error=error)))
        self.pump_until(lambda: self.closed is not None)
        self.abort()

    def abort(self) -> None:
        """End the transport without a word."""
        self.transport.close()

    def put(self, data: bytes) -> None:
        """Bytes for the next write; `flush` or `pump` writes them."""
        self._output.append(data)

    def flush(self) -> None:
        """Write what waits."""
        if not self._output:
            return
        data = b"".join(self._output)
        self._output.clear()
        self._last_write = time.monotonic()
        try:
            self.transport.settimeout(self.timeout)
            self.transport.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def pump(self, timeout: float) -> bool:
        """Write what waits, read once, handle all that came. False when nothing came within `timeout`
        seconds.
        """
        self._keep_alive()
        self.flush()
        data = self._read(timeout)
        if data is None:
            return False
        self._reader.feed(data)
        while (frame := self._reader.next()) is not None:
            if isinstance(frame, Frame) and frame.performative is not None:
                self._handle(frame)
        return True

    def pump_until(self, reached: Callable[[], object], timeout: float | None = None) -> None:
        """Pump until `reached` holds; TimeoutError after `timeout` seconds (by default the connection's)."""
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        while not reached():
            left = deadline - time.monotonic()
            if left <= 0 or not self.pump(left):
                raise TimeoutError(f"what was waited for did not come within {limit} s")

    def _read(self, timeout: float) -> bytes | None:
        try:
            self.transport.settimeout(max(timeout, 0.000_001))
            data = self.transport.recv(READ_BYTES)
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not data:
            raise ConnectionLost("the peer ended the transport")
        return data

    def _keep_alive(self) -> None:
        idle_time_out = self.remote_open.idle_time_out if self.remote_open else None
        if idle_time_out and (time.monotonic() - self._last_write) * 1000 > idle_time_out / 2:
            self.put(EMPTY_FRAME)

    def _handle(self, frame: Frame) -> None:
        performative = frame.performative
        if isinstance(performative, Close):
            self.closed = performative
            if performative.error is not None:
                raise PeerError("connection", performative.error)
        elif isinstance(performative, Begin):
            assert performative.remote_channel is not None, "the peer began a session by itself"
            session = self.sessions[performative.remote_channel]
            session.remote_begin = performative
            session.remote_window = performative.incoming_window
            self.by_remote_channel[frame.channel] = session
        else:
            self.by_remote_channel[frame.channel].handle(performative, frame.payload)


class WireSession:
    """One session; its windows are as wide as they can be, the peer's are kept."""

    def __init__(self, connection: WireConnection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_begin: Begin | None = None
        self.ended: End | None = None
        self.links: dict[int, WireSender | WireReceiver] = {}  # by our handle
        self.by_remote_handle: dict[int, WireSender | WireReceiver] = {}
        self.next_outgoing_id = 0
        self.next_incoming_id = 0
        self.remote_window = 0
        self.next_delivery_id = 0
        self.flows_received = 0
        """Of the session itself: what a round trip is answered with, unlike the credit of a link."""
        self.senders: dict[int, WireSender] = {}  # by delivery id, unsettled
        self.receivers: dict[int, WireReceiver] = {}

    def attach_sender(
        self, name: str, address: str | None, *, snd_settle_mode: int = 2, rcv_settle_mode: int = 0
    ) -> WireSender:
        """Attach and wait for the answer; a refusal is a PeerError."""
        link = WireSender(self, name, max(self.links, default=-1) + 1)
        attach = Attach(
            name=name,
            handle=link.handle,
            role=SENDER,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            source=Source(),
            target=Target(address=address),
            initial_delivery_count=0,
        )
        self._attach(link, attach)
        return link

    def attach_receiver(
        self,
        name: str,
        address: str | None,
        *,
        credit: int = 0,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
    ) -> WireReceiver:
        """Attach, wait for the answer, and give credit."""
        link = WireReceiver(self, name, max(self.links, default=-1) + 1)
        attach = Attach(
            name=name,
            handle=link.handle,
            role=RECEIVER,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            source=Source(address=address),
            target=Target(),
        )
        self._attach(link, attach)
        if credit:
            link.flow(credit)
        return link

    def _attach(self, link: WireSender | WireReceiver, attach: Attach) -> None:
        self.links[link.handle] = link
        self.put(attach)
        self.connection.pump_until(lambda: link.remote_attach is not None)
        assert link.remote_attach is not None
        answer = link.remote_attach.target if isinstance(link, WireSender) else link.remote_attach.source
        if answer is None:
            self.connection.pump_until(lambda: link.detached is not None)

    def end(self, error: Error | None = None) -> None:
        """End the session and wait for the answer."""
        self.put(End(error=error))
        self.connection.pump_until(lambda: self.ended is not None)
        del self.connection.sessions[self.channel]

    def put(self, performative: object, payload: bytes = b"") -> None:
        """Queue one frame on this channel."""
        self.connection.put(encode_frame(self.channel, performative, payload))

    def flow(
        self,
        link: WireReceiver | None = None,
        *,
        echo: bool = False,
        properties: dict[str, object] | None = None,
    ) -> None:
        """The session's state, and that of a receiving link."""
        self.put(
            Flow(
                next_incoming_id=self.next_incoming_id,
                incoming_window=WINDOW,
                next_outgoing_id=self.next_outgoing_id,
                outgoing_window=WINDOW,
                handle=None if link is None else link.handle,
                delivery_count=None if link is None else link.delivery_count,
                link_credit=None if link is None else link.credit,
                drain=False if link is None else link.drain,
                echo=echo,
                properties=properties,
            )
        )

    def handle(self, performative: object, payload: bytes) -> None:
        """One frame of the peer on this session."""
        if isinstance(performative, Transfer):
            self.next_incoming_id = (self.next_incoming_id + 1) % SERIAL
            link = self.by_remote_handle[performative.handle]
            assert isinstance(link, WireReceiver), "a transfer on a sending link"
            link.transfer(performative, payload)
        elif isinstance(performative, Disposition):
            self._disposition(performative)
        elif isinstance(performative, Flow):
            self._flow(performative)
        elif isinstance(performative, Attach):
            link = next(
                link
                for link in self.links.values()
                if link.name == performative.name and link.remote_attach is None
            )
            link.remote_attach = performative
            self.by_remote_handle[performative.handle] = link
            if isinstance(link, WireReceiver):
                link.delivery_count = performative.initial_delivery_count or 0
        elif isinstance(performative, Detach):
            link = self.by_remote_handle.pop(performative.handle)
            link.detached = performative
            if performative.error is not None:
                raise PeerError(f"link {link.name}", performative.error)
        elif isinstance(performative, End):
            self.ended = performative
            if performative.error is not None:
                raise PeerError(f"session {self.channel}", performative.error)

    def _flow(self, flow: Flow) -> None:
        reached = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        self.remote_window = flow.incoming_window - (self.next_outgoing_id - reached) % SERIAL
        if flow.handle is None:
            self.flows_received += 1
            return
        link = self.by_remote_handle[flow.handle]
        if isinstance(link, WireSender):
            received = flow.delivery_count or 0
            link.credit = (flow.link_credit or 0) - (link.delivery_count - received) % SERIAL
        else:
            if link.drain and flow.delivery_count is not None:
                # 2.6.7: a drained sender advances its delivery-count until no credit is left.
                link.credit = max(0, link.credit - (flow.delivery_count - link.delivery_count) % SERIAL)
                link.delivery_count = flow.delivery_count
            if flow.echo:
                self.flow(link)

    def _disposition(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        for number in range(disposition.first, disposition.first + (last - disposition.first) % SERIAL + 1):
            delivery_id = number % SERIAL
            if disposition.role == RECEIVER:
                sender = self.senders.get(delivery_id)
                if sender is not None:
                    sender.outcomes[delivery_id] = disposition.state
                    if disposition.settled:
                        del self.senders[delivery_id]
                        sender.settled.append(delivery_id)
            elif disposition.settled:
                receiver = self.receivers.pop(delivery_id, None)
                if receiver is not None:
                    receiver.confirmed.append(delivery_id)
