"""What one group changes of half messages, streams, events, cursors and termini, gathered from its verbs.

Each key has one entry, as the last verb left it: a half message that is held and committed in the same group
never has its body stored. Nothing here is durable, so that abandoning a group is forgetting it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

import attrs

from amqp_broker.persistence.halves import (
    DECIDED,
    LAST_EPOCH,
    OPEN,
    Advance,
    Decide,
    DecideEpoch,
    Decision,
    Event,
    ForgetStream,
    Half,
    Hold,
    Journal,
    Reschedule,
    Stream,
    keeps_body,
)
from amqp_broker.persistence.retention import Cursor, ForgetCursor, MoveCursor
from amqp_broker.persistence.termini import (
    ForgetHeld,
    ForgetTerminus,
    ForgetUnsettled,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
    StoredTerminus,
)
from amqp_broker.persistence.verbs import KeepTime, Verb

_fields_of = attrgetter(*[field.name for field in attrs.fields(Half)])

Key = tuple[str, bytes]
StreamKey = tuple[int, str]
CursorKey = tuple[str, int]
EpochKey = tuple[str, str, int]  # group, producer, epoch
UnsettledKey = tuple[int, bytes]  # the number of the terminus, delivery-tag
HeldKey = tuple[int, int]  # queue, offset
NumberedHalf = tuple[int, Half]  # its number, and a copy that is the caller's


@attrs.define
class HalfChange:
    """A half message as the group leaves it. `number` is that of its row, 0 while it has none."""

    half: Half
    number: int
    body: bytes | None = None
    decided: bool = False
    replaces: int = 0  # the row of an earlier one of this name that has expired


class HalfChanges:
    """The changes of one group. `find` tells what is stored under a key, `is_decided` whether an epoch is."""

    __slots__ = (
        "_find", "_is_decided", "advances", "cursors", "dated", "decides", "decisions", "events",
        "forgotten_cursors", "forgotten_termini", "halves", "held", "holds", "next_seq", "streams", "termini",
        "time",
        "unsettled",
    )  # fmt: skip

    def __init__(
        self,
        find: Callable[[str, bytes], NumberedHalf | None],
        next_seq: int,
        is_decided: Callable[[str, str, int], bool],
    ) -> None:
        self._find = find
        self._is_decided = is_decided
        self.next_seq = next_seq
        self.dated = False  # is something kept for a time from now on: decisions, events
        self.halves: dict[Key, HalfChange] = {}
        self.streams: dict[StreamKey, Stream | None] = {}
        self.decisions: dict[EpochKey, Decision] = {}
        self.events: list[Event] = []
        self.cursors: dict[CursorKey, Cursor] = {}
        self.forgotten_cursors: set[str] = set()  # before those of `cursors` were moved
        self.forgotten_termini: set[int] = set()  # before those of `termini` and `unsettled` were kept
        self.termini: dict[int, StoredTerminus] = {}
        self.unsettled: dict[UnsettledKey, bytes | None] = {}
        self.held: dict[HeldKey, tuple[int, bytes | None]] = {}  # number and tag; None: it holds it no longer
        self.time: KeepTime | None = None
        self.holds = False  # is there a Hold among the verbs
        self.decides = False
        self.advances = False

    def add(self, verb: Verb) -> None:
        """Gather one of HALF_VERBS, of a unit that was admitted. Raises AssertionError for what cannot be."""
        _ADD[type(verb)](self, verb)

    def _hold(self, verb: Hold) -> None:
        half = verb.half
        key = (half.group, half.half_id)
        assert half.state in OPEN, f"a half message is held as {half.state!r}"
        assert key not in self.halves, f"half message {key} is held twice in a group"
        change = self.halves[key] = HalfChange(copy_of(half), 0, verb.body)
        self.holds = True
        found = self._find(*key)
        if found is not None:
            number, old = found
            assert is_expired(old, half.put_at_ms), f"half message {key} is held, but there is one: {old}"
            change.replaces = number

    def _reschedule(self, verb: Reschedule) -> None:
        assert verb.state in OPEN, f"a half message is rescheduled as {verb.state!r}"
        half = self._open(verb).half
        half.state = verb.state
        half.attempts = verb.attempts
        half.due_at_ms = verb.due_at_ms
        half.deadline_ms = verb.deadline_ms

    def _decide(self, verb: Decide) -> None:
        assert verb.state in DECIDED, f"a half message is decided as {verb.state!r}"
        change = self._open(verb)
        half = change.half
        half.state = verb.state
        half.resolved_at_ms = verb.resolved_at_ms
        half.resolver = verb.resolver
        half.reason = verb.reason
        half.expires_at_ms = verb.expires_at_ms
        half.queue = verb.queue
        half.offset = verb.offset
        change.decided = self.decides = self.dated = True
        if not keeps_body(half):
            change.body = None

    def _open(self, verb: Reschedule | Decide) -> HalfChange:
        key = (verb.group, verb.half_id)
        change = self.halves.get(key)
        if change is None:
            found = self._find(*key)
            assert found is not None, f"{verb!r} of a half message that is not stored"
            change = self.halves[key] = HalfChange(found[1], found[0])
        assert change.half.state in OPEN, f"{verb!r} of a half message that is {change.half.state}"
        return change

    def _advance(self, verb: Advance) -> None:
        stream = verb.stream
        self.advances = True
        self.streams[stream.queue_id, stream.stream] = attrs.evolve(stream)

    def _forget_stream(self, verb: ForgetStream) -> None:
        self.streams[verb.queue_id, verb.stream] = None

    def _move_cursor(self, verb: MoveCursor) -> None:
        self.cursors[verb.name, verb.queue_id] = Cursor(
            verb.name, verb.queue_id, verb.offset, verb.at_ms, verb.owner
        )

    def _forget_cursor(self, verb: ForgetCursor) -> None:
        for key in [key for key in self.cursors if key[0] == verb.name]:
            del self.cursors[key]
        self.forgotten_cursors.add(verb.name)

    def _keep_terminus(self, verb: KeepTerminus) -> None:
        self.termini[verb.terminus.number] = attrs.evolve(verb.terminus)

    def _forget_terminus(self, verb: ForgetTerminus) -> None:
        number = verb.number
        self.termini.pop(number, None)
        self.unsettled = {key: state for key, state in self.unsettled.items() if key[0] != number}
        self.held = {key: pair for key, pair in self.held.items() if pair[0] != number}
        self.forgotten_termini.add(number)

    def _keep_unsettled(self, verb: KeepUnsettled) -> None:
        number = verb.number
        gone = number in self.forgotten_termini and number not in self.termini
        assert not gone, f"{verb!r} of a terminus that is forgotten"
        for delivery_tag, state in verb.states.items():
            self.unsettled[number, delivery_tag] = state

    def _forget_unsettled(self, verb: ForgetUnsettled) -> None:
        for delivery_tag in verb.delivery_tags:
            self.unsettled[verb.number, delivery_tag] = None

    def _keep_held(self, verb: KeepHeld) -> None:
        number = verb.number
        gone = number in self.forgotten_termini and number not in self.termini
        assert not gone, f"{verb!r} of a terminus that is forgotten"
        for offset, delivery_tag in verb.delivery_tags.items():
            self.held[verb.queue_id, offset] = number, delivery_tag

    def _forget_held(self, verb: ForgetHeld) -> None:
        for offset in verb.offsets:
            key = verb.queue_id, offset
            if self.held.get(key, (verb.number, b""))[0] == verb.number:
                self.held[key] = verb.number, None

    @property
    def of_termini(self) -> bool:
        """Whether there are any of these."""
        return bool(self.termini or self.unsettled or self.held or self.forgotten_termini)

    def _keep_time(self, verb: KeepTime) -> None:
        self.time = verb

    def _decide_epoch(self, verb: DecideEpoch) -> None:
        decision = verb.decision
        key = (decision.group, decision.producer, decision.epoch)
        assert 0 <= decision.epoch <= LAST_EPOCH, f"epoch {decision.epoch}, expected 0 to {LAST_EPOCH}"
        assert key not in self.decisions and not self._is_decided(*key), f"epoch {key} is decided twice"
        self.decisions[key] = decision

    def _log(self, verb: Journal) -> None:
        event = verb.event
        problem = event.problem()
        assert problem is None, f"event {event.kind!r} cannot be logged: {problem}"
        event.seq = self.next_seq
        self.next_seq += event.count
        self.dated = True
        self.events.append(event)


def is_expired(half: Half, at_ms: int) -> bool:
    """Is it a decided one whose name is free again?"""
    return half.state in DECIDED and half.expires_at_ms <= at_ms


def copy_of(half: Half) -> Half:
    """Another one of the same content."""
    return Half(*_fields_of(half))


# The methods take one kind of verb each, which only this table knows.
_ADD: Final[dict[type[object], Callable[..., None]]] = {
    Hold: HalfChanges._hold,
    Reschedule: HalfChanges._reschedule,
    Decide: HalfChanges._decide,
    Advance: HalfChanges._advance,
    ForgetStream: HalfChanges._forget_stream,
    DecideEpoch: HalfChanges._decide_epoch,
    Journal: HalfChanges._log,
    MoveCursor: HalfChanges._move_cursor,
    ForgetCursor: HalfChanges._forget_cursor,
    KeepTerminus: HalfChanges._keep_terminus,
    ForgetTerminus: HalfChanges._forget_terminus,
    KeepUnsettled: HalfChanges._keep_unsettled,
    ForgetUnsettled: HalfChanges._forget_unsettled,
    KeepHeld: HalfChanges._keep_held,
    ForgetHeld: HalfChanges._forget_held,
    KeepTime: HalfChanges._keep_time,
}
