"""The statements of one group, as few as can be: one new message is a segment row and a run row."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from amqp_broker.persistence.checksums import changed_checksum
from amqp_broker.persistence.directory import DirectoryDamaged, decode_directory, encode_segment
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import (
    EVERYTHING,
    Group,
    MovedRun,
    NodeState,
    PendingRun,
    QueueChanges,
    TouchedRun,
)
from amqp_broker.persistence.moving import former_rows, more_runs, placed
from amqp_broker.persistence.runs import RUN_COLUMNS, Run, RunCache, bytes_of_bits
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verbs import Configure, CreateNode, Move, Return

INSERT_SEGMENT: Final = "INSERT INTO segment (id, runs, directory, bodies) VALUES (?, 1, ?, ?)"
INSERT_RUN: Final = f"INSERT INTO run ({RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_RUNS: Final = "DELETE FROM run WHERE queue_id=? AND first_offset BETWEEN ? AND ?"
REPLACE_RUN: Final = f"REPLACE INTO run ({RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_SEGMENTS: Final = "DELETE FROM segment WHERE id BETWEEN ? AND ? AND runs=1"
_DELETE_EMPTY: Final = "DELETE FROM segment WHERE id=? AND runs<=?"
_LEAVE_SEGMENT: Final = "UPDATE segment SET runs=runs-? WHERE id=?"
_SHARE_SEGMENT: Final = "UPDATE segment SET runs=runs+? WHERE id=?"
_MOVED_ROW_BYTES: Final = 128  # of WAL, twice: where it was, and where it is
_SELECT_DIRECTORY: Final = "SELECT directory FROM segment WHERE id=?"
_SET_NEXT_OFFSET: Final = "UPDATE node SET next_offset=? WHERE id=?"
_SET_PURGED_TO: Final = "UPDATE node SET next_offset=?, purged_to=? WHERE id=?"
_INSERT_NODE: Final = (
    "INSERT INTO node (id, name, kind, settings, next_offset, purged_to) VALUES (?, ?, ?, ?, 0, 0)"
)
_CONFIGURE_NODE: Final = "UPDATE node SET settings=? WHERE id=?"
_TOMBSTONE_NODE: Final = "UPDATE node SET name=NULL, settings='{}', purged_to=? WHERE id=?"
_DELETE_CHANGED: Final = "DELETE FROM changed WHERE queue_id=? AND offset BETWEEN ? AND ?"
_REPLACE_CHANGED: Final = "REPLACE INTO changed VALUES (?, ?, ?, ?, ?, ?)"


_encode = json.JSONEncoder(separators=(",", ":")).encode


class GroupWriter:
    """Runs a group's statements, and takes over into memory what they did once they are committed."""

    __slots__ = (
        "_deletes_segments",
        "_durable_next",
        "_moved",
        "_moved_rows",
        "_unit",
        "new_runs",
        "next_segment_id",
        "orphans",
        "touched_rows",
        "updated_runs",
        "written_bytes",
    )

    def __init__(self, unit: UnitOfWork, next_segment_id: int, deletes_segments: bool = True) -> None:
        self._unit = unit
        self._deletes_segments = deletes_segments
        self._durable_next: dict[int, int] = {}
        self.next_segment_id = next_segment_id
        self._moved: list[MovedRun] = []
        self._moved_rows: list[Parameters] = []
        self.new_runs: list[Run] = []
        self.written_bytes = 0
        self.touched_rows = 0
        self.orphans: list[int] = []  # segments that would have been deleted
        self.updated_runs = 0

    def write(self, group: Group) -> bool:
        """Run the statements inside the open transaction; False if there was nothing to do.

        Raises StoreFull or StoreCorrupt (rolled back) or StoreFailed.
        """
        did = bool(group.node_verbs)
        self._write_nodes(group)
        dead_segments: list[int] = []
        segments: list[Parameters] = []
        for queue_id, changes in group.queues.items():
            if changes.purged_to == EVERYTHING:
                continue
            dead = self._write_touched(changes)
            dead_segments.extend(dead)
            before = len(segments)
            self._encode_pending(changes, segments)
            self._write_numbering(queue_id, changes)
            self._write_changed(queue_id, changes)
            did = did or bool(changes.touched or changes.changed or changes.retired_ranges)
            did = did or len(segments) > before or queue_id in self._durable_next
        if not self._deletes_segments:
            self.orphans = dead_segments
        elif dead_segments:
            delete_segments(self._unit, dead_segments)
        if group.discharges:
            fault_point("discharge.after_retires")
        if self._moved:
            self._write_moved()
        if segments:
            self._unit.execute_many(INSERT_SEGMENT, segments)
            self._unit.execute_many(INSERT_RUN, [run.row() for run in self.new_runs])
        return did

    def _write_nodes(self, group: Group) -> None:
        for verb in group.node_verbs:
            if isinstance(verb, CreateNode):
                settings = _encode(verb.settings)
                self._unit.execute(_INSERT_NODE, (verb.queue_id, verb.name, verb.kind, settings))
            elif isinstance(verb, Configure):
                self._unit.execute(_CONFIGURE_NODE, (_encode(verb.settings), verb.queue_id))
            else:
                queue_id = verb.from_queue_id if isinstance(verb, Move) else verb.queue_id
                self._unit.execute(_TOMBSTONE_NODE, (EVERYTHING, queue_id))

    def _write_touched(self, changes: QueueChanges) -> list[int]:
        """One statement for each run that lives on, one for each chain of neighbours that are wholly gone."""
        if not changes.touched:
            return []
        dying: list[Run] = []
        updates: list[Parameters] = []
        for touched in changes.touched.values():
            if touched.live_count == 0:
                dying.append(touched.run)
            elif touched.gone != touched.run.gone:
                updates.append(self._updated(touched).row())
        self.touched_rows += len(changes.touched)
        self.updated_runs += len(updates)
        if updates:
            self._unit.execute_many(REPLACE_RUN, updates)
        if dying:
            if len(dying) > 1:
                dying.sort(key=_first_of)
            queue_id = changes.node.queue_id
            self._unit.execute_many(_DELETE_RUNS, [(queue_id, a, b) for a, b in _neighbours(dying)])
        return [run.segment_id for run in dying]

    def _updated(self, touched: TouchedRun) -> Run:
        run = touched.run
        if run.ends is None:
            run.ends = self._load_ends(run)
        lost = bytes_of_bits(touched.gone & ~run.gone, run.ends, run.position)
        return Run(
            run.queue_id, run.first, run.count, run.segment_id, run.position, touched.gone,
            touched.live_count, run.live_bytes - lost, run.total_bytes, run.ends, run.at_ms,
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

    def _encode_pending(self, changes: QueueChanges, segments: list[Parameters]) -> None:
        for pending in changes.pending:
            if isinstance(pending, MovedRun):
                self._place(changes, pending)
            elif pending.live_count:
                segment_id = self.next_segment_id
                self.next_segment_id += 1
                directory, bodies, ends = encode_segment(pending.records, segment_id)
                segments.append((segment_id, directory, bodies))
                self.new_runs.append(_new_run(changes.node.queue_id, pending, segment_id, ends))
                self.written_bytes += len(bodies) + len(directory)

    def _place(self, changes: QueueChanges, moved: MovedRun) -> None:
        if not moved.live_count:
            return  # its old row goes with the node that it was in
        if moved.live_count != moved.run.count and moved.run.ends is None:
            moved.run.ends = self._load_ends(moved.run)
        self._moved.append(moved)
        self._moved_rows.append(placed(changes.node.queue_id, moved, 0).row())

    def _write_moved(self) -> None:
        """The rows leave their old places and get new ones; no body is touched."""
        fault_point("move.before_rows")
        self._unit.execute_many(_DELETE_RUNS, former_rows(self._moved))
        self._unit.execute_many(INSERT_RUN, self._moved_rows)
        self._unit.execute_many(_SHARE_SEGMENT, more_runs(self._moved))
        self.written_bytes += _MOVED_ROW_BYTES * len(self._moved)
        fault_point("move.after_rows")

    def _write_numbering(self, queue_id: int, changes: QueueChanges) -> None:
        """The highest run tells `next_offset`; where it goes, the node's row has to."""
        node = changes.node
        if changes.purged_to != node.purged_to:
            self._unit.execute(_SET_PURGED_TO, (changes.next_offset, changes.purged_to, queue_id))
            self._durable_next[queue_id] = changes.next_offset
            return
        if max(node.durable_next, self._top_end(changes)) < changes.next_offset:
            self._unit.execute(_SET_NEXT_OFFSET, (changes.next_offset, queue_id))
            self._durable_next[queue_id] = changes.next_offset

    def _top_end(self, changes: QueueChanges) -> int:
        """Where the highest run ends after this group, 0 if it is not known any more."""
        for pending in reversed(changes.pending):
            if pending.live_count:
                return pending.end()
        if changes.purged_to != changes.node.purged_to:
            return 0
        for touched in changes.touched.values():
            if touched.live_count == 0 and touched.run.end == changes.node.top_end:
                return 0
        return changes.node.top_end

    def _write_changed(self, queue_id: int, changes: QueueChanges) -> None:
        if changes.retired_ranges:
            rows = [(queue_id, first, last) for first, last in changes.retired_ranges]
            self._unit.execute_many(_DELETE_CHANGED, rows)
        if changes.changed:
            self._unit.execute_many(
                _REPLACE_CHANGED, [_changed_row(queue_id, v) for v in changes.changed.values()]
            )

    def settle(self, group: Group, nodes: dict[int, NodeState], runs: RunCache) -> set[int]:
        """The group is durable: make memory say so. The queues that have something to sweep."""
        nodes.update(group.created)
        for verb in group.node_verbs:
            if isinstance(verb, Configure):
                nodes[verb.queue_id].settings = verb.settings
        sweep: set[int] = set()
        for queue_id, changes in group.queues.items():
            if changes.purged_to != changes.node.purged_to:
                runs.discard_queue(queue_id)
                sweep.add(queue_id)
                if changes.purged_to == EVERYTHING:
                    nodes.pop(queue_id, None)
                    continue
            self._settle_queue(changes, runs)
        for run in self.new_runs:
            runs.add(run)
        runs.trim()
        return sweep

    def _settle_queue(self, changes: QueueChanges, runs: RunCache) -> None:
        node = changes.node
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
            elif touched.gone != touched.run.gone:
                run = touched.run
                assert run.ends is not None
                run.live_bytes -= bytes_of_bits(touched.gone & ~run.gone, run.ends, run.position)
                run.gone = touched.gone
                run.live_count = touched.live_count
        if changes.changed:
            node.changed_low = min(node.changed_low, min(changes.changed))
            node.changed_high = max(node.changed_high, max(changes.changed))
        elif node.live_count == 0:
            node.changed_low, node.changed_high = EVERYTHING, -1


def delete_segments(unit: UnitOfWork, segment_ids: list[int]) -> None:
    """Take a run away from each segment; those that have no other are deleted. Raises as
    `UnitOfWork.execute`.
    """
    segment_ids.sort()
    ranges = list(_ranges(segment_ids))
    deleted = unit.execute_many(_DELETE_SEGMENTS, ranges)
    if deleted != len(segment_ids):
        # Some are shared. Those that were deleted are not hit again, and the others lose so many runs.
        leaving = Counter(segment_ids)
        unit.execute_many(_DELETE_EMPTY, [(segment_id, count) for segment_id, count in leaving.items()])
        unit.execute_many(_LEAVE_SEGMENT, [(count, segment_id) for segment_id, count in leaving.items()])


def _first_of(run: Run) -> int:
    return run.first


def _neighbours(runs: list[Run]) -> Iterator[tuple[int, int]]:
    """(first offset of the first, of the last) for each chain of runs without a gap between them."""
    low = high = runs[0]
    for run in runs[1:]:
        if run.first != high.end:
            yield low.first, high.first
            low = run
        high = run
    yield low.first, high.first


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
    checksum = changed_checksum(queue_id, verb.offset, verb.delivery_count, acquired, verb.annotations)
    return (queue_id, verb.offset, verb.delivery_count, acquired, verb.annotations, checksum)
