"""What retention has kept long enough goes: from the low end only, whole runs, in bounded steps."""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import NodeState
from amqp_broker.persistence.group_writer import delete_segments
from amqp_broker.persistence.housekeeping import SWEEP_BYTES
from amqp_broker.persistence.node_rows import keep_next_offset
from amqp_broker.persistence.retained_table import DELETE_RETAINED, NO_RUN, RETAINED, Retention
from amqp_broker.persistence.retention import SWEEP_RETAINED
from amqp_broker.persistence.runs import RUN, Run, RunCache, stretches
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

_SELECT: Final = RUN.select("WHERE queue_id=? AND first_offset>=? ORDER BY first_offset LIMIT ?")
_DELETE_RUN: Final = "DELETE FROM run WHERE queue_id=? AND first_offset=?"
_DELETE_CHANGED: Final = "DELETE FROM changed WHERE queue_id=? AND offset BETWEEN ? AND ?"


@attrs.define
class Dropping:
    """How far one step comes: `after` is the retention then, `passed` the runs that it leaves behind."""

    after: Retention
    passed: list[Run] = attrs.field(factory=list)

    @property
    def leaves_live(self) -> bool:
        """Is a part of what it passed still live?"""
        return any(run.live_count for run in self.passed)


def drop_step(
    unit: UnitOfWork, node: NodeState, clock_ms: int, runs: RunCache, orphans: list[int]
) -> Dropping | None:
    """Move the marks of a node past some of what is over, and delete what of it is wholly retired; None if
    nothing is over.

    Segments that cannot be deleted are added to `orphans`. Raises StoreFull (nothing happened), StoreCorrupt,
    StoreFailed.
    """
    before = node.retention
    assert before is not None, f"node {node.queue_id} does not retain"
    rows = unit.query(_SELECT, (node.queue_id, before.swept_to, SWEEP_RETAINED))
    dropping = _look(before, rows, clock_ms)
    after = dropping.after
    ended = not after.retains() and after.swept_to == after.first_offset
    if after.swept_to == before.swept_to and not ended:
        before.low_at_ms = after.low_at_ms
        return None
    try:
        _write(unit, node, dropping, ended, deletes_segments=True)
    except StoreCorrupt:
        # A damaged segment cannot be deleted, but its run can.
        _write(unit, node, dropping, ended, deletes_segments=False)
        orphans.extend([run.segment_id for run in dropping.passed if not run.live_count])
    _settle(node, dropping, ended, runs)
    return dropping


def _look(before: Retention, rows: list[Row], clock_ms: int) -> Dropping:
    after = Retention(before.keep_ms, before.keep_bytes, before.first_offset, before.swept_to, before.at_ms)
    after.byte_count, after.believed_to = before.byte_count, before.believed_to
    after.low_at_ms = NO_RUN if len(rows) < SWEEP_RETAINED else None
    dropping = Dropping(after)
    at = before.swept_to
    room = SWEEP_BYTES
    for row in rows:
        run = RUN.value(row)
        if run is None:
            # `read` puts it into quarantine, or verification tells about it.
            if isinstance(row[1], int) and row[1] >= before.first_offset:
                after.miscounted(row)
            at = max(at, row[1] + 1) if isinstance(row[1], int) else at
            continue
        if run.first >= before.first_offset:
            if not after.is_over(run.at_ms, clock_ms):
                after.low_at_ms = run.at_ms
                break
            after.byte_count -= run.total_bytes
        if not run.live_count:
            room -= run.total_bytes
        dropping.passed.append(run)
        at = run.end
        if room < 0:
            after.low_at_ms = None
            break
    if after.low_at_ms is not None:
        at = max(at, before.first_offset)  # up to there nothing else is left
    after.swept_to = at
    after.first_offset = max(before.first_offset, at)
    return dropping


def _write(
    unit: UnitOfWork, node: NodeState, dropping: Dropping, ended: bool, deletes_segments: bool
) -> None:
    before, queue_id = node.retention, node.queue_id
    assert before is not None
    dead = [run for run in dropping.passed if not run.live_count]
    unit.begin()
    fault_point("retain.before_drop")
    if dead:
        unit.execute_many(_DELETE_RUN, [(queue_id, run.first) for run in dead])
        if deletes_segments:
            delete_segments(unit, [run.segment_id for run in dead])
    if before.swept_to <= node.changed_high:
        unit.execute_many(
            _DELETE_CHANGED, [(queue_id, first, last) for first, last in _spent(before.swept_to, dropping)]
        )
    if ended:
        unit.execute(DELETE_RETAINED, (queue_id,))
    else:
        unit.execute(RETAINED.replace, dropping.after.row(queue_id))
    if _loses_top(node, dropping):
        keep_next_offset(unit, node)
    fault_point("retain.after_drop")
    unit.commit()


def _loses_top(node: NodeState, dropping: Dropping) -> bool:
    """Does the highest run go, which tells `next_offset`?"""
    return any(run.end == node.top_end and not run.live_count for run in dropping.passed)


def _spent(begin: int, dropping: Dropping) -> list[tuple[int, int]]:
    """The ranges, first and last offset, in which nothing is live any more."""
    found: list[tuple[int, int]] = []
    for run in dropping.passed:
        for low, length in stretches(~run.gone & ((1 << run.count) - 1)):
            found.append((begin, run.first + low - 1))
            begin = run.first + low + length
    found.append((begin, dropping.after.swept_to - 1))
    return [(first, last) for first, last in found if first <= last]


def _settle(node: NodeState, dropping: Dropping, ended: bool, runs: RunCache) -> None:
    if _loses_top(node, dropping):
        node.durable_next, node.top_end = node.next_offset, 0
    for run in dropping.passed:
        if not run.live_count:
            runs.discard(node.queue_id, run.first)
    node.retention = None if ended else dropping.after
    if dropping.after.retains():
        node.keep_from = dropping.after.first_offset
