"""The store in memory: the reference for what a store means, and what `--memory` runs on."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import attrs

from amqp_broker.persistence import questions
from amqp_broker.persistence.errors import BackupFailed, NoSuchNode
from amqp_broker.persistence.generations import KEEP_COUNT, KEEP_MS, Generations
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.keep_clock import KEEP_EVENTS_MS
from amqp_broker.persistence.memory_ledger import MemoryLedger
from amqp_broker.persistence.memory_retention import MemoryRetention
from amqp_broker.persistence.node_table import NodeTable
from amqp_broker.persistence.questions import Answer, Answers, Question, ReadResult
from amqp_broker.persistence.records import RECORD_OVERHEAD_BYTES, Record
from amqp_broker.persistence.retention import Retain, Retained
from amqp_broker.persistence.store import Recovered, RecoveredNode, SpaceState
from amqp_broker.persistence.verbs import (
    HALF_VERBS,
    Configure,
    CreateNode,
    Discharged,
    HalfVerb,
    KeepTime,
    Move,
    NodeVerb,
    Post,
    PostLarge,
    Purge,
    Retire,
    Return,
    Unit,
    Verb,
)

if TYPE_CHECKING:
    from amqp_broker.persistence.backup import Backup
    from amqp_broker.persistence.spools import Spool

COMPACT_ORDER_AT = 1024  # offsets already retired that are carried in a queue's order before it is rewritten


class _Archived:
    """Octets of what is retained, and in its queue no more, in all queues."""

    __slots__ = ("byte_count",)

    def __init__(self) -> None:
        self.byte_count = 0


class _Queue:
    __slots__ = (
        "_archived", "archived_bytes", "byte_count", "changed", "create", "next_offset", "order", "records",
        "retention",
    )  # fmt: skip

    def __init__(self, create: CreateNode, archived: _Archived) -> None:
        self._archived = archived
        self.create = create
        self.next_offset = 0
        self.records: dict[int, Record] = {}
        self.order: list[int] = []  # offsets in order; those not in `records` are retired
        self.changed: dict[int, Return] = {}
        self.byte_count = 0
        self.retention: MemoryRetention | None = None
        self.archived_bytes = 0

    def post(self, records: Sequence[Record], group: int) -> None:
        if self.retention is not None and records:
            self.retention.post(records, group)
        for record in records:
            assert record.offset >= self.next_offset, f"{record!r} posted, expected {self.next_offset}"
            self.next_offset = record.offset + 1
            self.records[record.offset] = record
            self.order.append(record.offset)
            self.byte_count += len(record.body)
            if record.delivery_count or record.acquired_before or record.annotations is not None:
                self.changed[record.offset] = Return(
                    0, record.offset, record.delivery_count, record.annotations, record.acquired_before
                )

    def retire(self, first: int, last: int) -> None:
        low = bisect_left(self.order, first)
        high = bisect_left(self.order, last + 1, low)
        for offset in self.order[low:high]:
            record = self.records.pop(offset, None)
            if record is not None:
                self.byte_count -= len(record.body)
                if self.archives(offset):
                    self.archive(len(record.body) + RECORD_OVERHEAD_BYTES)
                else:
                    self.changed.pop(offset, None)
        if len(self.order) > COMPACT_ORDER_AT + 2 * len(self.records):
            self.order = [offset for offset in self.order if offset in self.records]

    def archives(self, offset: int) -> bool:
        return self.retention is not None and offset >= self.retention.first_offset

    def retain(self, policy: Retain) -> None:
        if self.retention is not None and (policy.keep_ms or policy.keep_bytes):
            self.retention.keep_ms = policy.keep_ms
            self.retention.keep_bytes = policy.keep_bytes
            return
        self.retention = None
        self.archive(-self.archived_bytes)
        self.forget_archived_changes()
        if policy.keep_ms or policy.keep_bytes:
            self.retention = MemoryRetention(policy, self.next_offset)

    def archive(self, octets: int) -> None:
        self.archived_bytes += octets
        self._archived.byte_count += octets

    def drop_some(self, retention: MemoryRetention, clock_ms: int) -> None:
        for offset, record in retention.drop_some(clock_ms):
            if offset not in self.records:
                self.archive(-len(record.body) - RECORD_OVERHEAD_BYTES)
        self.forget_archived_changes()

    def forget_archived_changes(self) -> None:
        for offset in [o for o in self.changed if o not in self.records and not self.archives(o)]:
            del self.changed[offset]

    def purge(self) -> None:
        if self.retention is not None:
            self.retention.purge(self.next_offset)
        self.records.clear()
        self.order.clear()
        self.changed.clear()
        self.byte_count = 0
        self.archive(-self.archived_bytes)

    def take_from(self, other: _Queue, first_offset: int, at_ms: int) -> None:
        """All its messages, from `first_offset` on without holes."""
        assert first_offset >= self.next_offset, f"moved to {first_offset}, expected {self.next_offset}"
        for new, offset in enumerate(other.records, first_offset):
            self.records[new] = other.records[offset]
            self.order.append(new)
            if offset in other.changed:
                self.changed[new] = attrs.evolve(other.changed[offset], offset=new)
        if other.records and self.retention is not None:
            self.retention.take(first_offset, list(other.records.values()), at_ms)
        if other.records:
            self.next_offset = first_offset + len(other.records)
        self.byte_count += other.byte_count

    def change(self, verb: Return) -> None:
        if verb.offset in self.records:
            self.changed[verb.offset] = verb

    def fresh(self, queue_id: int, offset: int) -> Record:
        return self.fresh_one(queue_id, offset, self.records[offset])

    def fresh_one(self, queue_id: int, offset: int, stored: Record) -> Record:
        record = Record(
            offset,
            stored.body,
            stored.message_format,
            stored.priority,
            stored.expires_at_ms,
            stored.enqueued_at_ms,
        )
        record.queue_id = queue_id
        changed = self.changed.get(offset)
        if changed is not None:
            record.delivery_count = changed.delivery_count
            record.acquired_before = changed.acquired_before
            record.annotations = changed.annotations
        return record


class MemoryStore:
    """A `Store` that forgets everything at the end of the process. It never refuses for want of room.

    Outcomes of transactions are forgotten after `discharge_keep_ms`, and beyond `discharge_keep_count`;
    events after `event_keep_ms`, and beyond `event_keep_bytes`; bodies of half messages that policy rolled
    back beyond `half_keep_bytes` (0: no such bound). `store_id` is the name of the log.
    """

    def __init__(
        self,
        *,
        discharge_keep_ms: int = KEEP_MS,
        discharge_keep_count: int = KEEP_COUNT,
        event_keep_ms: int = KEEP_EVENTS_MS,
        event_keep_bytes: int = 0,
        half_keep_bytes: int = 0,
        store_id: str = "",
    ) -> None:
        self._nodes = NodeTable()
        self._queues: dict[int, _Queue] = {}
        self._archived = _Archived()
        self._outcomes: dict[bytes, int] = {}  # in the order of their commits
        self._generations = Generations(discharge_keep_ms, discharge_keep_count)
        self._ledger = MemoryLedger(event_keep_ms, event_keep_bytes, half_keep_bytes)
        self._half_changes: HalfChanges | None = None  # of the group under way
        self._pending: list[Verb] = []
        self._numbering: dict[int, int] = {}  # next offsets, as the group under way leaves them
        self._applied = False
        self._store_id = store_id
        self._group = 0  # counts commits
        self._answers = self._who_answers()

    def recover(self) -> Recovered:
        assert not self._applied, "recover between apply and commit"
        nodes = [self._recovered(queue_id, queue) for queue_id, queue in sorted(self._queues.items())]
        return Recovered(nodes, [], *self._ledger.time)

    def _recovered(self, queue_id: int, queue: _Queue) -> RecoveredNode:
        return RecoveredNode(
            queue_id,
            queue.create.name,
            queue.create.kind,
            copy.deepcopy(queue.create.settings),
            queue.next_offset,
            len(queue.records),
            queue.byte_count,
            min(queue.records, default=queue.next_offset),
        )

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        assert not self._applied, "apply before the last group ended"
        errors: list[Exception | None] = []
        try:
            for unit in units:
                error = self._nodes.admit(unit, refuse_posts=False)
                if error is None:
                    self._check_numbering(unit)
                    self._gather_halves(unit)
                    self._pending.extend(unit)
                errors.append(error)
        except BaseException:
            self._forget()
            raise
        self._applied = True
        return errors

    def _check_numbering(self, unit: Unit) -> None:
        for verb in unit:
            assert type(verb) is not Discharged or verb is unit[-1], f"{verb!r} is not the last verb"
            if isinstance(verb, Post):
                queue = self._queues.get(verb.queue_id)
                expected = self._numbering.get(verb.queue_id, queue.next_offset if queue else 0)
                for record in verb.records:
                    assert record.offset >= expected, f"offset {record.offset} posted, expected {expected}"
                    expected = record.offset + 1
                self._numbering[verb.queue_id] = expected

    def _gather_halves(self, unit: Unit) -> None:
        for verb in unit:
            if type(verb) in HALF_VERBS:
                assert isinstance(verb, HalfVerb)
                if self._half_changes is None:
                    self._half_changes = self._ledger.changes()
                self._half_changes.add(verb)
                if isinstance(verb, KeepTime):
                    self._ledger.tell(verb)

    def _forget(self) -> None:
        self._pending = []
        self._half_changes = None
        self._numbering.clear()
        self._nodes.forget()

    def commit(self) -> None:
        assert self._applied, "commit without apply"
        self._applied = False
        if self._half_changes is not None:
            self._ledger.keep(self._half_changes)
        self._group += 1
        for verb in self._pending:
            self._run(verb)
        self._keep_outcomes([verb for verb in self._pending if isinstance(verb, Discharged)])
        self._nodes.keep()
        self._forget()

    def _run(self, verb: Verb) -> None:
        assert not isinstance(verb, PostLarge), "a body in a file, and no disk"
        if isinstance(verb, NodeVerb):
            self._run_node_verb(verb)
            return
        if isinstance(verb, Discharged) or type(verb) in HALF_VERBS:
            return  # `commit` has it
        assert not isinstance(verb, HalfVerb)
        queue = self._queues.get(verb.queue_id)
        if queue is None:
            return  # retired or returned after its node was deleted: nothing is left to do
        if isinstance(verb, Post):
            queue.post(verb.records, self._group)
        elif isinstance(verb, Retire):
            queue.retire(verb.first_offset, verb.last_offset)
        elif isinstance(verb, Return):
            queue.change(verb)

    def _run_node_verb(self, verb: NodeVerb) -> None:
        if isinstance(verb, CreateNode):
            queue = self._queues[verb.queue_id] = _Queue(copy.deepcopy(verb), self._archived)
            if verb.keep_ms or verb.keep_bytes:
                queue.retain(Retain(verb.queue_id, verb.keep_ms, verb.keep_bytes))
        elif isinstance(verb, Configure):
            self._queues[verb.queue_id].create.settings = copy.deepcopy(verb.settings)
        elif isinstance(verb, Purge):
            self._queues[verb.queue_id].purge()
        elif isinstance(verb, Retain):
            self._queues[verb.queue_id].retain(verb)
        elif isinstance(verb, Move):
            source = self._queues[verb.from_queue_id]
            self._queues[verb.queue_id].take_from(source, verb.first_offset, verb.at_ms)
            self._delete(verb.from_queue_id)
        else:
            self._delete(verb.queue_id)

    def _delete(self, queue_id: int) -> None:
        queue = self._queues.pop(queue_id)
        queue.archive(-queue.archived_bytes)
        self._ledger.forget_queue(queue_id)

    def _keep_outcomes(self, discharges: list[Discharged]) -> None:
        if discharges:
            self._outcomes.update({verb.txn_id: verb.at_ms for verb in discharges})
            self._generations.keep(self._generations.place(discharges))

    def abandon(self) -> None:
        assert self._applied, "abandon without apply"
        self._applied = False
        self._forget()

    def ask(self, question: Question[Answer]) -> Answer:
        assert not self._applied, f"{question} between apply and commit"
        answer: Answer = self._answers[type(question)](question)
        return answer

    def _who_answers(self) -> Answers:
        ledger = self._ledger
        return dict(
            (
                questions.StoreId.answered_by(lambda _: self._store_id),
                questions.PageOf.answered_by(self._page),
                questions.FoundDamaged.answered_by(lambda q: ReadResult([], q.offset + 1, [])),
                questions.DischargedAt.answered_by(lambda q: self._outcomes.get(q.txn_id)),
                questions.HalfOf.answered_by(ledger.half),
                questions.SomeHalves.answered_by(ledger.some),
                questions.HalfBodyOf.answered_by(ledger.body),
                questions.OpenHalves.answered_by(ledger.open_ones),
                questions.HalvesOf.answered_by(ledger.page),
                questions.StreamOf.answered_by(ledger.stream),
                questions.StreamsOf.answered_by(ledger.streams),
                questions.StreamCount.answered_by(ledger.stream_count),
                questions.DecisionOf.answered_by(ledger.decision),
                questions.LatestDecisionOf.answered_by(ledger.latest_decision),
                questions.DecisionsOf.answered_by(ledger.decisions),
                questions.EventsFrom.answered_by(ledger.events),
                questions.EventRange.answered_by(ledger.event_range),
                questions.RetainedBy.answered_by(self._retained),
                questions.RetainedPageOf.answered_by(self._retained_page),
                questions.OffsetAt.answered_by(self._offset_at),
                questions.CursorsOf.answered_by(ledger.cursors),
                questions.CursorNames.answered_by(ledger.cursor_names),
                questions.Termini.answered_by(ledger.termini),
                questions.UnsettledOf.answered_by(ledger.unsettled),
                questions.HeldBy.answered_by(ledger.held),
            )
        )

    def _node(self, asked: questions.PageOf | questions.RetainedPageOf | questions.OffsetAt) -> _Queue:
        queue = self._queues.get(asked.queue_id)
        if queue is None:
            raise NoSuchNode(f"{asked} asks about a node that does not exist")
        return queue

    def _retained(self, asked: questions.RetainedBy) -> Retained | None:
        queue = self._queues.get(asked.queue_id)
        if queue is None or queue.retention is None:
            return None
        return queue.retention.describe(queue.next_offset)

    def _retained_page(self, asked: questions.RetainedPageOf) -> ReadResult:
        queue = self._node(asked)
        end = queue.next_offset
        if queue.retention is None:
            return ReadResult([], max(asked.from_offset, end), [])
        fresh = partial(queue.fresh_one, asked.queue_id)
        return queue.retention.page(asked, end, fresh)

    def _offset_at(self, asked: questions.OffsetAt) -> int:
        queue = self._node(asked)
        if queue.retention is None:
            return queue.next_offset
        return queue.retention.offset_at(asked.at_ms, queue.next_offset)

    def _page(self, asked: questions.PageOf) -> ReadResult:
        queue = self._node(asked)
        records: list[Record] = []
        size = 0
        for index in range(bisect_left(queue.order, asked.from_offset), len(queue.order)):
            offset = queue.order[index]
            stored = queue.records.get(offset)
            if stored is None:
                continue
            size += len(stored.body)
            if records and (len(records) >= asked.max_messages or size > asked.max_bytes):
                return ReadResult(records, records[-1].offset + 1, [])
            records.append(queue.fresh(asked.queue_id, offset))
        return ReadResult(records, max(asked.from_offset, queue.next_offset), [])

    def idle(self, now: float) -> bool:
        more = self._ledger.forget_step(now)
        more = self._drop_retained(now) or more
        before = self._generations.count
        self._generations.forget(self._generations.forgettable(now))
        for txn_id in [*islice(self._outcomes, before - self._generations.count)]:
            del self._outcomes[txn_id]
        return self._generations.forgettable(now) > 0 or more

    def _drop_retained(self, now: float) -> bool:
        queues = [queue for queue in self._queues.values() if queue.retention is not None]
        clock_ms = round(1_000 * now)
        for queue in queues:
            if queue.retention is not None and queue.retention.is_due(clock_ms):
                queue.drop_some(queue.retention, clock_ms)
                return True
        return False

    @property
    def kept_bytes(self) -> int:
        return self._archived.byte_count + self._ledger.kept_bytes

    def begin_spool(self, most_bytes: int = 0) -> Spool | None:
        return None

    def end_spool(self, spool: Spool, stored: bool) -> None:
        raise AssertionError("none was begun")

    @property
    def checkpoint_due(self) -> bool:
        return False

    @property
    def space(self) -> SpaceState:
        return SpaceState(free_bytes=0, low_water_bytes=0, refusing=False, ballast_present=False)

    def begin_backup(self, destination: str) -> Backup:
        raise BackupFailed("a store in memory has no file that could be copied")

    def backup_step(self) -> bool:
        raise AssertionError("none is under way")

    def end_backup(self) -> None:
        pass

    def close(self) -> None:
        self._pending = []
