"""The statements of one group, as few as can be: one new message is a segment row and a run row."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from amqp_broker.persistence.body_files import BodyFiles
from amqp_broker.persistence.crc_combining import combined
from amqp_broker.persistence.directory import (
    DirectoryDamaged,
    body_seed,
    decode_directory,
    encode_directory,
    encode_segment,
)
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import (
    EVERYTHING,
    Group,
    LargeRun,
    MovedRun,
    NodeState,
    PendingRun,
    QueueChanges,
    SharedRun,
    SharedSegment,
    TouchedRun,
)
from amqp_broker.persistence.moving import bytes_of_moved, more_runs, run_of_moved
from amqp_broker.persistence.node_rows import (
    CONFIGURE_NODE,
    NODE,
    SET_NEXT_OFFSET,
    SET_PURGED_TO,
    TOMBSTONE_NODE,
    encoded_settings,
    identity_of,
    numbered_checksum,
)
from amqp_broker.persistence.records import Record
from amqp_broker.persistence.retained_table import DELETE_RETAINED, NO_RUN, RETAINED, Retention
from amqp_broker.persistence.runs import CHANGED, RUN, Run, RunCache, bits_between, bytes_of_bits, chains
from amqp_broker.persistence.spools import encode_head
from amqp_broker.persistence.spreads import (
    DELETE_SPREAD,
    SET_GONE,
    SPREAD,
    SPREAD_SIZES,
    Spread,
    SpreadSizes,
    changed,
    encode_places,
)
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verbs import Configure, CreateNode, Move, Return

INSERT_SEGMENT: Final = "INSERT INTO segment (id, runs, directory, bodies) VALUES (?, 1, ?, ?)"
_INSERT_PLACED: Final = (
    "INSERT INTO segment (id, runs, directory, bodies, file, at, size) VALUES (?, 1, ?, x'', ?, ?, ?)"
)
# With a copy of the head of the body, which is in the file, too.
_INSERT_LARGE: Final = (
    "INSERT INTO segment (id, runs, directory, bodies, file, at, size) VALUES (?, 1, ?, ?, ?, ?, ?)"
)
_DELETE_RUNS: Final = "DELETE FROM run WHERE queue_id=? AND first_offset BETWEEN ? AND ?"
_DELETE_SEGMENTS: Final = "DELETE FROM segment WHERE id BETWEEN ? AND ? AND runs=1"
_DELETE_EMPTY: Final = "DELETE FROM segment WHERE id=? AND runs<=?"
_LEAVE_SEGMENT: Final = "UPDATE segment SET runs=runs-? WHERE id=?"
_SHARE_SEGMENT: Final = "UPDATE segment SET runs=runs+? WHERE id=?"
NOTHING_IS_LARGE: Final = 1 << 62
_MOVED_ROW_BYTES: Final = 128  # of WAL, twice: where it was, and where it is
_SELECT_DIRECTORY: Final = "SELECT directory FROM segment WHERE id=?"
_DELETE_CHANGED: Final = "DELETE FROM changed WHERE queue_id=? AND offset BETWEEN ? AND ?"


class GroupWriter:
    """Runs a group's statements, and takes over into memory what they did once they are committed."""

    __slots__ = (
        "_at_ms", "_deletes_segments", "_durable_next", "_files", "_identities", "_large", "_large_body",
        "_large_bytes", "_moved", "_moved_kept", "_moved_rows", "_segments", "_shared", "_sizes", "_small",
        "_small_messages", "_spread_gone", "_spread_room", "_spreads", "_unit", "new_runs",
        "next_segment_id", "orphans", "touched_rows", "updated_runs", "written_bytes",
    )  # fmt: skip

    def __init__(
        self,
        unit: UnitOfWork,
        next_segment_id: int,
        deletes_segments: bool = True,
        files: BodyFiles | None = None,
        sizes: SpreadSizes = SPREAD_SIZES,
        spread_room: int = 0,
    ) -> None:
        """`spread_room`: so many messages more may be in rows of `spread`."""
        self._unit = unit
        self._sizes = sizes
        self._spread_room = spread_room
        self._small: list[tuple[int, PendingRun]] = []  # with their queues, which may share a segment
        self._small_messages = 0
        self._spreads: list[Spread] = []  # new ones
        self._spread_gone: dict[Spread, int] = {}  # the bits of those that this group changes
        self._files = files  # None: all bodies go to SQLite
        self._large_body = NOTHING_IS_LARGE if files is None else files.sizes.large_body or NOTHING_IS_LARGE
        self._large: list[tuple[int, bytes, list[bytes]]] = []  # segments of large bodies
        self._large_bytes = 0
        self._segments: list[Parameters] = []
        self._deletes_segments = deletes_segments
        self._durable_next: dict[int, int] = {}
        self._identities: dict[int, int] = {}  # of nodes with other settings, and of new ones
        self._at_ms: dict[int, int] = {}  # when the latest messages of retaining nodes were published
        self.next_segment_id = next_segment_id
        self._moved: list[MovedRun] = []
        self._moved_rows: list[Parameters] = []
        self._shared: dict[SharedSegment, None] = {}  # that this one has written
        self._moved_kept: list[Run] = []  # into nodes that retain
        self.new_runs: list[Run] = []
        self.written_bytes = 0
        self.touched_rows = 0
        self.orphans: list[int] = []  # segments that would have been deleted
        self.updated_runs = 0

    def write(self, group: Group) -> bool:
        """Run the statements inside the open transaction; False if there was nothing to do.

        Raises StoreFull or StoreCorrupt (rolled back) or StoreFailed.
        """
        did = bool(group.node_verbs or group.retains)
        if len(group.queues) < self._sizes.runs:
            self._spread_room = 0  # so nothing is small
        self._write_nodes(group)
        dead_segments: list[int] = []
        for queue_id, changes in group.queues.items():
            if changes.purged_to == EVERYTHING:
                if changes.node.retention is not None:
                    self._unit.execute(DELETE_RETAINED, (queue_id,))
                continue
            lone = changes.find_lone()
            if lone is not None and self._spread_room and self._is_small(changes, lone):
                self._add_small(queue_id, lone)
                continue
            if changes.touched:
                dead_segments.extend(self._write_touched(changes))
                did = True
            if changes.pending:
                before = len(self.new_runs)
                self._encode_pending(changes)
                did = did or len(self.new_runs) > before
            self._write_numbering(queue_id, changes)
            if changes.policy is not None or changes.purged_to != changes.node.purged_to:
                self._write_retention(queue_id, changes)
            if changes.changed or changes.retired_ranges:
                self._write_changed(queue_id, changes)
                did = True
            did = did or queue_id in self._durable_next
        if self._spread_gone:
            dead_segments.extend(self._write_spread_gone())
        if self._small:
            did = True
            self._place_small()
        if not self._deletes_segments:
            self.orphans = dead_segments
        elif dead_segments:
            self.updated_runs += delete_segments(self._unit, dead_segments)
        if group.discharges:
            fault_point("discharge.after_retires")
        if self._moved:
            self._write_moved()
        if self._large:
            self._place_large()
        if self._segments:
            self._unit.execute_many(INSERT_SEGMENT, self._segments)
        if self.new_runs:
            self._unit.execute_many(RUN.insert, [run.row() for run in self.new_runs])
            shared = [(each.rows - 1, each.segment_id) for each in self._shared if each.rows > 1]
            if shared:
                self._unit.execute_many(_SHARE_SEGMENT, shared)
        if self._spreads:
            fault_point("spread.before_rows")
            self._unit.execute_many(SPREAD.insert, [each.row(0) for each in self._spreads])
        return did

    def _write_nodes(self, group: Group) -> None:
        for verb in group.node_verbs:
            queue_id = verb.from_queue_id if isinstance(verb, Move) else verb.queue_id
            node = group.queues[queue_id].node
            if isinstance(verb, CreateNode):
                settings = encoded_settings(verb.settings)
                self._identities[queue_id] = identity_of(queue_id, verb.name, verb.kind, settings)
                self._unit.execute(NODE.insert, NODE.row(queue_id, verb.name, verb.kind, settings, 0, 0))
            elif isinstance(verb, Configure):
                settings = encoded_settings(verb.settings)
                identity = self._identities[queue_id] = identity_of(queue_id, node.name, node.kind, settings)
                checksum = numbered_checksum(identity, node.durable_next, node.purged_to)
                self._unit.execute(CONFIGURE_NODE, (settings, checksum, queue_id))
            else:
                identity = identity_of(queue_id, None, node.kind, "{}")
                checksum = numbered_checksum(identity, node.durable_next, EVERYTHING)
                self._unit.execute(TOMBSTONE_NODE, (EVERYTHING, checksum, queue_id))

    def _write_touched(self, changes: QueueChanges) -> list[int]:
        """One statement for each run that lives on, one for each chain of neighbours that are wholly gone."""
        dying: list[Run] = []
        updates: list[Parameters] = []
        keep_from = changes.keep_from
        for touched in changes.touched.values():
            if touched.run.spread is not None:
                self._retire_spread(touched.run, touched.gone)
            elif touched.live_count == 0 and touched.run.first < keep_from:
                dying.append(touched.run)
            elif touched.gone != touched.run.gone:
                updates.append(self._updated(touched).row())
                if touched.run.first < keep_from:
                    self.updated_runs += 1
        self.touched_rows += len(changes.touched)
        if updates:
            archives = keep_from != EVERYTHING
            if archives:
                fault_point("retain.before_rows")
            self._unit.execute_many(RUN.replace, updates)
            if archives:
                fault_point("retain.after_rows")
        if dying:
            dying.sort(key=attrgetter("first"))
            self._unit.execute_many(_DELETE_RUNS, chains(dying))
        return [run.segment_id for run in dying]

    def _retire_spread(self, run: Run, gone: int) -> None:
        spread = run.spread
        assert spread is not None
        bits = self._spread_gone.get(spread, spread.gone)
        self._spread_gone[spread] = bits | gone << run.position

    def _write_spread_gone(self) -> list[int]:
        """The segments of those of which nothing is left."""
        rows: list[Parameters] = []
        dead: list[int] = []
        for spread, gone in self._spread_gone.items():
            if gone.bit_count() == spread.count:
                dead.append(spread.segment_id)
            else:
                rows.append(changed(spread.row(gone)))
        if rows:
            self._unit.execute_many(SET_GONE, rows)
        if dead:
            self._unit.execute_many(DELETE_SPREAD, [(segment_id,) for segment_id in dead])
        fault_point("spread.after_gone")
        return dead

    def _updated(self, touched: TouchedRun) -> Run:
        run = touched.run
        live_bytes = 0
        if touched.live_count:
            if run.ends is None:
                run.ends = self._load_ends(run)
            live_bytes = run.live_bytes - bytes_of_bits(touched.gone & ~run.gone, run.ends, run.position)
        return Run(
            run.queue_id, run.first, run.count, run.segment_id, run.position, touched.gone,
            touched.live_count, live_bytes, run.total_bytes, run.ends, run.at_ms,
        )  # fmt: skip

    def _load_ends(self, run: Run) -> array[int]:
        rows = self._unit.query(_SELECT_DIRECTORY, (run.segment_id,))
        try:
            ends = decode_directory(rows[0][0]).ends if rows else array("I")
        except DirectoryDamaged:
            ends = array("I")
        if len(ends) >= run.position + run.count:
            return ends
        # `read` will put the run into quarantine; until then nobody knows the sizes, and counting goes on
        # with 0.
        return array("I", bytes(4 * (run.position + run.count)))

    def _encode_pending(self, changes: QueueChanges) -> None:
        keep_from = changes.keep_from
        at_ms = 0
        if keep_from != EVERYTHING and changes.retains_from < 0 and changes.node.retention is not None:
            at_ms = changes.node.retention.at_ms
        for pending in changes.pending:
            kept = pending.first >= keep_from
            if isinstance(pending, MovedRun):
                if kept:
                    at_ms = self._at_ms[changes.node.queue_id] = max(at_ms, pending.at_ms)
                self._place(changes, pending, at_ms if kept else 0)
            elif isinstance(pending, SharedRun):
                assert not kept, "what a node keeps has segments of its own"
                if pending.live_count:
                    self.new_runs.append(self._shared_run(changes.node.queue_id, pending))
            elif isinstance(pending, LargeRun):
                if pending.live_count or kept:
                    run = self._large_run(changes.node.queue_id, pending)
                    if kept:
                        at_ms = max(at_ms, pending.record.enqueued_at_ms)
                        run.at_ms = self._at_ms[changes.node.queue_id] = at_ms
                    self.new_runs.append(run)
            elif self._spread_room and not kept and self._is_small(changes, pending):
                self._add_small(changes.node.queue_id, pending)
            elif pending.live_count or (kept and pending.records):
                if kept:
                    at_ms = max(at_ms, max([record.enqueued_at_ms for record in pending.records]))
                    self._at_ms[changes.node.queue_id] = at_ms
                run = self._add_run(changes.node.queue_id, pending)
                if kept:
                    run.at_ms = at_ms

    def _add_run(self, queue_id: int, pending: PendingRun) -> Run:
        """Have messages become a run with a segment of its own."""
        segment_id = self.next_segment_id
        ends = self._add_segment(pending.records, pending.total_bytes)
        run = _new_run(queue_id, pending, segment_id, ends)
        self.new_runs.append(run)
        return run

    def _is_small(self, changes: QueueChanges, pending: PendingRun) -> bool:
        """Whether it may be a part of a row of `spread`: nothing of it is gone, and the node never keeps what
        is.
        """
        count = len(pending.records)
        return (
            0 < count <= self._sizes.run_messages
            and pending.total_bytes <= self._sizes.run_bytes
            and not pending.gone
            and self._small_messages + count <= self._spread_room
            and pending.total_bytes < self._large_body * count
            and changes.node.retention is None
            and changes.policy is None
        )

    def _add_small(self, queue_id: int, pending: PendingRun) -> None:
        self._small.append((queue_id, pending))
        self._small_messages += len(pending.records)

    def _place_small(self) -> None:
        """Small runs of many queues share segments; those of few have their own."""
        small, sizes = self._small, self._sizes
        begin = 0
        if len(small) < sizes.runs:
            for queue_id, pending in small:
                self._add_run(queue_id, pending)
            return
        while begin < len(small):
            records: list[Record] = []
            size = 0
            end = begin
            while end < len(small):
                pending = small[end][1]
                if records and (
                    len(records) + len(pending.records) > sizes.messages
                    or size + pending.total_bytes > sizes.bytes
                ):
                    break
                records.extend(pending.records)
                size += pending.total_bytes
                end += 1
            self._add_spread(small[begin:end], records, size)
            begin = end

    def _add_spread(self, small: list[tuple[int, PendingRun]], records: list[Record], size: int) -> None:
        segment_id = self.next_segment_id
        ends = self._add_segment(records, size)
        places = encode_places(
            [(queue_id, pending.first, len(pending.records)) for queue_id, pending in small]
        )
        spread = Spread(segment_id, len(records), 0, places)
        self.written_bytes += len(places)
        position = 0
        for queue_id, pending in small:
            count = len(pending.records)
            first, octets = pending.first, pending.total_bytes
            run = Run(queue_id, first, count, segment_id, position, 0, count, octets, size, ends)
            run.spread = spread
            spread.runs.append(run)
            position += count
        self._spreads.append(spread)

    def _add_segment(self, records: list[Record], size: int) -> array[int]:
        """Have messages of `size` bytes become the next segment; where their bodies end in it."""
        segment_id = self.next_segment_id
        self.next_segment_id += 1
        directory, bodies, ends = encode_segment(records, segment_id)
        self.written_bytes += len(directory)
        if size >= self._large_body * len(records):
            self._large.append((segment_id, directory, bodies))
            self._large_bytes += size
        else:
            self._segments.append((segment_id, directory, b"".join(bodies)))
            self.written_bytes += size
        return ends

    def _place_large(self) -> None:
        """Large bodies go to a file where they are enough for one."""
        assert self._files is not None
        if self._large_bytes < self._files.sizes.commit:
            self.written_bytes += self._large_bytes
            for segment_id, directory, bodies in self._large:
                self._segments.append((segment_id, directory, b"".join(bodies)))
            return
        places = self._files.place([bodies for _, _, bodies in self._large])
        rows = [(one[0], one[1], *place) for one, place in zip(self._large, places, strict=True)]
        self._unit.execute_many(_INSERT_PLACED, rows)

    def _shared_run(self, queue_id: int, pending: SharedRun) -> Run:
        """The row of a run in a segment of several, which is written for the first of them."""
        segment, position = pending.segment, pending.position
        if segment not in self._shared:  # though a writer that failed may have said where it put it
            segment.rows = 0
            segment.segment_id = self.next_segment_id
            segment.ends = self._add_segment(segment.records, segment.total_bytes)
            self._shared[segment] = None
        assert segment.ends is not None, "written for the first of its runs"
        segment.rows += 1
        live = bits_between(0, pending.count - 1, 0) & ~pending.gone
        return Run(
            queue_id, pending.first, pending.count, segment.segment_id, position, pending.gone,
            pending.live_count, bytes_of_bits(live, segment.ends, position), segment.total_bytes,
            segment.ends,
        )  # fmt: skip

    def _large_run(self, queue_id: int, pending: LargeRun) -> Run:
        """The rows of a message whose body is in a file of its own. Its segment is its own also where others
        have the same octets: it says what is of this message alone.
        """
        assert self._files is not None
        record, tail = pending.record, pending.record.tail
        self._files.join(tail.file.number)
        size = tail.whole_size
        segment_id = self.next_segment_id
        self.next_segment_id += 1
        seed = body_seed(segment_id)
        directory = encode_directory(record, size, combined(seed, tail.crc, size))
        head = encode_head(tail.head, seed)
        place = (tail.file.number, tail.at - len(tail.head), size)
        self._unit.execute(_INSERT_LARGE, (segment_id, directory, head, *place))
        self.written_bytes += len(directory) + len(head)
        return Run(
            queue_id, pending.first, 1, segment_id, 0, pending.gone, pending.live_count,
            size * pending.live_count, size, array("I", (size,)),
        )  # fmt: skip

    def _place(self, changes: QueueChanges, moved: MovedRun, at_ms: int) -> None:
        if moved.live_count == 0 and moved.first < changes.keep_from:
            return  # its old row goes with the node that it was in
        if moved.run.ends is None and (
            moved.count != moved.run.count or 0 < moved.live_count < moved.run.count
        ):
            moved.run.ends = self._load_ends(moved.run)
        run = run_of_moved(changes.node.queue_id, moved, at_ms)
        if moved.first >= changes.keep_from:
            run.total_bytes = bytes_of_moved(moved)
            self._moved_kept.append(run)
        self._moved.append(moved)
        self._moved_rows.append(run.row())

    def _write_moved(self) -> None:
        """The rows leave their old places and get new ones; no body is touched."""
        fault_point("move.before_rows")
        left = sorted({one.run for one in self._moved}, key=attrgetter("queue_id", "first"))
        self._unit.execute_many(_DELETE_RUNS, chains(left))
        self._unit.execute_many(RUN.insert, self._moved_rows)
        self._unit.execute_many(_SHARE_SEGMENT, more_runs(self._moved))
        self.written_bytes += _MOVED_ROW_BYTES * len(self._moved)
        fault_point("move.after_rows")

    def _write_numbering(self, queue_id: int, changes: QueueChanges) -> None:
        """The highest run tells `next_offset`; where it goes, the node's row has to."""
        node = changes.node
        if changes.purged_to != node.purged_to:
            checksum = self._node_checksum(node, changes)
            self._unit.execute(SET_PURGED_TO, (changes.next_offset, changes.purged_to, checksum, queue_id))
            self._durable_next[queue_id] = changes.next_offset
            return
        if max(node.durable_next, self._top_end(changes)) < changes.next_offset:
            checksum = self._node_checksum(node, changes)
            self._unit.execute(SET_NEXT_OFFSET, (changes.next_offset, checksum, queue_id))
            self._durable_next[queue_id] = changes.next_offset

    def _node_checksum(self, node: NodeState, changes: QueueChanges) -> int:
        identity = self._identities.get(node.queue_id, node.identity)
        return numbered_checksum(identity, changes.next_offset, changes.purged_to)

    def _top_end(self, changes: QueueChanges) -> int:
        """Where the highest run ends after this group, 0 if it is not known any more."""
        for pending in reversed(changes.pending):
            if pending.live_count or (pending.first >= changes.keep_from and pending.end() > pending.first):
                return pending.end()
        if changes.purged_to != changes.node.purged_to:
            return 0
        for touched in changes.touched.values():
            if touched.live_count == 0 and touched.run.end == changes.node.top_end:
                return changes.node.top_end if touched.run.first >= changes.keep_from else 0
        return changes.node.top_end

    def _write_retention(self, queue_id: int, changes: QueueChanges) -> None:
        retention = self._retention_after(changes)
        if retention is not None:
            fault_point("retain.before_rows")
            self._unit.execute(RETAINED.replace, retention.row(queue_id))
            fault_point("retain.after_rows")

    def _retention_after(self, changes: QueueChanges) -> Retention | None:
        """The retention of a node as this group leaves it, without what the runs say."""
        before, policy = changes.node.retention, changes.policy
        if before is None and policy is None:
            return None
        keep_ms, keep_bytes, first, swept_to, at_ms = 0, 0, 0, changes.swept_to, 0
        if before is not None:
            keep_ms, keep_bytes = before.keep_ms, before.keep_bytes
            first, swept_to = before.first_offset, before.swept_to
            at_ms = before.at_ms if changes.retains_from < 0 else 0
        if policy is not None:
            keep_ms, keep_bytes = policy.keep_ms, policy.keep_bytes
        first = max(first, changes.retains_from)
        if changes.purged_to != changes.node.purged_to:
            first, swept_to = max(first, changes.purged_to), max(swept_to, changes.purged_to)
        at_ms = max(at_ms, self._at_ms.get(changes.node.queue_id, 0))
        return Retention(keep_ms, keep_bytes, first, swept_to, at_ms)

    def _write_changed(self, queue_id: int, changes: QueueChanges) -> None:
        if changes.retired_ranges:
            rows = [(queue_id, first, last) for first, last in changes.retired_ranges]
            self._unit.execute_many(_DELETE_CHANGED, rows)
        if changes.changed:
            changed = [_changed_row(queue_id, verb) for verb in changes.changed.values()]
            self._unit.execute_many(CHANGED.replace, changed)

    def settle(self, group: Group, nodes: dict[int, NodeState], runs: RunCache) -> set[int]:
        """The group is durable: make memory say so. The queues that have something to sweep."""
        nodes.update(group.created)
        for verb in group.node_verbs:
            if isinstance(verb, Configure):
                nodes[verb.queue_id].settings = verb.settings
        for queue_id, identity in self._identities.items():
            nodes[queue_id].identity = identity
        sweep: set[int] = set()
        for queue_id, changes in group.queues.items():
            if changes.lone is not None:
                changes.node.top_end = changes.node.next_offset = changes.next_offset
                changes.node.live_count += changes.lone.live_count
                continue
            if changes.purged_to != changes.node.purged_to:
                runs.discard_queue(queue_id)
                sweep.add(queue_id)
                if changes.purged_to == EVERYTHING:
                    nodes.pop(queue_id, None)
                    continue
            self._settle_queue(changes, runs)
        for run in self.new_runs:
            if run.live_count:
                runs.add(run)
        for spread, gone in self._spread_gone.items():
            spread.gone = gone
            if gone.bit_count() == spread.count:
                del runs.spreads[spread]
        for spread in self._spreads:
            runs.hold(spread)
        if self._at_ms:
            self._count_retained(group)
        runs.trim()
        return sweep

    def _settle_queue(self, changes: QueueChanges, runs: RunCache) -> None:
        node = changes.node
        if changes.policy is not None or node.retention is not None:
            self._settle_retention(changes)
        node.top_end = self._top_end(changes)
        node.durable_next = self._durable_next.get(node.queue_id, node.durable_next)
        node.next_offset = changes.next_offset
        node.purged_to = changes.purged_to
        node.live_count = changes.stored_live
        for pending in changes.pending:
            node.live_count += pending.live_count
        for first, touched in changes.touched.items():
            if touched.live_count == 0:
                runs.discard(node.queue_id, first)
                touched.run.live_count = 0  # its row of `spread` may still have it
            elif touched.gone != touched.run.gone:
                run = touched.run
                assert run.ends is not None
                run.live_bytes -= bytes_of_bits(touched.gone & ~run.gone, run.ends, run.position)
                run.gone = touched.gone
                run.live_count = touched.live_count
        if changes.changed:
            node.changed_low = min(node.changed_low, min(changes.changed))
            node.changed_high = max(node.changed_high, max(changes.changed))
        elif node.live_count == 0 and node.retention is None:
            node.changed_low, node.changed_high = EVERYTHING, -1

    def _settle_retention(self, changes: QueueChanges) -> None:
        node = changes.node
        after = self._retention_after(changes)
        assert after is not None
        before = node.retention
        if before is not None and changes.retains_from < 0 and changes.purged_to == changes.node.purged_to:
            after.byte_count, after.low_at_ms = before.byte_count, before.low_at_ms
            after.believed_to = before.believed_to
        node.retention = after
        node.keep_from = after.first_offset if after.retains() else EVERYTHING

    def _count_retained(self, group: Group) -> None:
        for run in sorted([*self.new_runs, *self._moved_kept], key=attrgetter("first")):
            node = group.queues[run.queue_id].node
            if node.retention is not None and run.first >= node.keep_from:
                node.retention.byte_count += run.total_bytes
                if node.retention.low_at_ms == NO_RUN:
                    node.retention.low_at_ms = run.at_ms


def delete_segments(unit: UnitOfWork, segment_ids: list[int]) -> int:
    """Take a run away from each segment; those that have no other are deleted. How many are left, and may be
    worth rewriting now. Raises as `UnitOfWork.execute`.
    """
    segment_ids.sort()
    ranges = list(_ranges(segment_ids))
    deleted = unit.execute_many(_DELETE_SEGMENTS, ranges)
    if deleted != len(segment_ids):
        # Some are shared. Those that were deleted are not hit again, and the others lose so many runs.
        leaving = Counter(segment_ids)
        unit.execute_many(_DELETE_EMPTY, [(segment_id, count) for segment_id, count in leaving.items()])
        return unit.execute_many(
            _LEAVE_SEGMENT, [(count, segment_id) for segment_id, count in leaving.items()]
        )
    return 0


def _ranges(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending ids as ranges of consecutive ones."""
    low = high = -1
    for value in ids:
        if value != high + 1 or low < 0:
            if low >= 0:
                yield low, high
            low = value
        high = value
    if low >= 0:
        yield low, high


def _new_run(queue_id: int, pending: PendingRun, segment_id: int, ends: array[int]) -> Run:
    count = len(pending.records)
    live_bytes = pending.total_bytes
    if pending.gone:
        live_bytes -= bytes_of_bits(pending.gone, ends, 0)
    return Run(
        queue_id, pending.first, count, segment_id, 0, pending.gone,
        pending.live_count, live_bytes, pending.total_bytes, ends,
    )  # fmt: skip


def _changed_row(queue_id: int, verb: Return) -> Parameters:
    acquired = int(verb.acquired_before)
    return CHANGED.row(queue_id, verb.offset, verb.delivery_count, acquired, verb.annotations)
