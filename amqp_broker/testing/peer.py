"""A frame-level peer without I/O: octets in, what came; what is put, octets out.

    peer.feed(octets) --> peer.received(): a protocol header or a frame, counted
    peer.put(performative) --> peer.take(): octets

It knows the codec of `frames` and nothing of `links`, so that a mistake in our engine does not meet the same
mistake on the other side. Ids, credit, windows and unsettled deliveries are counted from the frames that
pass in either direction: a frame that a test puts counts like one that a method here puts. What is put is
written as it is, however wrong; only `PeerSender.send` needs credit, unless `checks_credit` is False. What
comes has to belong to a session or a link that was begun or attached here (`stray`). Nothing is sent by
itself but the answer to a flow with echo of a link on which we receive, unless `answers_echo` is False.

A transport carries the octets: `BlockingPeer` over a socket. Where it can wait (`pump_until`), `begin`,
`attach_...`, `detach` and `end` return with the answer, else at once. The conformance suite has its own
(`amqp_broker.conformance.wire`), which looks at each frame that answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Accepted,
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
    Modified,
    Open,
    ProtocolHeader,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_frame,
)

MAX_FRAME_SIZE: Final = 65_536
"""In octets: the largest frame that we take, and that we make of a delivery."""
TRANSFER_ROOM_BYTES: Final = 64
"""Room for the frame header and the performative in a transfer that is split."""

SERIAL: Final = 2**32
"""Ids and delivery-counts are serial numbers of 32 bits (2.8.8)."""
ACCEPTED: Final = Accepted()
Outcome = Accepted | Rejected | Released | Modified | Received | TransactionalState
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


class Delivery:
    """One incoming delivery: `payload` is the whole message, `state` the last that a transfer of it had,
    `transfer` its first of so many `frames`.
    """

    __slots__ = ("delivery_id", "delivery_tag", "frames", "payload", "settled", "state", "transfer")

    def __init__(self, transfer: Transfer, payload: bytes = b"") -> None:
        assert transfer.delivery_id is not None, "the first transfer of a delivery has no delivery-id"
        self.transfer = transfer
        self.delivery_id = transfer.delivery_id
        self.delivery_tag = transfer.delivery_tag or b""
        self.payload = payload
        self.frames = 0
        self.settled = False
        self.state: object = None


class PeerLink:
    """One of our link endpoints, with its flow state (2.6.7)."""

    role: bool
    """Ours."""

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        self.session = session
        self.name = attach.name
        self.handle = attach.handle
        self.remote_attach: Attach | None = None
        self.detached: Detach | None = None
        """The detach of the other side."""
        self.detach_sent = False
        self.credit = 0
        self.drain = False
        self.delivery_count = attach.initial_delivery_count or 0

    @property
    def remote_terminus(self) -> Any:
        """The other side's terminus as it answered our attach: the source if we receive, else the target."""
        if self.remote_attach is None:
            return None
        return self.remote_attach.source if self.role == RECEIVER else self.remote_attach.target

    @property
    def address(self) -> str:
        """The address of that terminus; empty without one."""
        return str(getattr(self.remote_terminus, "address", None) or "")

    def is_answered_by(self, attach: Attach) -> bool:
        """Whether this attach is the answer to ours (2.6.3)."""
        return self.remote_attach is None and (attach.name, attach.role) == (self.name, not self.role)

    def on_attach(self, attach: Attach) -> None:
        """The answer to our attach."""
        self.remote_attach = attach

    def detach(self, *, closed: bool = True) -> Detach | None:
        """Detach, or close the link; returns the detach of the other side where it was waited for."""
        self.session.put(Detach(handle=self.handle, closed=closed))
        self.session.connection.pump_until(lambda: self.detached is not None)
        return self.detached


class PeerSender(PeerLink):
    """A link on which we send."""

    role = SENDER

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.outcomes: dict[int, object] = {}
        """The latest delivery-state of each delivery that has one, by delivery-id."""
        self.settled: deque[int] = deque()
        """Delivery-ids in the order in which the other side settled them."""
        self.incomplete: int | None = None
        """The delivery-id of a delivery of which more is to be sent."""

    @property
    def may_send(self) -> bool:
        """There is credit, and room in the window of the other side."""
        return self.credit > 0 and self.session.remote_incoming_window > 0

    def send(
        self,
        payload: bytes,
        *,
        txn_id: bytes | None = None,
        more: bool = False,
        frame_octets: int | None = None,
        **fields: Any,
    ) -> int:
        """Put one delivery, in as many frames as it takes; returns its delivery-id. Needs `may_send`.

        With a txn-id it is posted in that transaction. With `more` the delivery goes on with `send_more`.
        `frame_octets` is the most payload of a frame, by default what the other side takes. `fields` change
        the first transfer; a `state` among them stands in each (4.4.1).
        """
        session = self.session
        assert self.may_send or not session.connection.checks_credit, (
            f"link {self.name}: credit {self.credit}, window {session.remote_incoming_window}"
        )
        number = session.next_delivery_id
        state = fields.pop("state", None) if txn_id is None else TransactionalState(txn_id=txn_id)
        first: dict[str, Any] = {"delivery_id": number, "delivery_tag": number.to_bytes(4, "big")}
        first |= {"message_format": 0, "settled": False} | fields
        largest = min(session.connection.remote_max_frame_size, MAX_FRAME_SIZE)
        room = frame_octets or largest - TRANSFER_ROOM_BYTES
        for at in range(0, max(len(payload), 1), room):
            goes_on = more or at + room < len(payload)
            transfer = Transfer(handle=self.handle, more=goes_on, state=state, **{} if at else first)
            session.put(transfer, payload[at : at + room])
        return number

    def send_more(self, payload: bytes = b"", **fields: Any) -> None:
        """Put one more frame of a delivery, its last unless there is `more`; `aborted` takes it back."""
        self.session.put(Transfer(handle=self.handle, **fields), payload)

    def count(self, transfer: Transfer) -> None:
        """Count a transfer of ours. A delivery takes its credit with its first frame (2.6.7)."""
        session = self.session
        if self.incomplete is None and transfer.delivery_id is not None:
            self.incomplete = transfer.delivery_id
            session.next_delivery_id = (transfer.delivery_id + 1) % SERIAL
            self.delivery_count = (self.delivery_count + 1) % SERIAL
            self.credit -= 1
            if not transfer.settled:
                session.sent_unsettled[transfer.delivery_id] = self
        if transfer.aborted and self.incomplete is not None:
            session.sent_unsettled.pop(self.incomplete, None)
        if transfer.aborted or not transfer.more:
            self.incomplete = None

    def on_flow(self, flow: Flow) -> None:
        """What we may send is counted from what the other side had received."""
        received = flow.delivery_count or 0
        self.credit = (flow.link_credit or 0) - (self.delivery_count - received) % SERIAL

    def on_outcome(self, delivery_id: int, disposition: Disposition) -> None:
        """The other side's state of one delivery of ours that was not settled."""
        self.outcomes[delivery_id] = disposition.state
        if disposition.settled:
            del self.session.sent_unsettled[delivery_id]
            self.settled.append(delivery_id)


class PeerReceiver(PeerLink):
    """A link on which we receive."""

    role = RECEIVER

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.deliveries: deque[Delivery] = deque()
        """Complete deliveries in order; the test takes them."""
        self.confirmed: deque[int] = deque()
        """Delivery-ids in the order in which the other side settled them after our unsettled outcome."""
        self.partial: Delivery | None = None
        """The delivery of which more is to come."""

    @property
    def used_up(self) -> bool:
        """No credit is left, and each delivery that took some is complete. `credit` alone does not say that,
        because a delivery takes its credit with its first frame.
        """
        return self.credit <= 0 and self.partial is None

    def drain_all(self, credit: int) -> None:
        """Ask for what the other side has, up to `credit`, and wait until all of that is in `deliveries`."""
        self.flow(credit, drain=True)
        self.session.connection.pump_until(lambda: self.used_up)

    def flow(self, credit: int, *, txn_id: bytes | None = None, **fields: Any) -> None:
        """Set the credit; with `drain` the other side sends what it has and then uses up the rest.

        With a txn-id what is sent from now on is acquired in that transaction; b"" ends that. `fields` change
        the flow.
        """
        properties = None if txn_id is None else {"txn-id": txn_id} if txn_id else {}
        values = {"link_credit": credit, "drain": False, "properties": properties}
        self.session.flow(self, **values | fields)

    def settle(
        self,
        deliveries: Delivery | Iterable[Delivery | int],
        state: Outcome = ACCEPTED,
        *,
        settled: bool = True,
    ) -> None:
        """Give deliveries (or delivery-ids) an outcome: one disposition for each run of consecutive ids."""
        given = [deliveries] if isinstance(deliveries, Delivery) else deliveries
        ids = [item if isinstance(item, int) else item.delivery_id for item in given]
        start = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or ids[end] != ids[end - 1] + 1:
                last = ids[end - 1] if end - start > 1 else None
                fields: Any = {"settled": settled, "state": state}
                self.session.put(Disposition(role=RECEIVER, first=ids[start], last=last, **fields))
                start = end

    def on_attach(self, attach: Attach) -> None:
        """The answer to our attach; the sender's delivery-count is the one that both count from."""
        super().on_attach(attach)
        self.delivery_count = attach.initial_delivery_count or 0

    def on_flow(self, flow: Flow) -> None:
        """A drained sender advances its delivery-count until no credit is left (2.6.7). Echo is answered."""
        if self.drain and flow.delivery_count is not None:
            self.credit = max(0, self.credit - (flow.delivery_count - self.delivery_count) % SERIAL)
            self.delivery_count = flow.delivery_count
        if flow.echo and self.session.connection.answers_echo:
            self.session.flow(self)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """One transfer of the other side."""
        delivery = self.partial
        if delivery is None:
            delivery = Delivery(transfer)
            # With its first frame: a flow between its frames has counted it, too (2.6.7).
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % SERIAL
        delivery.payload += payload
        delivery.frames += 1
        delivery.settled |= bool(transfer.settled)
        delivery.state = delivery.state if transfer.state is None else transfer.state
        self.partial = delivery if transfer.more and not transfer.aborted else None
        if self.partial is None and not transfer.aborted:
            self.deliveries.append(delivery)
            if not delivery.settled:
                self.session.received_unsettled[delivery.delivery_id] = self
