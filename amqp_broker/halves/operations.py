"""What can be done with a half message, each decided where it falls: when the writer asks for the verbs,
between two commits and in the order of the jobs.

    HalfPut      prepared, its room in the destination kept
    HalfChange   commit, rollback, park, resume: by a producer, a check, a deadline or an administrator

Two changes of one half message never share a commit unless they are one unit: the later one is judged again
after it, so that nobody is told of a decision that is not stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.coordinator import (
    HalfAnswer,
    HalfGroup,
    HalfInput,
    HalfState,
    OpenHalf,
    Resolver,
    Transaction,
    TransactionRollback,
    decide_half,
    shown_half_id,
)
from amqp_broker.frames import Accepted, Error, Rejected
from amqp_broker.halves.found import RESOLVERS, STATES, Found
from amqp_broker.halves.requests import PutRequest, Resolution, delivered_body
from amqp_broker.halves.units import COMMITTED, PUT, HalfUnit
from amqp_broker.persistence import Decide, Half, Hold, Record, Reschedule, RowDamaged, Unit

if TYPE_CHECKING:
    from amqp_broker.halves.service import HalfService
    from amqp_broker.queue import Queue

ACCEPTED: Final = Accepted()
PREPARED: Final = HalfState.PREPARED.value
_PRODUCER: Final = Resolver.PRODUCER
Looked = dict[bytes, Half | None]
"""What the store told of several half messages; None: there is none."""
NOT_LOOKED: Final[Looked] = {}


Posted = dict["Queue", list[Record]]
"""Messages of committed half messages, by queue, in order."""


class HalfOperation(ABC):
    """Base: the half message is (`group`, `half_id`). `token` is the job or transaction whose unit it is part
    of.
    """

    __slots__ = ("error", "group", "half", "half_id", "service", "token", "waits")

    def __init__(self, service: HalfService, group: HalfGroup, half_id: bytes) -> None:
        self.service = service
        self.group = group
        self.half_id = half_id
        self.token: Any = self
        self.half: OpenHalf | None = None
        self.error: Error | None = None
        self.waits = False
        """Another change of it is in the same group: to be judged again after that."""

    def outcome(self) -> Any:
        """What the asker is told after the commit."""
        return ACCEPTED if self.error is None else Rejected(error=self.error)

    def verbs(self) -> Unit:
        """Decide what it means, by what there is now."""
        unit = HalfUnit(self.service.now_ms(), self._txn_id())
        self.judge(unit, NOT_LOOKED)
        return unit.verbs()

    def judge(self, unit: HalfUnit, looked: Looked) -> None:
        """The same, as a part of `unit`; `looked` spares asking the store."""
        self.error = None
        self.waits = False
        self.group = self.service.present(self.group)
        half = self.group.open.get(self.half_id)
        if half is not None and half.busy is not None and half.busy is not self.token:
            self.waits = True
            return
        try:
            found = self.service.find(self.group, self.half_id, looked)
            self._judge(unit, found)
        except RowDamaged as damaged:
            self.withdraw()
            self.error = Error(condition="amqp:internal-error", description=f"the store: {damaged}")

    @abstractmethod
    def _judge(self, unit: HalfUnit, found: Found | None) -> None:
        """Add the verbs, or set `error` where it can't be; may raise RowDamaged before anything is added."""

    @abstractmethod
    def withdraw(self) -> None:
        """Nothing was stored."""

    @abstractmethod
    def again(self) -> None:
        """Nothing was stored, and it will be judged again: behind what others have numbered meanwhile."""

    @abstractmethod
    def done(self, posted: Posted) -> None:
        """It is stored; what became available is put into `posted`."""

    def committed(self) -> None:
        """It is stored."""
        posted: Posted = {}
        self.done(posted)
        self.service.available(posted)
        self.service.rearm(self.group)

    def _txn_id(self) -> bytes:
        return self.token.txn_id if isinstance(self.token, Transaction) else b""


class HalfPut(HalfOperation):
    """A half message is put for `destination`, in which room for it was reserved."""

    __slots__ = ("container_id", "destination", "message_format", "request", "size_bytes")

    def __init__(
        self, service: HalfService, group: HalfGroup, request: PutRequest, destination: Queue,
        message_format: int, container_id: str,
    ) -> None:  # fmt: skip
        super().__init__(service, group, request.half_id)
        self.request = request
        self.destination = destination
        self.message_format = message_format
        self.container_id = container_id
        self.size_bytes = len(request.body)

    def _judge(self, unit: HalfUnit, found: Found | None) -> None:
        if found is not None:
            same = (found.digest, found.destination) == (self.request.digest, self.destination.name)
            answer, _ = decide_half(found.state, HalfInput.PUT_SAME if same else HalfInput.PUT_OTHER)
            if answer is not HalfAnswer.REPEAT:
                assert answer is not HalfAnswer.DONE, "only without a trace a put is done"
                self.error = found.refusal(answer)
            return
        if self.group.full():
            most = self.group.settings.max_pending
            self.error = Error(
                condition="amqp:resource-limit-exceeded",
                description=f"group {self.group.name!r} has {most} pending half messages (max_pending)",
            )
            return
        self._hold(unit)

    def _hold(self, unit: HalfUnit) -> None:
        request = self.request
        now_ms = unit.now_ms
        half = self.half = OpenHalf(
            self.half_id, self.destination.name, request.digest, now_ms, now_ms + request.first_check_ms,
            now_ms + request.max_age_ms, self.container_id, self.size_bytes,
        )  # fmt: skip
        half.busy = self.token
        half.message_format = self.message_format
        half.priority = request.priority
        half.ttl_ms = request.ttl_ms
        self.group.add(half)
        self.service.keep_body(half, request.body)
        stored = Half(
            self.group.name, self.half_id, half.destination, PREPARED, half.digest, now_ms,
            half.due_ms, half.deadline_ms, self.container_id, self.size_bytes, self.message_format,
            request.priority, request.ttl_ms,
        )  # fmt: skip
        unit.add(Hold(stored, request.body))
        shared = (self.group.name, half.destination, self.container_id)
        unit.log(PUT, shared, shown_half_id(self.half_id), self.size_bytes)

    def withdraw(self) -> None:
        """Nothing was stored."""
        half, self.half = self.half, None
        if half is not None:
            self.group.remove(half)
            self.service.drop_body(half)

    def again(self) -> None:
        """Nothing was stored; its room is kept."""
        self.withdraw()

    def done(self, posted: Posted) -> None:
        """It is prepared: the timers start."""
        half = self.half
        if half is None:
            self.destination.unreserve(1, self.size_bytes)
            return
        half.busy = None
        self.service.hold_room(half, self.destination)
        self.group.schedule(half)

    def rolled_back(self) -> None:
        """It never was; its room is free."""
        self.withdraw()
        self.destination.unreserve(1, self.size_bytes)
        self.service.room_again(self.destination)


class HalfChange(HalfOperation):
    """Commit, roll back, park or resume: `what`, by `resolver` with a `reason`."""

    __slots__ = ("_before", "_container_id", "_queue", "_record", "reason", "resolver", "what", "who")
    size_bytes = 0

    def __init__(
        self, service: HalfService, group: HalfGroup, half_id: bytes, what: HalfInput, resolver: Resolver,
        reason: str = "", who: str = "",
    ) -> None:  # fmt: skip
        super().__init__(service, group, half_id)
        self.what = what
        self.resolver = resolver
        self.reason = reason
        self.who = who
        self._container_id = ""  # of who resolves by a message
        self._before = HalfState.PREPARED
        self._queue: Queue | None = None
        self._record: Record | None = None

    @classmethod
    def of(
        cls, service: HalfService, group: HalfGroup, asked: Resolution, who: str, container_id: str
    ) -> HalfChange:
        """What a producer, a checker, or whoever has the right, resolves by a message."""
        change = cls(service, group, asked.half_id, asked.what, _PRODUCER, asked.reason, who)
        change._container_id = container_id
        return change

    def _judge(self, unit: HalfUnit, found: Found | None) -> None:
        answer, after = decide_half(None if found is None else found.state, self.what)
        if answer is HalfAnswer.REPEAT:
            return
        if answer is not HalfAnswer.DONE or found is None or found.half is None or after is None:
            self.error = self.service.unknown(self.half_id) if found is None else found.refusal(answer)
            return
        half = self.half = found.half
        if self._container_id:
            asked = half.asked_container == self._container_id
            self.resolver = Resolver.CHECK if asked else Resolver.PRODUCER
        self._before = half.state
        half.state = after
        half.busy = self.token
        if after is HalfState.COMMITTED:
            self._commit(half, unit)
            return
        now_ms = unit.now_ms
        if after is HalfState.ROLLED_BACK:
            unit.add(self._decide(half, now_ms))
            what = "half.rolled_back"
        elif after is HalfState.PARKED:
            unit.add(self._reschedule(half, half.attempts, half.due_ms, half.deadline_ms))
            what = "half.parked"
        else:
            unit.add(self._reschedule(half, 0, now_ms, now_ms + self.group.settings.max_age_ms))
            what = "half.resumed"
        shared = (self.group.name, RESOLVERS[self.resolver], self.who, self.reason)
        unit.log(what, shared, shown_half_id(half.half_id))

    def _commit(self, half: OpenHalf, unit: HalfUnit) -> None:
        """The message gets its place in the queue now: the order of commits is the order of the queue."""
        now_ms = unit.now_ms
        queue, reason = self.service.destination_of(half)
        body = delivered_body(half, self.service.body_of(self.group, half), reason)
        self._queue = queue
        expires_at_ms = now_ms + half.ttl_ms if half.ttl_ms else 0
        record = self._record = Record(
            queue.next_offset, body, half.message_format, half.priority, expires_at_ms, now_ms,
            queue.persistent,
        )  # fmt: skip
        record.queue_id = queue.queue_id
        queue.pending_posts += 1
        queue.next_offset += 1
        unit.post(queue, record)
        if queue.events:
            unit.placed(queue, record, self.group.name, half, reason)
        unit.add(self._decide(half, now_ms))
        shared = (self.group.name, queue.name, RESOLVERS[self.resolver], self.who, self.reason)
        unit.log(COMMITTED, shared, shown_half_id(half.half_id), record.offset)

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

    def withdraw(self) -> None:
        """Nothing was stored: it stands where it stood, and is asked as before."""
        if self._queue is not None and self._record is not None:
            self._queue.next_offset = self._record.offset
        self.rolled_back()

    def again(self) -> None:
        """Nothing was stored; its number stays free."""
        self.rolled_back()

    def _end_numbering(self) -> tuple[Queue, Record] | None:
        queue, record = self._queue, self._record
        self._queue = self._record = None
        if queue is None or record is None:
            return None
        queue.pending_posts -= 1
        return queue, record

    def done(self, posted: Posted) -> None:
        """It is stored."""
        half, self.half = self.half, None
        if half is None:
            return
        half.busy = None
        if half.state is HalfState.PREPARED:
            self.group.resumed(half, self.service.now_ms())
        elif half.state is HalfState.PARKED:
            self.service.parked(self.group, half)
        else:
            self.group.remove(half)
            self.service.decided(self.group, half, self.resolver)
            placed = self._end_numbering()
            if placed is not None:
                queue, record = placed
                records = posted.get(queue)
                if records is None:
                    posted[queue] = [record]
                else:
                    records.append(record)

    def rolled_back(self) -> None:
        """It does not happen; the number that its message was given stays free."""
        half, self.half = self.half, None
        self._end_numbering()
        if half is not None:
            half.state = self._before
            half.busy = None
            self.group.schedule(half)


def refusal_of(error: Exception) -> Error:
    """What the asker is told where the store could not."""
    damaged = isinstance(error, RowDamaged)
    condition = "amqp:internal-error" if damaged else "amqp:resource-limit-exceeded"
    return Error(condition=condition, description=str(error))


class HalfJob:
    """One operation as a commit of its own; `answer` is told the outcome after it."""

    __slots__ = ("_answer", "_operation", "_service")

    def __init__(self, service: HalfService, operation: HalfPut | HalfChange, answer: Any) -> None:
        self._service = service
        self._operation = operation
        self._answer = answer

    def unit(self) -> Unit:
        return self._operation.verbs()

    def withdraw(self) -> None:
        """Nothing was stored."""
        self._operation.withdraw()

    def keeps(self) -> bool:
        """The asker is told that there is no room."""
        return False

    def finished(self, error: Exception | None) -> None:
        operation = self._operation
        if error is not None:
            operation.rolled_back()
            self._answer(Rejected(error=refusal_of(error)))
        elif operation.waits:
            self._service.submit(self)
        else:
            if operation.error is not None:
                self._service.counted(operation.group.name).refusal(operation.error)
            operation.committed()
            self._answer(operation.outcome())


class EnlistedHalf:
    """One operation as a part of a transaction: judged again at its discharge, which is rejected if the
    answer is not the provisional one any more.
    """

    __slots__ = ("_operation", "operations", "size_bytes")

    def __init__(self, operation: HalfPut | HalfChange, transaction: object) -> None:
        operation.token = transaction
        self._operation = operation
        self.operations = 1
        self.size_bytes = operation.size_bytes

    def verbs(self) -> Unit:
        """Raises TransactionRollback: then nothing of the transaction may be stored."""
        operation = self._operation
        unit = operation.verbs()
        if operation.waits:
            raise TransactionRollback(f"half message {shown_half_id(operation.half_id)} is being decided")
        if operation.error is not None:
            raise TransactionRollback(f"{operation.error.condition}: {operation.error.description}")
        return unit

    def withdraw(self) -> None:
        """Nothing was stored."""
        self._operation.withdraw()

    def committed(self) -> None:
        """The discharge is stored."""
        self._operation.committed()

    def rolled_back(self) -> None:
        """It never happened."""
        self._operation.rolled_back()
