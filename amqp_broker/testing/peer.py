"""A frame-level peer without I/O: octets in, what came; what is put, octets out.

    peer.feed(octets) --> peer.received(): a protocol header or a frame, counted
    peer.put(performative) --> peer.take(): octets

It knows the codec of `frames` and nothing of `links`, so that a mistake in our engine does not meet the same
mistake on the other side. Ids, credit, windows and unsettled deliveries are counted from the frames that
pass in either direction: a frame that a test puts counts like one that a method here puts. What is put is
written as it is, however wrong; only `PeerSender.send` needs credit, unless `checks_credit` is False. Nothing
is sent by itself but the answer to a flow with echo of a link on which we receive.

A transport carries the octets: `BlockingPeer` over a socket, `StreamPeer` over a trio stream. Where it can
wait (`pump_until`), `begin`, `attach_...`, `detach` and `end` return with the answer, else at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
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
    Source,
    Target,
    Transfer,
    encode_frame,
)
from amqp_broker.testing.peer_links import (
    MAX_FRAME_SIZE,
    SERIAL,
    Delivery,
    Outcome,
    PeerLink,
    PeerReceiver,
    PeerSender,
)

__all__ = [
    "Delivery", "MAX_FRAME_SIZE", "Outcome", "Peer", "PeerError", "PeerLink", "PeerReceiver", "PeerSender",
    "PeerSession", "WINDOW", "ids_of",
]  # fmt: skip

WINDOW: Final = 2**31 - 1
"""Our session windows in transfers: as wide as they can be."""
AMQP_FRAME: Final = 0


class PeerError(Exception):
    """The other side closed, ended or detached with an error, or refused the login."""

    def __init__(self, scope: str, error: Error | None) -> None:
        super().__init__(f"{scope}: {error}")
        self.scope = scope
        self.error = error


def ids_of(disposition: Disposition) -> Iterator[int]:
    """The delivery-ids that a disposition is about, at most 65,536 of them (2.7.6)."""
    last = disposition.first if disposition.last is None else disposition.last
    for number in range(min((last - disposition.first) % SERIAL + 1, 65_536)):
        yield (disposition.first + number) % SERIAL


class Peer:
    """One connection."""

    checks_credit = True
    """Whether `PeerSender.send` fails without credit or window."""
    raises_errors = True
    """Whether a close, end or detach with an error of the other side is raised."""

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE) -> None:
        self.remote_open: Open | None = None
        self.closed: Close | None = None
        self.sessions: dict[int, PeerSession] = {}  # by our channel
        self.by_remote_channel: dict[int, PeerSession] = {}
        self.reader = FrameReader(max_frame_size)
        self.output: list[bytes] = []

    # --- out

    def put_octets(self, octets: bytes) -> None:
        """Octets for the next write, as they are."""
        self.output.append(octets)

    def put(self, performative: object, payload: bytes = b"", channel: int = 0) -> None:
        """A frame for the next write. A begin makes a session, an attach a link."""
        if isinstance(performative, Begin):
            self.sessions[channel] = self.make_session(channel, performative)
        elif channel in self.sessions:
            self.sessions[channel].count(performative)
        self.put_octets(encode_frame(channel, performative, payload))

    def take(self) -> bytes:
        """What was put since the last call."""
        octets = b"".join(self.output)
        self.output.clear()
        return octets

    def open(self, container_id: str, **fields: Any) -> None:
        """Put the protocol header and an open; a header of the other side has to come next."""
        self.reader.expect_header()
        self.put_octets(AMQP_HEADER)
        fields = {"max_frame_size": self.reader.max_frame_size} | fields
        self.put(Open(container_id=container_id, **fields))

    def make_session(self, channel: int, begin: Begin) -> PeerSession:
        """What stands for a session that our begin began."""
        return PeerSession(self, channel, begin)

    def begin(self, **fields: Any) -> PeerSession:
        """Begin a session on a channel of its own."""
        channel = max(self.sessions, default=-1) + 1
        windows = {"next_outgoing_id": 0, "incoming_window": WINDOW, "outgoing_window": WINDOW}
        self.put(Begin(**windows | {"handle_max": 1023} | fields), channel=channel)
        session = self.sessions[channel]
        self.pump_until(lambda: session.remote_begin is not None)
        return session

    def close(self, error: Error | None = None) -> None:
        """Close, wait for the close of the other side, and end the transport."""
        self.put(Close(error=error))
        self.pump_until(lambda: self.closed is not None)
        self.abort()

    # --- in

    def feed(self, octets: bytes) -> None:
        """Octets of the other side."""
        self.reader.feed(octets)

    def received(self) -> Frame | ProtocolHeader | None:
        """The next header or frame, also an empty one, after it was counted; None: more octets are needed.

        Raises PeerError at a close, end or detach with an error, where `raises_errors`.
        """
        item = self.reader.next()
        if isinstance(item, Frame) and item.type == AMQP_FRAME and item.performative is not None:
            self.on_frame(item)
        return item

    def on_frame(self, frame: Frame) -> None:
        """One frame of the other side."""
        performative = frame.performative
        if isinstance(performative, Open):
            self.remote_open = performative
        elif isinstance(performative, Close):
            self.closed = performative
            if performative.error is not None:
                self.failed("connection", performative.error)
        elif isinstance(performative, Begin):
            answered = performative.remote_channel
            assert answered is not None, "the other side began a session by itself"
            session = self.sessions[answered]
            session.on_begin(performative)
            self.by_remote_channel[frame.channel] = session
        else:
            self.by_remote_channel[frame.channel].on_performative(performative, frame.payload)

    def failed(self, scope: str, error: Error, link: PeerLink | None = None) -> None:
        """The other side closed, ended or detached with an error. `scope` is "connection", "session" with our
        channel, or "link" with its name.
        """
        if self.raises_errors:
            raise PeerError(scope, error)

    # --- the transport: here none, which carries nothing and waits for nothing

    def flush(self) -> None:
        """Carry what was put to the other side."""

    def pump(self, timeout: float) -> bool:
        """Carry what was put, read once, count all that came. False: nothing came within `timeout` s."""
        return False

    def pump_until(self, reached: Callable[[], object], timeout: float | None = None) -> None:
        """Pump until `reached` holds; TimeoutError after `timeout` seconds."""

    def abort(self) -> None:
        """End the transport without a word."""


class PeerSession:
    """One session, with the counters of 2.5.6. Our windows are as wide as they can be."""

    def __init__(self, connection: Peer, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_begin: Begin | None = None
        self.ended: End | None = None
        self.links: dict[int, PeerSender | PeerReceiver] = {}
        """By our handle, until both sides have detached."""
        self.by_remote_handle: dict[int, PeerSender | PeerReceiver] = {}
        self.next_outgoing_id = begin.next_outgoing_id
        self.next_incoming_id: int | None = None
        self.remote_incoming_window = 0
        self.next_delivery_id = 0
        self.flows_received = 0
        """Of the session itself: what a round trip is answered with, unlike the credit of a link."""
        self.sent_unsettled: dict[int, PeerSender] = {}  # by delivery-id
        self.received_unsettled: dict[int, PeerReceiver] = {}

    # --- out

    def put(self, performative: object, payload: bytes = b"") -> None:
        """A frame on this channel."""
        self.connection.put(performative, payload, self.channel)

    def count(self, performative: object) -> None:
        """Count a frame of ours, which is about to be written."""
        if isinstance(performative, Attach):
            kind = PeerReceiver if performative.role == RECEIVER else PeerSender
            self.links[performative.handle] = kind(self, performative)
            return
        if isinstance(performative, Transfer):
            self.next_outgoing_id = (self.next_outgoing_id + 1) % SERIAL
            self.remote_incoming_window -= 1
        handle: Any = getattr(performative, "handle", None)
        link = self.links.get(handle)
        if isinstance(performative, Transfer) and isinstance(link, PeerSender):
            link.count(performative)
        elif isinstance(performative, Flow) and isinstance(link, PeerReceiver):
            link.credit, link.drain = performative.link_credit or 0, bool(performative.drain)
        elif isinstance(performative, Detach) and link is not None:
            link.detach_sent = True
            self._forget(link)
        elif isinstance(performative, Disposition) and performative.role == RECEIVER and performative.settled:
            for delivery_id in ids_of(performative):
                self.received_unsettled.pop(delivery_id, None)

    def attach(self, attach: Attach) -> PeerSender | PeerReceiver:
        """Attach; a refusal is a PeerError."""
        self.put(attach)
        link = self.links[attach.handle]
        self.connection.pump_until(lambda: link.remote_attach is not None)
        if link.remote_attach is not None and link.remote_terminus is None:
            self.connection.pump_until(lambda: link.detached is not None)
        return link

    def attach_sender(self, name: str, address: str | None, **fields: Any) -> PeerSender:
        """Attach a link on which we send; `fields` change the attach."""
        values = {"source": Source(), "target": Target(address=address), "initial_delivery_count": 0}
        link = self.attach(self._attach_of(name, SENDER, values | fields))
        assert isinstance(link, PeerSender)
        return link

    def attach_receiver(
        self, name: str, address: str | None, *, credit: int = 0, **fields: Any
    ) -> PeerReceiver:
        """Attach a link on which we receive, and give credit; `fields` change the attach."""
        values = {"source": Source(address=address), "target": Target()}
        link = self.attach(self._attach_of(name, RECEIVER, values | fields))
        assert isinstance(link, PeerReceiver)
        if credit:
            link.flow(credit)
        return link

    def _attach_of(self, name: str, role: bool, fields: dict[str, Any]) -> Attach:
        fields = {"handle": max(self.links, default=-1) + 1} | fields
        return Attach(name=name, role=role, **fields)

    def flow(self, link: PeerLink | None = None, **fields: Any) -> None:
        """The state of the session, and that of a link; `fields` change it."""
        values: dict[str, Any] = {
            "next_incoming_id": self.next_incoming_id,
            "incoming_window": WINDOW,
            "next_outgoing_id": self.next_outgoing_id,
            "outgoing_window": WINDOW,
        }
        if link is not None:
            values |= {"handle": link.handle, "delivery_count": link.delivery_count}
            values |= {"link_credit": link.credit, "drain": link.drain}
        self.put(Flow(**values | fields))

    def end(self, error: Error | None = None) -> None:
        """End the session."""
        self.put(End(error=error))
        self.connection.pump_until(lambda: self.ended is not None)
        del self.connection.sessions[self.channel]

    # --- in

    def on_begin(self, begin: Begin) -> None:
        """The answer to our begin."""
        self.remote_begin = begin
        self.remote_incoming_window += begin.incoming_window
        self.next_incoming_id = begin.next_outgoing_id

    def on_performative(self, performative: object, payload: bytes) -> None:
        """One frame of the other side on this session."""
        if isinstance(performative, Transfer):
            self.next_incoming_id = ((self.next_incoming_id or 0) + 1) % SERIAL
            link = self.by_remote_handle[performative.handle]
            assert isinstance(link, PeerReceiver), f"a transfer on the sending link {link.name}"
            link.on_transfer(performative, payload)
        elif isinstance(performative, Disposition):
            self.on_disposition(performative)
        elif isinstance(performative, Flow):
            self.on_flow(performative)
        elif isinstance(performative, Attach):
            link = next(each for each in self.links.values() if each.is_answered_by(performative))
            self.by_remote_handle[performative.handle] = link
            link.on_attach(performative)
        elif isinstance(performative, Detach):
            link = self.by_remote_handle.pop(performative.handle)
            link.detached = performative
            self._forget(link)
            if performative.error is not None:
                self.connection.failed(f"link {link.name}", performative.error, link)
        elif isinstance(performative, End):
            self.ended = performative
            if performative.error is not None:
                self.connection.failed(f"session {self.channel}", performative.error)

    def on_flow(self, flow: Flow) -> None:
        """The state of the session, or of a link (2.7.4)."""
        reached = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        self.remote_incoming_window = flow.incoming_window - (self.next_outgoing_id - reached) % SERIAL
        if flow.handle is None:
            self.flows_received += 1
        else:
            self.by_remote_handle[flow.handle].on_flow(flow)

    def on_disposition(self, disposition: Disposition) -> None:
        """States of deliveries; what is settled is forgotten (2.7.6)."""
        for delivery_id in ids_of(disposition):
            if disposition.role == RECEIVER:
                if (sender := self.sent_unsettled.get(delivery_id)) is not None:
                    sender.on_outcome(delivery_id, disposition)
            elif disposition.settled and delivery_id in self.received_unsettled:
                self.received_unsettled.pop(delivery_id).confirmed.append(delivery_id)

    def _forget(self, link: PeerLink) -> None:
        # A handle is free when both have detached.
        if link.detach_sent and link.detached is not None and self.links.get(link.handle) is link:
            del self.links[link.handle]
