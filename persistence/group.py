"""What one group (one commit) changes, gathered from its verbs before the first statement runs.

Gathering is what makes `gone` cheap: all that a group retires in one run becomes one UPDATE, or one DELETE;
and a run that was posted and wholly retired in the same group never needs a row. Nothing here changes what is
in memory for the last commit, so that abandoning a group is forgetting it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from amqp_broker.persistence.directory import MAX_SEGMENT_BYTES, MAX_SEGMENT_MESSAGES
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.records import LargeRecord, Record
from amqp_broker.persistence.retained_table import Retention
from amqp_broker.persistence.retention import Retain
from amqp_broker.persistence.runs import Run, RunCache, bits_between
from amqp_broker.persistence.verbs import (
    HALF_VERBS,
    Configure,
    Contents,
    CreateNode,
    DeleteNode,
    Discharged,
    Move,
    Post,
    PostLarge,
    Purge,
    Retire,
    Return,
    Unit,
    Verb,
)

EVERYTHING: Final = 1 << 62  # an offset above all others


class NodeState:
    """What memory holds of one node, as the last commit left it."""

    __slots__ = (
        "changed_high", "changed_low", "durable_next", "identity", "keep_from", "kind", "live_count",
        "name", "next_offset", "purged_to", "queue_id", "retention", "settings", "top_end",
    )  # fmt: skip

    def __init__(self, queue_id: int, name: str, kind: str, settings: dict[str, object]) -> None:
        self.queue_id = queue_id
        self.name = name
        self.kind = kind
        self.settings = settings
        self.identity = 0  # of its row (node_rows.py)
        self.next_offset = 0
        self.durable_next = 0  # column next_offset
        self.top_end = 0  # where the highest run ends, if known; next_offset is max(durable_next, top_end)
        self.purged_to = 0
        self.live_count = 0  # at least the number of messages with a row
        self.changed_low = EVERYTHING  # rows of `changed` are in this range
        self.changed_high = -1
        self.keep_from = EVERYTHING  # runs from here on are kept when they are wholly retired
        self.retention: Retention | None = None  # also while what it left is still to be swept


class PendingRun:
    """Messages posted by this group that will share a segment."""

    __slots__ = ("first", "gone", "live_count", "records", "total_bytes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.records: list[Record] = []
        self.total_bytes = 0
        self.gone = 0
        self.live_count = 0

    def end(self) -> int:
        return self.first + len(self.records)

    def retire(self, first: int, last: int) -> None:
        end = self.end()
        first = max(first, self.first)
        last = min(last, end - 1)
        if first <= last:
            self.gone |= bits_between(first, last, self.first)
            self.live_count = end - self.first - self.gone.bit_count()

    def is_live(self, offset: int) -> bool:
        return self.first <= offset < self.end() and not self.gone >> (offset - self.first) & 1


class MovedRun(PendingRun):
    """Stored messages that this group gives a new place: `count` of `run`, without the first `skipped`.

    `records` stays empty, so that what is posted next never begins where this would end, and is never added.
    """

    __slots__ = ("at_ms", "count", "run", "skipped")

    def __init__(self, first: int, run: Run, skipped: int, count: int, at_ms: int) -> None:
        super().__init__(first)
        self.run = run
        self.skipped = skipped
        self.count = count
        self.at_ms = at_ms
        self.live_count = count

    def end(self) -> int:
        return self.first + self.count


class SharedSegment:
    """Bodies that this group stores once for several queues; `rows` of `run` will point to them."""

    __slots__ = ("ends", "records", "rows", "segment_id", "total_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.total_bytes = 0
        self.segment_id = 0  # when it is written
        self.ends: array[int] | None = None
        self.rows = 0


class SharedRun(PendingRun):
    """Messages posted by this group whose bodies are at `position` of a segment that other queues have, too.

    `records` stays empty, as of a MovedRun.
    """

    __slots__ = ("count", "position", "segment")

    def __init__(self, first: int, segment: SharedSegment, position: int) -> None:
        super().__init__(first)
        self.segment = segment
        self.position = position
        self.count = 0

    def end(self) -> int:
        return self.first + self.count


class LargeRun(PendingRun):
    """One message whose body is in a file of its own. `records` stays empty, as of a MovedRun."""

    __slots__ = ("record",)

    def __init__(self, record: LargeRecord) -> None:
        super().__init__(record.offset)
        self.record = record
        self.total_bytes = record.tail.whole_size
        self.live_count = 1

    def end(self) -> int:
        return self.first + 1


class TouchedRun:
    """A stored run of which this group retires something."""

    __slots__ = ("gone", "live_count", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.gone = run.gone
        self.live_count = run.live_count


class QueueChanges:
    """What a group does to one queue."""

    __slots__ = (
        "changed", "keep_from", "lone", "next_offset", "node", "pending", "policy", "purged_to",
        "retains_from", "retired_ranges", "runs", "stored_live", "swept_to", "touched",
    )  # fmt: skip

    def __init__(self, node: NodeState, runs: RunCache) -> None:
        self.node = node
        self.runs = runs
        self.next_offset = node.next_offset
        self.pending: list[PendingRun] = []
        self.touched: dict[int, TouchedRun] = {}
        self.changed: dict[int, Return] = {}
        self.retired_ranges: list[tuple[int, int]] = []  # where rows of `changed` may have to go
        self.purged_to = node.purged_to
        self.stored_live = node.live_count
        self.keep_from = node.keep_from
        self.policy: Retain | None = None
        self.retains_from = -1  # where retention began or ended in this group, -1 if it did not
        self.swept_to = -1  # where it began for the first time
        self.lone: PendingRun | None = None  # all that the group does to the queue, found when it is written

    def find_lone(self) -> PendingRun | None:
        """The run that is all that the group does to the queue, which keeps nothing that is gone: of many
        queues most are such, and need no more than a look.
        """
        if len(self.pending) != 1 or self.touched or self.changed or self.retired_ranges:
            return None
        node, run = self.node, self.pending[0]
        if type(run) is PendingRun and run.records and not run.gone and self.purged_to == node.purged_to:
            if self.keep_from == EVERYTHING and self.policy is None and node.retention is None:
                self.lone = run
        return self.lone

    def post(self, records: Sequence[Record]) -> None:
        if not records:
            return
        first = records[0].offset
        count = len(records)
        assert first >= self.next_offset, f"offset {first} posted, expected {self.next_offset} or above"
        if count == 1:
            self._post_whole(records, first, len(records[0].body), alone=True)
            return
        size = sum([len(record.body) for record in records])
        if records[-1].offset - first == count - 1 and self._post_whole(records, first, size):
            return
        for record in records:
            assert record.offset >= self.next_offset, f"offset {record.offset} after {self.next_offset - 1}"
            self._post_whole((record,), record.offset, len(record.body), alone=True)

    def _post_whole(self, records: Sequence[Record], first: int, size: int, alone: bool = False) -> bool:
        """Append to the last pending run, or begin a new one; False if they need more than one."""
        count = len(records)
        last = self.pending[-1] if self.pending else None
        if (
            last is None
            or first != last.first + len(last.records)
            or len(last.records) + count > MAX_SEGMENT_MESSAGES
            or last.total_bytes + size > MAX_SEGMENT_BYTES
        ):
            if not alone and (count > MAX_SEGMENT_MESSAGES or size > MAX_SEGMENT_BYTES):
                return False
            last = PendingRun(first)
            self.pending.append(last)
        last.records.extend(records)
        last.total_bytes += size
        last.live_count += count
        self.next_offset = first + count
        for record in records:
            if record.delivery_count or record.acquired_before or record.annotations is not None:
                self._keep_changed(record)
        return True

    def _keep_changed(self, record: Record) -> None:
        self.changed[record.offset] = Return(
            self.node.queue_id,
            record.offset,
            record.delivery_count,
            record.annotations,
            record.acquired_before,
        )

    def post_large(self, record: LargeRecord) -> None:
        """Post a message whose body is in a file of its own."""
        offset = record.offset
        assert offset >= self.next_offset, f"offset {offset} posted, expected {self.next_offset} or above"
        self.pending.append(LargeRun(record))
        self.next_offset = offset + 1
        if record.delivery_count or record.acquired_before or record.annotations is not None:
            self._keep_changed(record)

    def post_shared(self, records: Sequence[Record], places: Sequence[tuple[SharedSegment, int]]) -> None:
        """Post messages whose bodies have a place in a segment already: neighbours there become one run."""
        last = self.pending[-1] if self.pending else None
        for record, (segment, position) in zip(records, places, strict=True):
            offset = record.offset
            assert offset >= self.next_offset, f"offset {offset} posted, expected {self.next_offset} or above"
            if (
                not isinstance(last, SharedRun)
                or last.segment is not segment
                or last.position + last.count != position
                or last.first + last.count != offset
            ):
                last = SharedRun(offset, segment, position)
                self.pending.append(last)
            last.count += 1
            last.live_count += 1
            self.next_offset = offset + 1
            if record.delivery_count or record.acquired_before or record.annotations is not None:
                self._keep_changed(record)

    def retire(self, first: int, last: int) -> None:
        first = max(first, self.purged_to)
        last = min(last, self.next_offset - 1)
        if first > last:
            return
        if first < self.keep_from:
            if self.changed:
                self._forget_changes(first, min(last, self.keep_from - 1))
            if first <= self.node.changed_high and last >= self.node.changed_low:
                self.retired_ranges.append((first, min(last, self.keep_from - 1)))
        if self.pending and last >= self.pending[0].first:
            for pending in self.pending:
                pending.retire(first, last)
            last = self.pending[0].first - 1
        while first <= last and self.stored_live > 0:
            run = self.runs.find(self.node.queue_id, first, last)
            if run is None:
                return
            self._retire_in(run, max(first, run.first), min(last, run.end - 1))
            first = run.end

    def _forget_changes(self, first: int, last: int) -> None:
        """In the time of the smaller one: a unit may return and retire thousands of messages, each alone."""
        if last - first < len(self.changed):
            for offset in range(first, last + 1):
                self.changed.pop(offset, None)
        else:
            for offset in [offset for offset in self.changed if first <= offset <= last]:
                del self.changed[offset]

    def _retire_in(self, run: Run, first: int, last: int) -> None:
        touched = self.touched.get(run.first)
        if touched is None:
            touched = self.touched[run.first] = TouchedRun(run)
        bits = bits_between(first, last, run.first)
        new = bits & ~touched.gone
        count = last - first + 1 if new == bits else new.bit_count()
        touched.gone |= new
        touched.live_count -= count
        self.stored_live -= count

    def change(self, verb: Return) -> None:
        if self._is_live(verb.offset):
            self.changed[verb.offset] = verb

    def _is_live(self, offset: int) -> bool:
        if not self.purged_to <= offset < self.next_offset:
            return False
        if self.pending and offset >= self.pending[0].first:
            return any(pending.is_live(offset) for pending in self.pending)
        run = self.runs.find(self.node.queue_id, offset, offset)
        if run is None:
            return False
        touched = self.touched.get(run.first)
        gone = run.gone if touched is None else touched.gone
        return not gone >> (offset - run.first) & 1

    def retain(self, verb: Retain) -> None:
        """Begin, go on with other bounds, or end; what begins or ends does so at the next message."""
        begins = bool(verb.keep_ms or verb.keep_bytes)
        if begins and self.keep_from != EVERYTHING:
            self.policy = verb
            return
        if not begins and self.node.retention is None and self.policy is None:
            return
        self.policy = verb
        self.keep_from = self.next_offset if begins else EVERYTHING
        self.retains_from = self.next_offset
        if self.swept_to < 0:
            self.swept_to = self.next_offset
        self.pending.append(PendingRun(self.next_offset))  # no run lies on both sides

    def purge(self) -> None:
        """Only the mark moves: what lies below it is swept later, in bounded steps."""
        self.pending.clear()
        self.touched.clear()
        self.changed.clear()
        self.retired_ranges.clear()
        self.stored_live = 0
        self.purged_to = self.next_offset


class Group:
    """The changes of one group, by queue, and its new and deleted nodes in their order.

    `half_changes` makes what gathers half messages, streams and events, if there are any; `move` gives the
    messages of a node their places in another one (moving.py).
    """

    __slots__ = (
        "_contents", "_half_changes", "_move", "_nodes", "_places", "_runs", "_shared", "created",
        "discharges", "halves", "node_verbs", "queues", "retains",
    )  # fmt: skip

    def __init__(
        self,
        nodes: dict[int, NodeState],
        runs: RunCache,
        half_changes: Callable[[], HalfChanges] | None = None,
        move: Callable[[QueueChanges, QueueChanges, Move], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._runs = runs
        self._half_changes = half_changes
        self._move = move
        self._shared: SharedSegment | None = None
        self._contents: Contents | None = None  # of the last post that had any, and where their bodies are
        self._places: list[tuple[SharedSegment, int]] = []
        self.halves: HalfChanges | None = None
        self.queues: dict[int, QueueChanges] = {}
        self.node_verbs: list[CreateNode | DeleteNode | Configure | Move] = []
        self.created: dict[int, NodeState] = {}
        self.discharges: list[Discharged] = []
        self.retains: set[int] = set()  # nodes with a Retain

    def changes(self, queue_id: int) -> QueueChanges | None:
        """None if there is no such node (any more)."""
        changes = self.queues.get(queue_id)
        if changes is None:
            node = self._nodes.get(queue_id)
            if node is None:
                return None
            changes = self.queues[queue_id] = QueueChanges(node, self._runs)
        return None if changes.purged_to == EVERYTHING else changes

    def add(self, unit: Unit) -> None:
        """Gather the verbs of a unit that was admitted. Raises StoreFull, StoreFailed (it may read)."""
        for verb in unit:
            kind = type(verb)
            # What is left over of a node that was deleted, nothing is to be done for.
            if kind is Post:
                assert isinstance(verb, Post)
                if (changes := self.changes(verb.queue_id)) is not None:
                    if verb.contents is None or changes.keep_from != EVERYTHING:
                        changes.post(verb.records)
                    else:
                        changes.post_shared(verb.records, self._places_of(verb.contents, verb.positions))
            elif kind is Retire:
                assert isinstance(verb, Retire)
                if (changes := self.changes(verb.queue_id)) is not None:
                    changes.retire(verb.first_offset, verb.last_offset)
            elif kind is Return:
                assert isinstance(verb, Return)
                if (changes := self.changes(verb.queue_id)) is not None:
                    changes.change(verb)
            elif kind is PostLarge:
                assert isinstance(verb, PostLarge)
                if (changes := self.changes(verb.queue_id)) is not None:
                    changes.post_large(verb.record)
            elif kind is Discharged:
                assert isinstance(verb, Discharged) and verb is unit[-1], f"{verb!r} is not the last verb"
                self.discharges.append(verb)
            elif kind in HALF_VERBS:
                self._add_half_verb(verb)
            elif isinstance(verb, CreateNode | DeleteNode | Configure | Purge | Retain):
                self._add_node_verb(verb)
            elif kind is Move:
                assert isinstance(verb, Move)
                self._add_move(verb)
            else:
                raise AssertionError(f"unknown verb {verb!r}")

    def _places_of(
        self, contents: Contents, positions: Sequence[int] | None
    ) -> Sequence[tuple[SharedSegment, int]]:
        """Where the bodies of a post are, which get their places when the first post has them."""
        if contents is not self._contents:
            self._contents = contents
            self._places = [self._place(record) for record in contents.records]
        places = self._places
        return places if positions is None else [places[at] for at in positions]

    def _place(self, record: Record) -> tuple[SharedSegment, int]:
        size = len(record.body)
        segment = self._shared
        if (
            segment is None
            or len(segment.records) == MAX_SEGMENT_MESSAGES
            or (segment.records and segment.total_bytes + size > MAX_SEGMENT_BYTES)
        ):
            segment = self._shared = SharedSegment()
        segment.records.append(record)
        segment.total_bytes += size
        return segment, len(segment.records) - 1

    def _add_half_verb(self, verb: Verb) -> None:
        if self.halves is None:
            assert self._half_changes is not None, f"{verb!r} in a group of messages"
            self.halves = self._half_changes()
        self.halves.add(verb)

    def _add_move(self, verb: Move) -> None:
        source, target = self.changes(verb.from_queue_id), self.changes(verb.queue_id)
        assert source is not None and target is not None and self._move is not None, f"{verb!r} was admitted"
        self._move(source, target, verb)
        source.purge()
        source.purged_to = EVERYTHING
        self.node_verbs.append(verb)

    def _add_node_verb(self, verb: CreateNode | DeleteNode | Configure | Purge | Retain) -> None:
        if isinstance(verb, CreateNode):
            node = NodeState(verb.queue_id, verb.name, verb.kind, verb.settings)
            self.created[verb.queue_id] = node
            created = self.queues[verb.queue_id] = QueueChanges(node, self._runs)
            self.node_verbs.append(verb)
            if verb.keep_ms or verb.keep_bytes:
                self.retains.add(verb.queue_id)
                created.retain(Retain(verb.queue_id, verb.keep_ms, verb.keep_bytes))
            return
        changes = self.changes(verb.queue_id)
        if changes is None:
            return
        if isinstance(verb, Configure):
            self.node_verbs.append(verb)
            return
        if isinstance(verb, Retain):
            self.retains.add(verb.queue_id)
            changes.retain(verb)
            return
        changes.purge()
        if isinstance(verb, DeleteNode):
            changes.purged_to = EVERYTHING
            self.node_verbs.append(verb)
