"""What can be done with a half message, each judged where it falls: when its group is made, by what the store
has and what the operations before it in the group leave.

    HalfPut       prepared, its room in the destination kept
    HalfChange    commit, rollback, park, resume: by a producer, a check, a deadline or an administrator

What is decided stays among the open ones, with its new state, until that is stored: so a second decision in
the same group finds the first, and both are undone together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.coordinator import (
    Asked,
    HalfAnswer,
    HalfGroup,
    HalfInput,
    HalfState,
    OpenHalf,
    Resolver,
    decide_half,
    is_open,
    shown_half_id,
)
from amqp_broker.frames import Accepted, Error, Rejected
from amqp_broker.halves.known import NONE_LOOKED_UP, RESOLVERS, STATES, KnownHalf, Posted, StoredHalves
from amqp_broker.halves.requests import PutRequest, Resolution, delivered_body
from amqp_broker.halves.units import COMMITTED, PUT, HalfUnit
from amqp_broker.operations.operation import NotYet, Operation, Refused, error_of
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    Decide,
    Half,
    Hold,
    Record,
    Reschedule,
    RowDamaged,
    Unit,
)
from amqp_broker.queue import deleted_error, full_error

if TYPE_CHECKING:
    from amqp_broker.connection import Connection
    from amqp_broker.halves.groups import HalfGroups
    from amqp_broker.queue import Queue

ACCEPTED: Final = Accepted()
PREPARED: Final = HalfState.PREPARED.value
_PRODUCER: Final = Resolver.PRODUCER
Answer = Callable[[Any], None]
"""Called once, with the outcome."""


class HalfOperation(Operation):
    """Base: the half message is (`group`, `half_id`); `answer` is told the outcome after the commit, None:
    the discharge of `txn_id` is the answer.
    """

    __slots__ = (
        "answer",
        "asker",
        "group",
        "half",
        "half_id",
        "halves",
        "operations",
        "size_bytes",
        "txn_id",
    )

    def __init__(
        self, halves: HalfGroups, group: HalfGroup, half_id: bytes, size_bytes: int, answer: Answer | None
    ) -> None:
        self.halves = halves
        self.group = group
        self.half_id = half_id
        self.operations = 1
        self.size_bytes = size_bytes
        self.answer = answer
        self.asker: Connection | None = None
        self.txn_id = b""
        self.half: OpenHalf | None = None  # that a group under way changes

    def provisional(self, now_ms: int) -> Error | None:
        """Why the operation can't be done, as far as that is known by now; the discharge judges once more."""
        try:
            known = self.halves.find(self.group, self.half_id, now_ms)
        except RowDamaged:
            return None
        if known is None:
            return None
        answer, _ = decide_half(known.state, self.input_of(known))
        return None if answer in (HalfAnswer.DONE, HalfAnswer.REPEAT) else known.refusal(answer)

    def input_of(self, known: KnownHalf) -> HalfInput:
        """The input of the state table, given what is known of the half message."""
        raise AssertionError("a change says what it asks")

    def prepare(self, now_ms: int) -> Unit:
        """Decide what it means, by what is known of the half message now."""
        unit = HalfUnit(now_ms, self.txn_id)
        self.judge(unit, NONE_LOOKED_UP)
        return unit.verbs()

    def judge(self, unit: HalfUnit, stored_halves: StoredHalves) -> None:
        """Decide what it means and add its verbs to `unit`. `stored_halves` spares asking the store. Raises
        Refused, RowDamaged.
        """
        self.group = self.halves.present(self.group)
        self._judge(unit, self.halves.find(self.group, self.half_id, unit.now_ms, stored_halves))

    def _judge(self, unit: HalfUnit, known: KnownHalf | None) -> None:
        raise AssertionError("a change says what it does")

    def done(self, posted: Posted) -> None:
        """The operation is stored; what became available is put into `posted`."""
        raise AssertionError("a change says what it did")

    def given_up(self) -> None:
        """The operation never happens: room that was kept for it is free."""

    def stored(self) -> None:
        """Distribute what became available, and answer."""
        posted: Posted = {}
        self.done(posted)
        self.halves.available(posted)
        self.halves.rearm(self.group)
        if self.answer is not None:
            self.answer(ACCEPTED)

    def refused(self, error: Exception) -> None:
        """The operation never happens; whoever asked is told."""
        self.given_up()
        if self.answer is not None:
            reason = error_of(error)
            self.halves.figures(self.group.name).refusal(reason)
            self.answer(Rejected(error=reason))

    def asking_connection(self) -> Connection | None:
        """The connection of who asked, if it was one."""
        return self.asker

    def kept_bytes(self) -> int:
        """The body of a half message, and a little more; what is in a transaction counts for that."""
        return 0 if self.txn_id else self.size_bytes + RECORD_OVERHEAD_BYTES


class HalfPut(HalfOperation):
    """A half message is put for `destination`. Room for it is kept from then on; in a transaction, whose
    provisional outcome promises it, from `reserve` on.
    """

    __slots__ = ("_kept", "container_id", "destination", "message_format", "request")

    def __init__(
        self, halves: HalfGroups, group: HalfGroup, request: PutRequest, destination: Queue,
        message_format: int, container_id: str, answer: Answer | None = None,
    ) -> None:  # fmt: skip
        super().__init__(halves, group, request.half_id, len(request.body), answer)
        self.request = request
        self.destination = destination
        self.message_format = message_format
        self.container_id = container_id
        self._kept = False  # room, before it is judged

    def input_of(self, known: KnownHalf) -> HalfInput:
        """PUT_SAME, or PUT_OTHER where content or destination differ from what is known."""
        same = (known.digest, known.destination) == (self.request.digest, self.destination.name)
        return HalfInput.PUT_SAME if same else HalfInput.PUT_OTHER

    def reserve(self) -> bool:
        """Keep room in the destination from now on; False if there is none."""
        self._kept = self.destination.reserve_one(self.size_bytes)
        return self._kept

    def _judge(self, unit: HalfUnit, known: KnownHalf | None) -> None:
        queue = self.destination
        if queue.deleted:
            raise Refused(deleted_error(queue))
        if known is not None:
            answer, _ = decide_half(known.state, self.input_of(known))
            if answer is not HalfAnswer.REPEAT:
                assert answer is not HalfAnswer.DONE, "only without a trace a put is done"
                raise Refused(known.refusal(answer))
            return
        if self.group.full():
            most = self.group.settings.max_pending
            raise _no_room(f"group {self.group.name!r} has {most} pending half messages (max_pending)")
        request = self.request
        now_ms = unit.now_ms
        half = OpenHalf(
            self.half_id, self.destination.name, request.digest, now_ms, now_ms + request.first_check_ms,
            now_ms + request.max_age_ms, self.container_id, self.size_bytes,
        )  # fmt: skip
        if not self._kept and not queue.reserve_one(self.size_bytes):
            raise NotYet(Refused(full_error(queue)))
        self.half = half
        self._hold(unit, half)

    def _hold(self, unit: HalfUnit, half: OpenHalf) -> None:
        request = self.request
        now_ms = unit.now_ms
        half.changes = 1
        half.message_format = self.message_format
        half.priority = request.priority
        half.ttl_ms = request.ttl_ms
        self.group.add(half)
        self.halves.hold_room(half, self.destination)
        self.halves.keep_body(half, request.body)
        stored = Half(
            self.group.name, self.half_id, half.destination, PREPARED, half.digest, now_ms,
            half.due_ms, half.deadline_ms, self.container_id, self.size_bytes, self.message_format,
            request.priority, request.ttl_ms,
        )  # fmt: skip
        unit.add(Hold(stored, request.body))
        shared = (self.group.name, half.destination, self.container_id)
        unit.journal(PUT, shared, shown_half_id(self.half_id), self.size_bytes)

    def undo(self) -> None:
        """The half message is not there; room that a transaction keeps for it stays kept."""
        half, self.half = self.half, None
        if half is not None:
            self.group.remove(half)
            self.halves.forget_half(half)
            if not self._kept:
                self.destination.unreserve(1, self.size_bytes)

    def done(self, posted: Posted) -> None:
        """The half message is prepared: its timers start."""
        half, self.half = self.half, None
        if half is None:
            self.given_up()
            return
        half.changes -= 1
        self.group.schedule(half)

    def given_up(self) -> None:
        """The room that was kept for it is free."""
        if self._kept:
            self._kept = False
            self.destination.unreserve(1, self.size_bytes)
            self.halves.room_again(self.destination)


class HalfChange(HalfOperation):
    """Commit, roll back, park or resume: `what`, by `resolver` with a `reason`."""

    __slots__ = (
        "_after", "_before", "_container_id", "_queue", "_record", "_room", "reason", "resolver", "what",
        "who",
    )  # fmt: skip

    def __init__(
        self, halves: HalfGroups, group: HalfGroup, half_id: bytes, what: HalfInput, resolver: Resolver,
        reason: str = "", who: str = "", answer: Answer | None = None,
    ) -> None:  # fmt: skip
        super().__init__(halves, group, half_id, 0, answer)
        self.what = what
        self.resolver = resolver
        self.reason = reason
        self.who = who
        self._container_id = ""  # of who resolves by a message
        self._before: Asked | None = None
        self._after = HalfState.PREPARED
        self._room: Queue | None = None  # that a rollback gave free
        self._queue: Queue | None = None
        self._record: Record | None = None

    @classmethod
    def of(
        cls, halves: HalfGroups, group: HalfGroup, asked: Resolution, who: str, container_id: str,
        answer: Answer | None = None,
    ) -> HalfChange:  # fmt: skip
        """What a producer, a checker, or whoever has the right, resolves by a message."""
        change = cls(halves, group, asked.half_id, asked.what, _PRODUCER, asked.reason, who, answer)
        change._container_id = container_id
        return change

    def input_of(self, known: KnownHalf) -> HalfInput:
        """What was asked for, whatever state the half message is in."""
        return self.what

    def waits_for_space(self) -> bool:
        """Nobody waits for what a deadline decides: it is done as soon as there is room."""
        return self.resolver is Resolver.DEADLINE

    def _judge(self, unit: HalfUnit, known: KnownHalf | None) -> None:
        answer, after = decide_half(None if known is None else known.state, self.what)
        if answer is HalfAnswer.REPEAT:
            return
        if answer is not HalfAnswer.DONE or known is None or known.half is None or after is None:
            raise Refused(self.halves.unknown(self.half_id) if known is None else known.refusal(answer))
        half = known.half
        body = self.halves.body_of(self.group, half) if after is HalfState.COMMITTED else b""
        self.half = half
        if self._container_id:
            asked = half.asked_container == self._container_id
            self.resolver = Resolver.CHECK if asked else Resolver.PRODUCER
        self._before = half.asked()
        self._after = half.state = after
        half.changes += 1
        now_ms = unit.now_ms
        if not is_open(after):
            half.resolved_at_ms = now_ms
            half.resolver = RESOLVERS[self.resolver]
            self.group.decided += 1
        if after is HalfState.COMMITTED:
            self._commit(half, body, unit)
            return
        if after is HalfState.ROLLED_BACK:
            self._room = self.halves.free_room(half)
            unit.add(self._decide(half, now_ms))
            what = "half.rolled_back"
        elif after is HalfState.PARKED:
            unit.add(self._reschedule(half, half.attempts, half.due_ms, half.deadline_ms))
            what = "half.parked"
        else:
            self.group.resume(half, now_ms)
            unit.add(self._reschedule(half, half.attempts, half.due_ms, half.deadline_ms))
            what = "half.resumed"
        shared = (self.group.name, RESOLVERS[self.resolver], self.who, self.reason)
        unit.journal(what, shared, shown_half_id(half.half_id))

    def _commit(self, half: OpenHalf, stored_body: bytes, unit: HalfUnit) -> None:
        """The message gets its place in the queue now: the order of commits is the order of the queue."""
        now_ms = unit.now_ms
        queue, reason = self.halves.destination_of(half)
        body = delivered_body(half, stored_body, reason)
        expires_at_ms = now_ms + half.ttl_ms if half.ttl_ms else 0
        record = Record(
            queue.next_offset, body, half.message_format, half.priority, expires_at_ms, now_ms,
            queue.persistent,
        )  # fmt: skip
        self._queue, self._record = queue, record
        record.queue_id = queue.queue_id
        queue.pending_posts += 1
        queue.next_offset += 1
        unit.post(queue, record)
        if queue.events:
            unit.journal_available(queue, record, self.group.name, half, reason)
        unit.add(self._decide(half, now_ms))
        shared = (self.group.name, queue.name, RESOLVERS[self.resolver], self.who, self.reason)
        unit.journal(COMMITTED, shared, shown_half_id(half.half_id), record.offset)

    def _decide(self, half: OpenHalf, now_ms: int) -> Decide:
        verb = Decide(
            self.group.name, half.half_id, STATES[half.state], now_ms, RESOLVERS[self.resolver], self.reason,
            now_ms + self.group.settings.tombstone_ms,
        )  # fmt: skip
        if self._queue is not None and self._record is not None:
            verb.queue, verb.offset = self._queue.name, self._record.offset
        return verb

    def _reschedule(self, half: OpenHalf, attempts: int, due_ms: int, deadline_ms: int) -> Reschedule:
        return Reschedule(self.group.name, half.half_id, half.state.value, attempts, due_ms, deadline_ms)

    def _take_number(self) -> tuple[Queue, Record] | None:
        queue, record = self._queue, self._record
        self._queue = self._record = None
        if queue is None or record is None:
            return None
        queue.pending_posts -= 1
        return queue, record

    def undo(self) -> None:
        """The half message is as it was, and is asked about as before; the number of its message is free."""
        numbered = self._take_number()
        if numbered is not None:
            numbered[0].next_offset = numbered[1].offset
        half, self.half = self.half, None
        if half is None:
            return
        assert self._before is not None, "what is changed was something before"
        half.become(self._before)
        half.changes -= 1
        if not is_open(self._after):
            self.group.decided -= 1
            room, self._room = self._room, None
            if room is not None:
                room.reserve_one(half.size_bytes, anyway=True)
                self.halves.hold_room(half, room)
        self.group.schedule(half)

    def done(self, posted: Posted) -> None:
        """The change is stored; a message that was committed goes into `posted`."""
        numbered = self._take_number()
        half, self.half = self.half, None
        if half is None:
            return
        half.changes -= 1
        if is_open(self._after):
            if half.state is HalfState.PARKED:  # else the group has changed it again
                self.halves.parked(self.group, half)
            self.group.schedule(half)
        else:
            self.group.decided -= 1
            self.group.remove(half)
            room = self.halves.decided(self.group, half, self.resolver) or self._room
            self._room = None
            if room is not None:
                posted.setdefault(room, [])
            if numbered is not None:
                queue, record = numbered
                records = posted.get(queue)
                if records is None:
                    posted[queue] = [record]
                else:
                    records.append(record)


def _no_room(description: str) -> Refused:
    return Refused(Error(condition="amqp:resource-limit-exceeded", description=description))
