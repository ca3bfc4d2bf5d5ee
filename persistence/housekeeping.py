"""What the store does for itself, in bounded steps between commits: sweeping and compaction."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.body_files import PLACED, bodies_of
from amqp_broker.persistence.directory import Directory, DirectoryDamaged, decode_directory
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import EVERYTHING, NodeState
from amqp_broker.persistence.group_writer import delete_segments
from amqp_broker.persistence.runs import RUN, Run, RunCache
from amqp_broker.persistence.stream_table import forget_streams
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

SWEEP_RUNS: Final = 256  # deleted in one step
SWEEP_NODES: Final = 256  # of which they are
SWEEP_BYTES: Final = 8 * 1024 * 1024  # of bodies in them: SQLite reads each page that it frees
SCAN_RUNS: Final = 1024  # rows of `run` that one step of compaction looks at
SPARSE_BYTES: Final = 64 * 1024  # a smaller segment is not worth rewriting
SPARSE_FRACTION: Final = 4  # sparse: less than a quarter is live
REWRITES: Final = 8  # segments in one step

_SWEEP_RUNS: Final = (
    "SELECT first_offset, segment_id, bytes FROM run WHERE queue_id=? AND first_offset<? "
    "ORDER BY first_offset LIMIT ?"
)
_SCAN_RUNS: Final = RUN.select(
    "WHERE (queue_id, first_offset)>(?, ?) ORDER BY queue_id, first_offset LIMIT ?"
)
_SELECT_SEGMENT: Final = f"SELECT {PLACED} FROM segment WHERE id=? AND runs=1"
_REWRITE: Final = "UPDATE segment SET directory=?, bodies=?, file=0, at=0, size=0 WHERE id=?"


@attrs.frozen
class Swept:
    """What a step takes from one node: runs up to one, with their segments; `all`: nothing is left of it."""

    queue_id: int
    purged_to: int
    runs: Sequence[Row]
    all: bool


def sweep_step(unit: UnitOfWork, sweep: dict[int, int], orphans: list[int]) -> None:
    """Delete some of what purges and deleted nodes left, of as many of the nodes of `sweep` (up to which
    offset, by node) as a step has room for, in one commit; nodes of which nothing is left are none of `sweep`
    any more. Nodes that come and go leave one each: taken singly there would be more of them each second.

    Segments that cannot be deleted are added to `orphans`. Raises StoreFull (nothing happened), StoreCorrupt,
    StoreFailed.
    """
    taken: list[Swept] = []
    room, size = SWEEP_RUNS, 0
    for queue_id, purged_to in [*sweep.items()][:SWEEP_NODES]:
        rows = unit.query(_SWEEP_RUNS, (queue_id, purged_to, room + 1))
        count = 0
        for count, row in enumerate(rows[:room], 1):  # noqa: B007 - how far it came is what counts
            size += row[2]
            if size > SWEEP_BYTES:
                break
        streams = count == len(rows) and purged_to == EVERYTHING and forget_streams(unit, queue_id)
        taken.append(Swept(queue_id, purged_to, rows[:count], count == len(rows) and not streams))
        room -= count
        if room <= 0 or size > SWEEP_BYTES:
            break
    try:
        _sweep(unit, taken, with_segments=True)
    except StoreCorrupt:
        _sweep(unit, taken, with_segments=False)  # a damaged segment cannot be deleted, but its run can
        orphans.extend(row[1] for one in taken for row in one.runs)
    for one in taken:
        if one.all:
            del sweep[one.queue_id]


def _sweep(unit: UnitOfWork, taken: Sequence[Swept], with_segments: bool) -> None:
    segment_ids = [row[1] for one in taken for row in one.runs] if with_segments else []
    unit.begin()
    for one in taken:
        if one.runs:
            unit.execute(
                "DELETE FROM run WHERE queue_id=? AND first_offset<=?", (one.queue_id, one.runs[-1][0])
            )
        if one.all:
            unit.execute("DELETE FROM changed WHERE queue_id=? AND offset<?", (one.queue_id, one.purged_to))
            if one.purged_to == EVERYTHING:
                unit.execute("DELETE FROM node WHERE id=?", (one.queue_id,))
    if segment_ids:
        delete_segments(unit, segment_ids)
    fault_point("sweep.before_commit")
    unit.commit()


def orphan_step(unit: UnitOfWork, orphans: list[int]) -> None:
    """Try once more to delete a segment that could not be deleted with its run; a damaged one is left for
    good.

    The reason may have been an error in reading that went by. Raises StoreFull (nothing happened),
    StoreFailed.
    """
    segment_id = orphans.pop()
    try:
        unit.begin()
        delete_segments(unit, [segment_id])
        fault_point("sweep.before_commit")
        unit.commit()
    except StoreCorrupt:
        pass  # verification tells about it


class Compactor:
    """Goes round table `run`, looking for large segments of which little is live, and rewrites them.

    The rewritten segment keeps its id and positions; what is gone has no bytes any more. The checksums of
    what is live are kept as they are, so a damaged body stays a damaged body. What lay in a file lies in its
    row then.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cursor = (0, -1)
        self._round_wanted = True
        self._found: list[Run] = []

    def retired(self) -> None:
        """Something was retired in part: another round is worth while."""
        self._round_wanted = True

    def step(self, unit: UnitOfWork, runs: RunCache, nodes: dict[int, NodeState]) -> int:
        """The number of segments rewritten. Raises StoreFull (nothing happened), StoreFailed."""
        if not self._found:
            self._scan(unit, nodes)
        batch, self._found = self._found[:REWRITES], self._found[REWRITES:]
        rewritten = 0
        for run in batch:
            rewritten += self._rewrite(unit, run, runs)
        return rewritten

    def _scan(self, unit: UnitOfWork, nodes: dict[int, NodeState]) -> None:
        if self._cursor == (0, -1):
            if not self._round_wanted:
                return
            self._round_wanted = False
        rows = unit.query(_SCAN_RUNS, (*self._cursor, SCAN_RUNS))
        self._cursor = (rows[-1][0], rows[-1][1]) if len(rows) == SCAN_RUNS else (0, -1)
        for row in rows:
            if row[8] > SPARSE_BYTES and row[7] * SPARSE_FRACTION < row[8]:
                run = RUN.value(row)
                node = nodes.get(row[0])
                if run is not None and node is not None and run.first < node.keep_from:
                    self._found.append(run)

    def _rewrite(self, unit: UnitOfWork, found: Run, runs: RunCache) -> int:
        # The row may have changed since the scan.
        rows = unit.query(
            RUN.select("WHERE queue_id=? AND first_offset=?"),
            (found.queue_id, found.first),
        )
        run = RUN.value(rows[0]) if rows else None
        if run is None:
            return 0
        try:
            segments = unit.query(_SELECT_SEGMENT, (run.segment_id,))
            if not segments:
                return 0
            stored = bodies_of(self._directory, segments[0])
            if not isinstance(stored, bytes):
                return 0  # as below
            directory, bodies = _without_gone(run, decode_directory(segments[0][0]), stored)
        except (StoreCorrupt, DirectoryDamaged):
            return 0  # `read` will put it into quarantine
        run.total_bytes = run.live_bytes = len(bodies)
        unit.begin()
        unit.execute(_REWRITE, (directory.encode(), bodies, run.segment_id))
        unit.execute(RUN.replace, run.row())
        fault_point("compaction.before_commit")
        unit.commit()
        runs.discard(run.queue_id, run.first)
        return 1


def _without_gone(run: Run, directory: Directory, stored: bytes) -> tuple[Directory, bytes]:
    if directory.count < run.position + run.count:
        raise DirectoryDamaged(f"the directory has {directory.count} messages, the run wants more")
    pieces: list[bytes] = [b""] * directory.count
    for index in range(run.count):
        if not run.gone >> index & 1:
            begin, end = directory.bounds(run.position + index)
            pieces[run.position + index] = stored[begin:end]
    directory.ends = array("I", accumulate(map(len, pieces)))
    return directory, b"".join(pieces)
