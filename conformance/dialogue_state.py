"""What two peers have told each other on one connection, frame by frame, whoever they are.

Each side has what it said itself: its open, its sessions by its channels, its links by its handles, its
deliveries. Two halves of a session or link find each other by remote-channel (2.5.1) and by name (2.6.3).
Nothing is judged here: `amqp_broker.conformance.dialogue_rules` asks before a frame is noted.

Numbers are counted from the first that their sender named, so that serial numbers that wrap around compare as
plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from amqp_broker.frames import (
    RECEIVER,
    AmqpValue,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Frame,
    Message,
    Open,
    ProtocolHeader,
    TransactionalState,
    Transfer,
)
from amqp_broker.testing.peer import SERIAL, ids_of

CLIENT: Final = "client"
SERVER: Final = "server"
SHORT_PAYLOAD_OCTETS: Final = 1_024
"""A declare or discharge is shorter than this; of other messages only the size is kept."""


def distance(to: int, start: int) -> int:
    """How far one serial number is ahead of another, negative if it is behind (RFC 1982)."""
    return (to - start + SERIAL // 2) % SERIAL - SERIAL // 2


@attrs.define(eq=False)
class Delivery:
    """One delivery, as its sender and its receiver have spoken of it."""

    first: Transfer
    link: HalfLink
    octets: int = 0
    payload: bytes = b""
    settled_by_sender: bool = False
    settled_by_receiver: bool = False
    states: dict[bool, Any] = attrs.field(factory=dict)
    """The last state that each role told of it."""

    @property
    def settled(self) -> bool:
        """Whether one of both has settled it."""
        return self.settled_by_sender or self.settled_by_receiver


@attrs.define(eq=False)
class HalfLink:
    """What one side said of a link since its attach."""

    attach: Attach
    session: HalfSession
    partner: HalfLink | None = None
    answers: bool = False
    """Its attach came after that of the other side, and answers it."""
    count: int = 0
    """Deliveries begun, and credit drained away, of a side that sends (2.6.7)."""
    partial: Delivery | None = None
    by_tag: dict[bytes, Delivery] = attrs.field(factory=dict)
    flows: list[Flow] = attrs.field(factory=list)
    """Of a side that receives: before the other side had attached."""
    limit: int = 0
    """The delivery-limit that the receiving side told last (2.6.7), from the sender's first count."""
    highest_limit: int = 0
    drains: bool = False
    """Whether the receiving side has ever asked for a drain."""
    known_count: int = 0
    """The receiving side's last delivery-count."""

    @property
    def sends(self) -> bool:
        """Whether this side sends on the link."""
        return self.attach.role is not RECEIVER

    @property
    def initial_count(self) -> int:
        """The delivery-count that both sides count from."""
        return self.attach.initial_delivery_count or 0

    def on_flow(self, flow: Flow) -> None:
        """A flow of the side that receives."""
        self.drains = self.drains or bool(flow.drain)
        if self.partner is None:
            self.flows.append(flow)
            return
        start = self.partner.initial_count
        reached = 0 if flow.delivery_count is None else distance(flow.delivery_count, start)
        self.known_count = max(self.known_count, reached)
        if flow.link_credit is not None:
            self.limit = reached + flow.link_credit
            self.highest_limit = max(self.highest_limit, self.limit)


@attrs.define(eq=False)
class HalfSession:
    """What one side said on a channel since its begin."""

    channel: int
    begin: Begin
    partner: HalfSession | None = None
    links: dict[int, HalfLink] = attrs.field(factory=dict)
    sent: int = 0
    """Transfers of this side."""
    last_delivery_id: int | None = None
    deliveries: dict[int, Delivery] = attrs.field(factory=dict)
    window: int | None = None
    """How many transfers this side has room for, from the other's first id; None: not told yet (2.5.6)."""
    widest_window: int = 0
    known_sent: int | None = None
    """The last next-incoming-id of this side, from the other's first id."""
    unanswered: list[HalfLink] = attrs.field(factory=list)
    """Links whose attach the other side has not answered, also where they are detached already."""

    @property
    def next_outgoing_id(self) -> int:
        """The transfer-id of this side's next transfer."""
        return ((self.begin.next_outgoing_id or 0) + self.sent) % SERIAL

    def answered_by(self, attach: Attach) -> HalfLink | None:
        """The link which an attach of the other side answers: of the same name and the other role (2.6.3)."""
        for link in self.unanswered:
            if (link.attach.name, link.attach.role) == (attach.name, not attach.role):
                return link
        return None

    def told_room(self, reached: int, room: int) -> None:
        """This side told its window, counted from a transfer of the other side."""
        self.window = reached + room
        self.widest_window = max(self.widest_window, self.window)

    def find(self, role: bool, delivery_id: int) -> Delivery | None:
        """The delivery that a disposition of this side is about (2.7.6)."""
        of = self if role is not RECEIVER else self.partner
        return None if of is None else of.deliveries.get(delivery_id)


@attrs.define(eq=False)
class Side:
    """What one peer has said."""

    name: str
    header: ProtocolHeader | None = None
    """Its last protocol header."""
    open: Open | None = None
    close: Close | None = None
    sasl: list[Any] = attrs.field(factory=list)
    sessions: dict[int, HalfSession] = attrs.field(factory=dict)
    unanswered: list[HalfSession] = attrs.field(factory=list)
    """Sessions whose begin the other side has not answered, also where they are ended already."""
    txn_ids: dict[bytes, bool] = attrs.field(factory=dict)
    """That it declared, and whether each is live."""
    discharges: dict[int, bytes] = attrs.field(factory=dict)
    """Of a controller: the txn-ids of its discharges without an outcome, by delivery."""

    def answered_by(self, begin: Begin) -> HalfSession | None:
        """The first session without an answer on the channel that a begin of the other side names (2.5.1)."""
        return next((one for one in self.unanswered if one.channel == begin.remote_channel), None)


class Conversation:
    """Both sides of one connection."""

    def __init__(self) -> None:
        self.sides = {CLIENT: Side(CLIENT), SERVER: Side(SERVER)}
        self.over = False
        """The stream has ended, with or without close (2.4)."""
        self.elsewhere: list[Conversation] = []
        """Other connections of the same client to the same server, where somebody knows them."""

    @property
    def containers(self) -> tuple[str | None, ...]:
        """The container-ids of both sides."""
        return tuple(
            side.open.container_id if side.open is not None else None for side in self.sides.values()
        )

    def other(self, side: Side) -> Side:
        """The peer of one side."""
        return self.sides[SERVER if side.name == CLIENT else CLIENT]

    def note(self, side: Side, item: ProtocolHeader | Frame) -> None:
        """One header or frame of a side, which was judged before."""
        if isinstance(item, ProtocolHeader):
            side.header = item
            return
        said = item.performative
        if item.type == 1:
            side.sasl.append(said)
        elif isinstance(said, Open):
            side.open = side.open or said
        elif isinstance(said, Close):
            side.close = said
        elif isinstance(said, Begin):
            self._begin(side, item.channel, said)
        elif said is not None and (session := side.sessions.get(item.channel)) is not None:
            self._on_session(side, session, said, item.payload)

    def _begin(self, side: Side, channel: int, begin: Begin) -> None:
        session = side.sessions[channel] = HalfSession(channel, begin)
        if begin.remote_channel is None:
            side.unanswered.append(session)
        elif (partner := self.other(side).answered_by(begin)) is not None:
            self.other(side).unanswered.remove(partner)
            session.partner, partner.partner = partner, session
            session.told_room(0, begin.incoming_window or 0)
            partner.told_room(0, partner.begin.incoming_window or 0)

    def _on_session(self, side: Side, session: HalfSession, said: Any, payload: bytes) -> None:
        if isinstance(said, Attach):
            self._attach(session, said)
        elif isinstance(said, Detach):
            session.links.pop(said.handle, None)
        elif isinstance(said, End):
            del side.sessions[session.channel]
        elif isinstance(said, Flow):
            self._flow(session, said)
        elif isinstance(said, Transfer):
            self._transfer(side, session, said, payload)
        elif isinstance(said, Disposition):
            self._disposition(side, session, said)

    def _attach(self, session: HalfSession, attach: Attach) -> None:
        link = session.links[attach.handle] = HalfLink(attach, session)
        if session.partner is None or (partner := session.partner.answered_by(attach)) is None:
            session.unanswered.append(link)
            return
        session.partner.unanswered.remove(partner)
        link.partner, partner.partner, link.answers = partner, link, True
        receiving = partner if link.sends else link
        early, receiving.flows = receiving.flows, []
        for flow in early:
            receiving.on_flow(flow)

    def _flow(self, session: HalfSession, flow: Flow) -> None:
        partner = session.partner
        if flow.next_outgoing_id is not None:  # the other side takes it as it is (2.5.6)
            session.sent = max(
                session.sent, distance(flow.next_outgoing_id, session.begin.next_outgoing_id or 0)
            )
        if partner is not None:
            reached = 0
            if flow.next_incoming_id is not None:
                reached = distance(flow.next_incoming_id, partner.begin.next_outgoing_id or 0)
                session.known_sent = reached
            session.told_room(reached, flow.incoming_window or 0)
        link = None if flow.handle is None else session.links.get(flow.handle)
        if link is None:
            return
        if not link.sends:
            link.on_flow(flow)
        elif flow.delivery_count is not None:
            link.count = max(link.count, distance(flow.delivery_count, link.initial_count))

    def _transfer(self, side: Side, session: HalfSession, transfer: Transfer, payload: bytes) -> None:
        session.sent += 1
        link = session.links.get(transfer.handle)
        if link is None or not link.sends:
            return
        delivery = link.partial
        if delivery is None:
            delivery = Delivery(transfer, link)
            link.count += 1
            link.by_tag[bytes(transfer.delivery_tag or b"")] = delivery
            if transfer.delivery_id is not None:
                session.last_delivery_id = transfer.delivery_id
                session.deliveries[transfer.delivery_id] = delivery
        delivery.octets += len(payload)
        if delivery.octets <= SHORT_PAYLOAD_OCTETS:
            delivery.payload += payload
        delivery.settled_by_sender |= bool(transfer.settled or transfer.aborted)
        link.partial = delivery if transfer.more and not transfer.aborted else None
        if link.partial is None and isinstance(link.attach.target, Coordinator):
            self._asked(side, delivery)

    def _asked(self, side: Side, delivery: Delivery) -> None:
        # A controller's message to a coordinator is whole (4.2, 4.3).
        try:
            sections = Message(delivery.payload).body_sections()
        except Exception:  # what is no message asks for nothing
            return
        body = (
            getattr(sections[0], "value", None) if sections and isinstance(sections[0], AmqpValue) else None
        )
        if isinstance(body, Discharge) and isinstance(body.txn_id, bytes):
            side.discharges[id(delivery)] = body.txn_id

    def _disposition(self, side: Side, session: HalfSession, said: Disposition) -> None:
        if isinstance(said.state, Declared) and isinstance(said.state.txn_id, bytes):
            side.txn_ids[said.state.txn_id] = True
        for delivery_id in ids_of(said):
            delivery = session.find(said.role, delivery_id)
            if delivery is None:
                continue
            if said.state is not None:
                delivery.states[said.role] = said.state
                txn_id = self.other(side).discharges.pop(id(delivery), None)
                if txn_id is not None and type(said.state).__name__ == "Accepted":
                    side.txn_ids[txn_id] = False
            if said.settled and said.role is RECEIVER:
                delivery.settled_by_receiver = True
            elif said.settled:
                delivery.settled_by_sender = True

    def links(self, side: Side) -> Iterator[HalfLink]:
        """All links that a side has attached."""
        for session in side.sessions.values():
            yield from session.links.values()


def txn_id_of(state: object) -> bytes | None:
    """The txn-id that a delivery-state names (4.5.6)."""
    txn_id = state.txn_id if isinstance(state, TransactionalState) else None
    return txn_id if isinstance(txn_id, bytes) else None
