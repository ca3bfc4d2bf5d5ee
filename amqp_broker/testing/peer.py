"""A frame-level peer without I/O: octets in, what came; what is put, octets out.

    peer.feed(octets) --> peer.received(): a protocol header or a frame, counted
    peer.put(performative) --> peer.take(): octets

It knows the codec of `frames` and nothing of `links`, so that a mistake in our engine does not meet the same
mistake on the other side. Ids, credit, windows and unsettled deliveries are counted from the frames that
pass in either direction: a frame that a test puts counts like one that a method here puts. What is put is
written as it is, however wrong; only `PeerSender.send` needs credit, unless `checks_credit` is False. What
comes has to belong to a session or a link that was begun or attached here (`stray`). Nothing is sent by
itself but the answer to a flow with echo of a link on which we receive, unless `answers_echo` is False.

A transport carries the octets: `BlockingPeer` over a socket, `StreamPeer` over a trio stream. Where it can
wait (`pump_until`), `begin`, `attach_...`, `detach` and `end` return with the answer, else at once. The
conformance suite has its own (`amqp_broker.conformance.wire`), which looks at each frame that answers.
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
    answers_echo = True
    """Whether a flow with echo of a link on which we receive is answered by itself."""

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE) -> None:
        self.remote_open: Open | None = None
        self.closed: Close | None = None
        self.sessions: dict[int, PeerSession] = {}  # by our channel
        self.by_remote_channel: dict[int, PeerSession] = {}
        self.reader = FrameReader(max_frame_size)
        self.output: list[bytes] = []

    @property
    def remote_max_frame_size(self) -> int:
        """In octets: the largest frame that the other side takes, as far as we know."""
        return MAX_FRAME_SIZE if self.remote_open is None else self.remote_open.max_frame_size

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

    def put_begin(self, channel: int | None = None, **fields: Any) -> PeerSession:
        """Put a begin, changed by `fields`, on a channel of its own if none is given."""
        if channel is None:
            channel = max(self.sessions, default=-1) + 1
        windows = {"next_outgoing_id": 0, "incoming_window": WINDOW, "outgoing_window": WINDOW}
        self.put(Begin(**windows | {"handle_max": 1023} | fields), channel=channel)
        return self.sessions[channel]

    def begin(self, channel: int | None = None, **fields: Any) -> PeerSession:
        """Begin a session as `put_begin` does, and wait for the answer."""
        session = self.put_begin(channel, **fields)
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
        if item is not None:
            self.on_item(item)
        return item

    def on_item(self, item: Frame | ProtocolHeader) -> None:
        """One header or frame of the other side, also an empty one and one of SASL."""
        if isinstance(item, Frame) and item.type == AMQP_FRAME and item.performative is not None:
            self.on_frame(item)

    def on_frame(self, frame: Frame) -> None:
        """One frame of the other side that has a performative."""
        performative = frame.performative
        if isinstance(performative, Open):
            self.remote_open = performative
        elif isinstance(performative, Close):
            self.closed = performative
            if performative.error is not None:
                self.failed("connection", performative.error)
        elif isinstance(performative, Begin):
            session = self.sessions.get(-1 if (answered := performative.remote_channel) is None else answered)
            if session is None:
                return self.stray(f"a begin that answers none of ours: {performative}")
            session.on_begin(performative, frame.channel)
            self.by_remote_channel[frame.channel] = session
        elif (session := self.by_remote_channel.get(frame.channel)) is not None:
            session.on_performative(performative, frame.payload)
        else:
            self.stray(f"a frame on channel {frame.channel}, which has no session: {performative}")

    def stray(self, what: str) -> None:
        """Something came that belongs to no session or link that was begun or attached here."""
        raise AssertionError(f"the other side sent {what}")

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
    """One session, with the counters of 2.5.6. Our windows stay as wide as its begin says."""

    def __init__(self, connection: Peer, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_begin: Begin | None = None
        self.remote_channel: int | None = None
        self.ended: End | None = None
        """The end of the other side."""
        self.end_sent = False
        self.links: dict[int, PeerSender | PeerReceiver] = {}
        """By our handle, until both sides have detached."""
        self.by_remote_handle: dict[int, PeerSender | PeerReceiver] = {}
        self.next_outgoing_id = begin.next_outgoing_id
        self.incoming_window = begin.incoming_window
        """What each flow of ours says, however much has come."""
        self.outgoing_window = begin.outgoing_window
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
            self.links[performative.handle] = self.make_link(performative)
            return
        if isinstance(performative, End):
            self.end_sent = True
            self._free()
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

    def make_link(self, attach: Attach) -> PeerSender | PeerReceiver:
        """What stands for a link that our attach attached."""
        return PeerReceiver(self, attach) if attach.role == RECEIVER else PeerSender(self, attach)

    def put_attach(
        self, role: bool, name: str, address: str | None, **fields: Any
    ) -> PeerSender | PeerReceiver:
        """Put the attach of a link, changed by `fields`, and do not wait for the answer."""
        values: dict[str, Any] = {"name": name, "role": role, "handle": max(self.links, default=-1) + 1}
        if role == SENDER:
            values |= {"source": Source(), "target": Target(address=address), "initial_delivery_count": 0}
        else:
            values |= {"source": Source(address=address), "target": Target()}
        attach = Attach(**values | fields)
        self.put(attach)
        return self.links[attach.handle]

    def _attached(self, link: PeerSender | PeerReceiver) -> None:
        self.connection.pump_until(lambda: link.remote_attach is not None)
        if link.remote_attach is not None and link.remote_terminus is None:
            self.connection.pump_until(lambda: link.detached is not None)

    def attach_sender(self, name: str, address: str | None, **fields: Any) -> PeerSender:
        """Attach a link on which we send; `fields` change the attach. A refusal is a PeerError."""
        link = self.put_attach(SENDER, name, address, **fields)
        assert isinstance(link, PeerSender)
        self._attached(link)
        return link

    def attach_receiver(
        self, name: str, address: str | None, *, credit: int = 0, **fields: Any
    ) -> PeerReceiver:
        """Attach a link on which we receive, and give credit; `fields` change the attach."""
        link = self.put_attach(RECEIVER, name, address, **fields)
        assert isinstance(link, PeerReceiver)
        self._attached(link)
        if credit:
            link.flow(credit)
        return link

    def flow(self, link: PeerLink | None = None, **fields: Any) -> None:
        """The state of the session, and that of a link; `fields` change it."""
        values: dict[str, Any] = {
            "next_incoming_id": self.next_incoming_id,
            "incoming_window": self.incoming_window,
            "next_outgoing_id": self.next_outgoing_id,
            "outgoing_window": self.outgoing_window,
        }
        if link is not None:
            values |= {"handle": link.handle, "delivery_count": link.delivery_count}
            values |= {"link_credit": link.credit, "drain": link.drain}
        self.put(Flow(**values | fields))

    def end(self, error: Error | None = None) -> None:
        """End the session."""
        self.put(End(error=error))
        self.connection.pump_until(lambda: self.ended is not None)

    # --- in

    def on_begin(self, begin: Begin, channel: int) -> None:
        """The answer to our begin, on this channel of the other side."""
        self.remote_begin, self.remote_channel = begin, channel
        self.remote_incoming_window += begin.incoming_window
        self.next_incoming_id = begin.next_outgoing_id

    def on_performative(self, performative: Any, payload: bytes) -> None:
        """One frame of the other side on this session."""
        if isinstance(performative, Disposition):
            self.on_disposition(performative)
        elif isinstance(performative, Attach):
            self.on_attach(performative)
        elif isinstance(performative, End):
            self.ended = performative
            self._free()
            if performative.error is not None:
                self.connection.failed(f"session {self.channel}", performative.error)
        elif isinstance(performative, Flow) and performative.handle is None:
            self.flows_received += 1
            self.on_flow(performative)
        elif (link := self.by_remote_handle.get(performative.handle)) is None:
            self.connection.stray(f"a frame on handle {performative.handle}, of no link: {performative}")
        elif isinstance(performative, Flow):
            self.on_flow(performative)
            link.on_flow(performative)
        elif isinstance(performative, Transfer):
            self.next_incoming_id = ((self.next_incoming_id or 0) + 1) % SERIAL
            if not isinstance(link, PeerReceiver):
                return self.connection.stray(f"a transfer on link {link.name}, on which we send")
            link.on_transfer(performative, payload)
        else:
            del self.by_remote_handle[performative.handle]
            link.detached = performative
            self._forget(link)
            if performative.error is not None:
                self.connection.failed(f"link {link.name}", performative.error, link)

    def on_attach(self, attach: Attach) -> None:
        """The answer to an attach of ours."""
        for link in self.links.values():
            if link.is_answered_by(attach):
                self.by_remote_handle[attach.handle] = link
                return link.on_attach(attach)
        self.connection.stray(f"an attach that answers none of ours: {attach}")

    def on_flow(self, flow: Flow) -> None:
        """The state of the session, which each flow says (2.7.4)."""
        reached = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        self.remote_incoming_window = flow.incoming_window - (self.next_outgoing_id - reached) % SERIAL

    def on_disposition(self, disposition: Disposition) -> None:
        """States of deliveries; what is settled is forgotten (2.7.6)."""
        for delivery_id in ids_of(disposition):
            if disposition.role == RECEIVER:
                if (sender := self.sent_unsettled.get(delivery_id)) is not None:
                    sender.on_outcome(delivery_id, disposition)
            elif disposition.settled and delivery_id in self.received_unsettled:
                self.received_unsettled.pop(delivery_id).confirmed.append(delivery_id)

    def _free(self) -> None:
        # A channel is free when both have ended.
        sessions = self.connection.sessions
        if self.end_sent and self.ended is not None and sessions.get(self.channel) is self:
            del sessions[self.channel]

    def _forget(self, link: PeerLink) -> None:
        # A handle is free when both have detached.
        if link.detach_sent and link.detached is not None and self.links.get(link.handle) is link:
            del self.links[link.handle]
