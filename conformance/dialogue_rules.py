"""The standard's rules of a dialogue as one table, over what both peers have said.

Each rule is a row of the requirements and a function: what a peer is about to say, held against all that was
said before. The same table judges a broker, the suite's own peer, and a recorded dialogue of anybody.

    dialogue = Dialogue(observer=CLIENT)
    for breach in dialogue.octets(CLIENT, octets): ...

A rule names only what is wrong wherever it was watched: what one peer had not read yet it may not have known.
Where the watcher sits beside a peer (`observer`), that peer has read all that came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import attrs

from amqp_broker.conformance.dialogue_state import (
    CLIENT,
    SERVER,
    Conversation,
    HalfLink,
    HalfSession,
    Side,
    distance,
    txn_id_of,
)
from amqp_broker.conformance.requirements import Requirement, load_requirements
from amqp_broker.frames import (
    AMQP_HEADER,
    MIN_MAX_FRAME_SIZE,
    RECEIVER,
    Accepted,
    AmqpError,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    DecodeError,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    FrameReader,
    Modified,
    Open,
    ProtocolHeader,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)
from amqp_broker.frames.sasl import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from amqp_broker.testing.peer import ids_of

ANY_FRAME: Final = object
MAX_TAG_OCTETS: Final = 32
"""2.8.7, and of a transaction-id 4.5.4."""
LETTERS: Final = AMQP_HEADER[:4]
FRAME_HEADER_OCTETS: Final = len(AMQP_HEADER)
"""Of a frame's header and of a protocol header alike."""
TERMINAL: Final = (Accepted, Rejected, Released, Modified, Declared)
"""Outcomes that do not change any more (3.4)."""
SASL_BY: Final = {SaslMechanisms: SERVER, SaslInit: CLIENT, SaslChallenge: SERVER, SaslResponse: CLIENT,
                  SaslOutcome: SERVER}  # fmt: skip


@attrs.frozen
class Breach:
    """One rule broken: by whom, with which header or frame, counted from 1 in both directions."""

    rule: str
    by: str
    number: int
    text: str
    level: str

    @property
    def requirement(self) -> Requirement:
        """The row that it breaks."""
        return load_requirements()[self.rule]

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@attrs.frozen
class Now:
    """What is about to be said, and all that was said before."""

    conversation: Conversation
    side: Side
    other: Side
    item: ProtocolHeader | Frame
    octets: int
    """Of the frame on the wire; 0 where nobody counted them."""
    knows_all: bool
    """Whether this side has read whatever was said before."""

    @property
    def channel(self) -> int:
        """Of the frame."""
        return getattr(self.item, "channel", 0)

    @property
    def said(self) -> Any:
        """The performative; None in an empty frame and a header."""
        return getattr(self.item, "performative", None)

    @property
    def payload(self) -> bytes:
        """What follows the performative."""
        return getattr(self.item, "payload", b"")

    @property
    def session(self) -> HalfSession | None:
        """This side's session on the frame's channel."""
        return self.side.sessions.get(self.channel)

    @property
    def link(self) -> HalfLink | None:
        """This side's link of the frame's handle."""
        session, handle = self.session, getattr(self.said, "handle", None)
        return None if session is None or handle is None else session.links.get(handle)


Check = Callable[[Now], str | None]
Checks = TypeVar("Checks", bound=Check)


@attrs.frozen
class Rule:
    """A row, of which performatives it is, and what says how one breaks it."""

    row: str
    of: tuple[type, ...]
    check: Check
    level: str = ""
    """Where the row has more than one key word: the one that is checked."""


RULES: list[Rule] = []


def rule(row: str, *of: type, level: str = "") -> Callable[[Checks], Checks]:
    """Puts a check into the table, for frames with these performatives (object: any frame and header)."""

    def register(check: Checks) -> Checks:
        RULES.append(Rule(row, of, check, level))
        return check

    return register


class Dialogue:
    """One connection that is watched. `breaches` has what was found, in order."""

    def __init__(self, observer: str = "") -> None:
        self.observer = observer
        self.conversation = Conversation()
        self.breaches: list[Breach] = []
        self.count = 0
        """Headers and frames so far, of both directions."""
        self._streams = {CLIENT: Stream(), SERVER: Stream()}

    def octets(self, by: str, octets: bytes) -> list[Breach]:
        """Judges what one side wrote; what is no whole frame yet waits for its rest."""
        found: list[Breach] = []
        for item, size in self._streams[by].feed(octets):
            found += self.malformed(by, item) if isinstance(item, AmqpError) else self.item(by, item, size)
        return found

    def item(self, by: str, item: ProtocolHeader | Frame, octets: int = 0) -> list[Breach]:
        """Judges one header or frame, and notes it."""
        self.count += 1
        side = self.conversation.sides[by]
        other = self.conversation.other(side)
        now = Now(self.conversation, side, other, item, octets, by == self.observer)
        found = []
        for one in RULES:
            if not isinstance(now.said if isinstance(item, Frame) and now.said is not None else item, one.of):
                continue
            if (text := one.check(now)) is not None:
                found.append(self._breach(one.row, by, text, one.level))
        self.conversation.note(side, item)
        self.breaches += found
        return found

    def malformed(self, by: str, error: AmqpError) -> list[Breach]:
        """Notes octets that are no frame: nothing behind them can be told."""
        self.count += 1
        row = "2.3.2-01" if isinstance(error, DecodeError) else "2.3.1-small-size"
        found = [self._breach(row, by, f"{error.condition}: {error.description}", "")]
        self.breaches += found
        return found

    def _breach(self, row: str, by: str, text: str, level: str) -> Breach:
        return Breach(row, by, self.count, text, level or load_requirements()[row].level)


class Stream:
    """One direction as octets: cut into headers and frames."""

    def __init__(self) -> None:
        self._data = b""
        self.lost = False

    def feed(self, octets: bytes) -> Iterator[tuple[ProtocolHeader | Frame | AmqpError, int]]:
        """Gives what is whole now, with its size; an error once, and nothing after a broken frame header."""
        self._data += octets
        while not self.lost and len(self._data) >= FRAME_HEADER_OCTETS:
            is_header = self._data.startswith(LETTERS)
            size = FRAME_HEADER_OCTETS if is_header else int.from_bytes(self._data[:4], "big")
            if FRAME_HEADER_OCTETS <= size > len(self._data):
                return
            reader = FrameReader(0xFFFF_FFFF)
            if is_header:
                reader.expect_header()
            reader.feed(self._data[: max(size, FRAME_HEADER_OCTETS)])
            self._data = self._data[max(size, FRAME_HEADER_OCTETS) :]
            try:
                item = reader.next()
            except AmqpError as error:
                self.lost = not isinstance(error, DecodeError)
                yield error, size
                continue
            assert item is not None, "a whole frame was fed"
            yield item, size


# ---- connections (2.2, 2.3, 2.4) ---------------------------------------------------------------------------


def _is_amqp(now: Now) -> bool:
    return isinstance(now.item, Frame) and now.item.type == 0


@rule("2.2-01", Frame, *SASL_BY, Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
def _after_a_header(now: Now) -> str | None:
    header = now.side.header
    wanted = 3 if isinstance(now.item, Frame) and now.item.type == 1 else 0
    if header is None:
        return "a frame came before a protocol header"
    if header.protocol_id != wanted:
        return f"a frame of type {1 if wanted else 0} came after a header of protocol {header.protocol_id}"
    return None


@rule("2.4.1-01", Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
def _after_open(now: Now) -> str | None:
    return "a frame came before open" if now.side.open is None else None


@rule("2.7.1-01", Open)
def _one_open(now: Now) -> str | None:
    return "a second open came" if now.side.open is not None else None


@rule("2.4.3-02", ANY_FRAME)
def _nothing_after_close(now: Now) -> str | None:
    if now.side.close is None or (isinstance(now.item, Frame) and now.item.performative is None):
        return None
    return "it came after close, which must be the last thing ever written"


@rule("2.4.5-06", Frame)
def _no_heartbeat_after_close(now: Now) -> str | None:
    return "an empty frame came after close" if now.side.close is not None else None


@rule("2.4.1-channel-0", Open)
def _open_on_channel_0(now: Now) -> str | None:
    return f"open came on channel {now.channel}" if now.channel else None


@rule("2.4.3-04", Close, level="SHOULD")
def _close_on_channel_0(now: Now) -> str | None:
    return f"close came on channel {now.channel}" if now.channel else None


@rule("2.7.1-04", ANY_FRAME)
def _frame_size(now: Now) -> str | None:
    if not _is_amqp(now):
        return None
    opened = now.other.open
    limit = MIN_MAX_FRAME_SIZE if opened is None else max(opened.max_frame_size or 0, MIN_MAX_FRAME_SIZE)
    return f"a frame of {now.octets} octets where the partner takes {limit}" if now.octets > limit else None


@rule("2.7.1-07", ANY_FRAME)
def _channel(now: Now) -> str | None:
    if not _is_amqp(now) or isinstance(now.said, (Open, Close)) or now.other.open is None:
        return None
    limit = now.other.open.channel_max
    return f"channel {now.channel} where the partner takes up to {limit}" if now.channel > limit else None


# ---- SASL (5.3) --------------------------------------------------------------------------------------------


@rule("5.3.1-max-size", *SASL_BY)
def _sasl_size(now: Now) -> str | None:
    return f"a SASL frame of {now.octets} octets" if now.octets > MIN_MAX_FRAME_SIZE else None


@rule("5.3.1-empty", Frame)
def _sasl_empty(now: Now) -> str | None:
    return "an empty SASL frame" if not _is_amqp(now) else None


@rule("5.3.2-03", *SASL_BY)
def _sasl_turns(now: Now) -> str | None:
    kind = type(now.said)
    if SASL_BY[kind] != now.side.name:
        return f"the {now.side.name} sent {kind.__name__}"
    asked = sum(isinstance(said, SaslChallenge) for said in now.other.sasl)
    answered = sum(isinstance(said, SaslResponse) for said in now.side.sasl)
    begun = any(
        isinstance(said, SaslInit) for said in (now.side if SASL_BY[kind] == CLIENT else now.other).sasl
    )
    ended = any(isinstance(said, SaslOutcome) for said in now.side.sasl)
    wrong = {
        SaslMechanisms: bool(now.side.sasl),
        SaslInit: bool(now.side.sasl),
        SaslResponse: not begun or answered >= asked,
        SaslChallenge: not begun or ended,
        SaslOutcome: not begun or ended,
    }
    return f"{kind.__name__} came out of turn" if wrong[kind] else None


@rule("5.3.3.1-not-empty", SaslMechanisms)
def _some_mechanism(now: Now) -> str | None:
    return None if now.said.sasl_server_mechanisms else "no mechanism is offered"


@rule("5.3.2-02", SaslInit)
def _offered_mechanism(now: Now) -> str | None:
    offered = [one for said in now.other.sasl if isinstance(said, SaslMechanisms)
               for one in said.sasl_server_mechanisms or ()]  # fmt: skip
    if offered and now.said.mechanism not in offered:
        return f"mechanism {now.said.mechanism} is not among {', '.join(map(str, offered))}"
    return None


# ---- sessions (2.5, 2.7.2) ---------------------------------------------------------------------------------


@rule("2.5.1-allocates", Begin)
def _unused_channel(now: Now) -> str | None:
    return f"channel {now.channel} has a session already" if now.session is not None else None


@rule("2.7.2-02", Begin)
def _remote_channel(now: Now) -> str | None:
    remote = now.said.remote_channel
    if remote is None:
        return None
    return (
        None
        if now.other.answered_by(now.said)
        else f"remote-channel {remote} has no session without an answer"
    )


@rule("2.5.5-unmapped", Attach, Flow, Transfer, Disposition, Detach, End)
def _on_a_session(now: Now) -> str | None:
    return f"channel {now.channel} has no session" if now.session is None else None


@rule("2.5.6-incoming-window", Transfer)
def _window(now: Now) -> str | None:
    session = now.session
    partner = None if session is None else session.partner
    if session is None or partner is None or partner.window is None:
        return None
    room = partner.window if now.knows_all else partner.widest_window
    return (
        f"transfer number {session.sent + 1} where the window ends at {room}"
        if session.sent >= room
        else None
    )


@rule("2.7.4-next-incoming-id", Flow)
def _next_incoming_id(now: Now) -> str | None:
    session, reached = now.session, now.said.next_incoming_id
    if session is None:
        return None
    partner = session.partner
    if partner is None:
        return "next-incoming-id is set before the partner's begin came" if reached is not None else None
    if reached is None:
        answers = session.begin.remote_channel is not None or session.known_sent is not None
        return "next-incoming-id is not set" if now.knows_all or answers else None
    got = distance(reached, partner.begin.next_outgoing_id or 0)
    if not (session.known_sent or 0) <= got <= partner.sent:
        return (
            f"next-incoming-id is {got} transfers from the first, where the partner has sent {partner.sent}"
            f" and {session.known_sent or 0} were told before"
        )
    return None


@rule("2.5.6-next-outgoing-id", Flow)
def _next_outgoing_id(now: Now) -> str | None:
    session = now.session
    if session is None or now.said.next_outgoing_id == session.next_outgoing_id:
        return None
    return f"next-outgoing-id is {now.said.next_outgoing_id}, not {session.next_outgoing_id}"


# ---- links (2.6, 2.7.3, 3.5) -------------------------------------------------------------------------------


@rule("2.7.3-01", Attach)
def _free_handle(now: Now) -> str | None:
    return f"handle {now.said.handle} is in use for another link" if now.link is not None else None


@rule("2.7.2-03", Attach)
def _handle_max(now: Now) -> str | None:
    partner = None if now.session is None else now.session.partner
    if partner is None or now.said.handle <= partner.begin.handle_max:
        return None
    return f"handle {now.said.handle} where the partner takes up to {partner.begin.handle_max}"


@rule("2.7.3-08", Attach)
def _initial_count(now: Now) -> str | None:
    lacks = now.said.role is not RECEIVER and now.said.initial_delivery_count is None
    return "initial-delivery-count is not set where role is sender" if lacks else None


@rule("2.6.1-01", Attach)
def _link_name(now: Now) -> str | None:
    said = now.said
    for link in now.conversation.links(now.side):
        if (link.attach.name, link.attach.role) == (said.name, said.role):
            return f"a link {said.name!r} of this direction is attached already"
    return None


@rule("2.5-one-session", Attach)
def _link_elsewhere(now: Now) -> str | None:
    here, said = now.conversation, now.said
    if now.session is None or (now.session.partner is not None and now.session.partner.answered_by(said)):
        return None
    for there in here.elsewhere:
        side = there.sides[now.side.name]
        if there is here or there.over or side.close is not None or there.containers != here.containers:
            continue
        for link in there.links(side):
            if (link.attach.name, link.attach.role) == (said.name, said.role):
                return f"the link {said.name!r} of these containers is attached over another connection"
    return None


@rule("2.7.3-05", Attach)
def _unsettled_keys(now: Now) -> str | None:
    return "a key of unsettled is null" if None in (now.said.unsettled or ()) else None


@rule("3.5.3-01", Attach)
def _wished_source(now: Now) -> str | None:
    source = now.said.source
    wrong = now.said.role is RECEIVER and getattr(source, "dynamic", False) and source.address is not None
    return "a receiver asks for a dynamic source with an address" if wrong else None


@rule("3.5.3-02", Attach)
def _made_source(now: Now) -> str | None:
    source = now.said.source
    wrong = now.said.role is not RECEIVER and getattr(source, "dynamic", False) and source.address is None
    return "the address of a dynamic source is not set" if wrong else None


@rule("3.5.4-01", Attach)
def _wished_target(now: Now) -> str | None:
    target = now.said.target
    wrong = now.said.role is not RECEIVER and getattr(target, "dynamic", False) and target.address is not None
    return "a sender asks for a dynamic target with an address" if wrong else None


@rule("3.5.4-02", Attach)
def _made_target(now: Now) -> str | None:
    target = now.said.target
    wrong = now.said.role is RECEIVER and getattr(target, "dynamic", False) and target.address is None
    return "the address of a dynamic target is not set" if wrong else None


@rule("3.5.3-06", Attach)
def _node_properties(now: Now) -> str | None:
    for terminus in (now.said.source, now.said.target):
        if getattr(terminus, "dynamic_node_properties", None) and not getattr(terminus, "dynamic", False):
            return "dynamic-node-properties are set where dynamic is not true"
    return None


@rule("2.7.7-unmaps", Detach)
def _attached_handle(now: Now) -> str | None:
    lacks = now.session is not None and now.link is None
    return f"handle {now.said.handle} is not attached" if lacks else None


@rule("2.8.17-unattached-handle", Flow)
def _handle_of_flow(now: Now) -> str | None:
    lacks = now.session is not None and now.said.handle is not None and now.link is None
    return f"flow names handle {now.said.handle}, which is not attached" if lacks else None


def _set_without_handle(field: str) -> Check:
    def check(now: Now) -> str | None:
        value = getattr(now.said, field)
        if now.said.handle is not None or value is None or value is False:
            return None
        return f"{field.replace('_', '-')} is set where handle is not"

    return check


for _row, _field in (
    ("2.7.4-02", "delivery_count"),
    ("2.7.4-06", "link_credit"),
    ("2.7.4-07", "available"),
    ("2.7.4-08", "drain"),
    ("2.7.4-properties", "properties"),
):
    rule(_row, Flow)(_set_without_handle(_field))


@rule("2.7.4-03", Flow)
def _count_of_sender(now: Now) -> str | None:
    link, said = now.link, now.said
    if link is None or not link.sends:
        return None
    if said.delivery_count is None:
        return "a sender's delivery-count is not set"
    told = distance(said.delivery_count, link.initial_count)
    fewest = link.count - (link.partial is not None)  # some count a delivery with its last transfer
    limit = link.partner.highest_limit if link.partner is not None else 0
    drained = link.partner is not None and link.partner.drains and link.count <= told <= limit
    if fewest <= told <= link.count or drained:
        return None
    return f"delivery-count is {told} from the first, not {link.count}"


@rule("2.7.4-04", Flow)
def _count_of_receiver(now: Now) -> str | None:
    link, said = now.link, now.said
    if link is None or link.sends:
        return None
    if link.partner is None:
        return None
    if said.delivery_count is None:
        known = now.knows_all or link.answers or link.known_count
        return "delivery-count is not set after the sender's attach" if known else None
    told, count = distance(said.delivery_count, link.partner.initial_count), link.partner.count
    if link.known_count <= told <= count:
        return None
    return f"delivery-count is {told} from the first, where the sender is at {count}"


@rule("2.7.4-05", Flow)
def _count_too_early(now: Now) -> str | None:
    link = now.link
    early = link is not None and not link.sends and link.partner is None
    return (
        "delivery-count is set before the sender's attach"
        if early and now.said.delivery_count is not None
        else None
    )


# ---- deliveries (2.6.12, 2.6.14, 2.7.5, 2.7.6) -------------------------------------------------------------


@rule("2.7.5-handle", Transfer)
def _handle_of_transfer(now: Now) -> str | None:
    if now.session is None or (now.link is not None and now.link.sends):
        return None
    why = "is not attached" if now.link is None else "is of a link on which this side receives"
    return f"transfer names handle {now.said.handle}, which {why}"


def _sending(now: Now, *, first: bool) -> HalfLink | None:
    """The link of a transfer, which is the first of a delivery or goes on with one."""
    link = now.link
    return link if link is not None and link.sends and (link.partial is None) == first else None


for _row, _field in (
    ("2.7.5-01", "delivery_id"),
    ("2.7.5-02", "delivery_tag"),
    ("2.7.5-03", "message_format"),
):

    def _on_the_first(now: Now, field: str = _field) -> str | None:
        lacks = _sending(now, first=True) is not None and getattr(now.said, field) is None
        return f"{field.replace('_', '-')} is not set on the first transfer of a delivery" if lacks else None

    rule(_row, Transfer)(_on_the_first)


for _row, _field in (
    ("2.6.14-01", "delivery_id"),
    ("2.7.5-same-tag", "delivery_tag"),
    ("2.7.5-same-format", "message_format"),
):

    def _on_the_next(now: Now, field: str = _field) -> str | None:
        link = _sending(now, first=False)
        got = getattr(now.said, field)
        if (
            link is None
            or link.partial is None
            or got in (None, (wanted := getattr(link.partial.first, field)))
        ):
            return None
        return f"{field.replace('_', '-')} {got!r} came before the delivery with {wanted!r} was complete"

    rule(_row, Transfer)(_on_the_next)


@rule("2.8.7-tag", Transfer)
def _tag_length(now: Now) -> str | None:
    octets = len(now.said.delivery_tag or b"")
    return f"a delivery-tag of {octets} octets" if octets > MAX_TAG_OCTETS else None


@rule("2.6.12-delivery-id", Transfer)
def _delivery_id(now: Now) -> str | None:
    session, number = now.session, now.said.delivery_id
    if (
        session is None
        or number is None
        or _sending(now, first=True) is None
        or session.last_delivery_id is None
    ):
        return None
    if distance(number, session.last_delivery_id) > 0:
        return None
    return f"delivery-id {number} comes after {session.last_delivery_id}"


@rule("2.6.12-02", Transfer)
def _tag(now: Now) -> str | None:
    tag = now.said.delivery_tag
    link = _sending(now, first=True)
    if link is None or tag is None or now.said.resume:
        return None
    before = link.by_tag.get(bytes(tag))
    if before is None or before.settled:
        return None
    return f"delivery-tag {tag!r} is that of delivery {before.first.delivery_id}, which is not settled"


@rule("2.6.7-illegal", Transfer)
def _credit(now: Now) -> str | None:
    link = _sending(now, first=True)
    if link is None or link.partner is None:
        return "a transfer before any credit" if link is not None and now.knows_all else None
    limit = link.partner.limit if now.knows_all else link.partner.highest_limit
    return (
        f"delivery number {link.count + 1} where the delivery-limit is {limit}"
        if link.count >= limit
        else None
    )


@rule("2.7.5-06", Transfer)
def _settled_mode(now: Now) -> str | None:
    link = now.link
    if (
        link is None
        or not link.sends
        or link.attach.snd_settle_mode != 1
        or now.said.more
        or now.said.aborted
    ):
        return None
    before = link.partial is not None and link.partial.settled_by_sender
    return None if before or now.said.settled else "an unsettled delivery where snd-settle-mode is settled"


@rule("2.7.5-07", Transfer)
def _unsettled_mode(now: Now) -> str | None:
    link = now.link
    wrong = link is not None and link.sends and link.attach.snd_settle_mode == 0 and now.said.settled
    wrong = wrong and not now.said.resume and not now.said.aborted
    return "a settled delivery where snd-settle-mode is unsettled" if wrong else None


@rule("2.7.5-mode-first", Transfer)
def _second_where_first(now: Now) -> str | None:
    link = now.link
    partner = None if link is None else link.partner
    if partner is None or partner.attach.rcv_settle_mode != 0 or now.said.rcv_settle_mode != 1:
        return None
    return "rcv-settle-mode second on a transfer where first was negotiated"


@rule("2.7.3-max-message-size", Transfer)
def _message_size(now: Now) -> str | None:
    link = now.link
    if link is None or not link.sends or link.partner is None:
        return None
    octets = len(now.payload) + (link.partial.octets if link.partial is not None else 0)
    limit = link.partner.attach.max_message_size or 0
    return (
        f"a message of {octets} octets where max-message-size is {limit}"
        if limit and octets > limit
        else None
    )


@rule("2.7.6-range", Disposition)
def _known_deliveries(now: Now) -> str | None:
    session, said = now.session, now.said
    of = session if session is None or said.role is not RECEIVER else session.partner
    if session is None:
        return None
    last = said.first if said.last is None else said.last
    if distance(last, said.first) < 0:
        return f"last {last} is before first {said.first}"
    if of is None or of.last_delivery_id is None or distance(last, of.last_delivery_id) > 0:
        sent = (
            "none was sent"
            if of is None or of.last_delivery_id is None
            else f"the last is {of.last_delivery_id}"
        )
        return f"a disposition of delivery {last}, where {sent}"
    return None


def _touched(now: Now) -> Iterator[Any]:
    """The deliveries that a disposition is about, as far as they were seen."""
    session = now.session
    for number in ids_of(now.said) if session is not None else ():
        if session is not None and (delivery := session.find(now.said.role, number)) is not None:
            yield delivery


@rule("3.4-terminal", Disposition)
def _terminal(now: Now) -> str | None:
    said = now.said
    for delivery in _touched(now):
        before = delivery.states.get(said.role)
        if isinstance(before, TERMINAL) and said.state is not None and said.state != before:
            return f"{type(before).__name__.lower()} becomes {type(said.state).__name__.lower()}"
    return None


@rule("2.7.5-11", Disposition)
def _settles_second(now: Now) -> str | None:
    if now.said.role is not RECEIVER or not now.said.settled:
        return None
    for delivery in _touched(now):
        receiving = delivery.link.partner
        mode = delivery.first.rcv_settle_mode
        mode = receiving.attach.rcv_settle_mode if mode is None and receiving is not None else mode
        resumed = delivery.first.resume  # what the sender restates is echoed and settled (3.4.6)
        if mode == 1 and not resumed and not delivery.settled_by_sender:
            return "a receiver settles before the sender where rcv-settle-mode is second"
    return None


@rule("3.5.3-outcomes", Disposition)
def _offered_outcome(now: Now) -> str | None:
    if now.said.role is not RECEIVER:
        return None
    state = now.said.state
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    if not isinstance(outcome, (Accepted, Rejected, Released, Modified)):
        return None
    name = f"amqp:{type(outcome).__name__.lower()}:list"
    for delivery in _touched(now):
        offered = [str(one) for one in getattr(delivery.link.attach.source, "outcomes", None) or ()]
        if offered and name not in offered:
            return f"the outcome {name} is not among {', '.join(offered)}"
    return None


# ---- transactions (4) --------------------------------------------------------------------------------------


@rule("4.5.4-length", Disposition)
def _txn_id_length(now: Now) -> str | None:
    txn_id = now.said.state.txn_id if isinstance(now.said.state, Declared) else b""
    if isinstance(txn_id, bytes) and len(txn_id) <= MAX_TAG_OCTETS:
        return None
    return f"a txn-id of more than {MAX_TAG_OCTETS} octets, or none: {txn_id!r}"


@rule("4.4-01", Transfer, Disposition)
def _declared(now: Now) -> str | None:
    txn_id = txn_id_of(now.said.state)
    if txn_id is None or txn_id in now.side.txn_ids or txn_id in now.other.txn_ids:
        return None
    return f"the txn-id {txn_id!r} was never declared on this connection"


@rule("4.5.3-discharge", Transfer, Disposition)
def _live(now: Now) -> str | None:
    txn_id = txn_id_of(now.said.state)
    if txn_id is None or now.side.name != CLIENT or now.other.txn_ids.get(txn_id, True):
        return None
    return f"the txn-id {txn_id!r} was discharged"


@rule("4.2-03", Transfer)
def _unsettled_to_coordinator(now: Now) -> str | None:
    link = now.link
    wrong = (
        link is not None and link.sends and isinstance(link.attach.target, Coordinator) and now.said.settled
    )
    return "a settled message to the coordinator" if wrong else None
