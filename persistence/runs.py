"""Runs, a bounded cache in front of their table, and the changed headers of messages in them.

A run is `count` consecutive offsets of one queue in one segment. Which of them are retired is a bit set in an
int: bit i is offset `first + i`. Retiring looks for runs that were posted or read a short while ago, hence a
cache that forgets the oldest first; what it forgot is read again, many rows at once.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.spreads import Spread
from amqp_broker.persistence.table import BLOB, INTEGER, Column, SqlTable, integers
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork
from amqp_broker.persistence.verbs import Return

CACHE_MESSAGES: Final = 262_144  # 4 bytes each for the ends of bodies; a run counts 64 more for itself
RUN_OVERHEAD: Final = 64
LOAD_RUNS: Final = 256  # rows read at once when the cache misses

_RUN: Final = struct.Struct("<8q").pack
_AT_MS: Final = struct.Struct("<q").pack
_CHANGED: Final = struct.Struct("<3q?").pack


def run_checksum(
    queue_id: int,
    first_offset: int,
    count: int,
    segment_id: int,
    first_position: int,
    gone: bytes | None,
    live_count: int,
    live_bytes: int,
    total_bytes: int,
    at_ms: int = 0,
) -> int:
    """The checksum of a row of `run`, in the order of its columns; older ones have no `at_ms`, which is 0
    then.
    """
    fields = _RUN(
        queue_id, first_offset, count, segment_id, first_position, live_count, live_bytes, total_bytes
    )
    checksum = crc32(gone, crc32(fields)) if gone else crc32(fields)
    return crc32(_AT_MS(at_ms), checksum) if at_ms else checksum


def _run_of(
    queue_id: int,
    first: int,
    count: int,
    segment_id: int,
    position: int,
    gone: bytes | None,
    live_count: int,
    live_bytes: int,
    total_bytes: int,
    at_ms: int,
) -> Run:
    bits = int.from_bytes(gone, "little") if gone else 0
    return Run(
        queue_id, first, count, segment_id, position, bits, live_count, live_bytes, total_bytes, None, at_ms
    )


RUN: Final = SqlTable(
    "run",
    1,
    ("queue_id", "first_offset"),
    [
        *integers("queue_id", "first_offset", "count", "segment_id", "first_position"),
        Column("gone", BLOB, nullable=True),
        *integers("live_count", "live_bytes", "bytes"),
        Column("at_ms", INTEGER, 4),
    ],
    _run_of,
    checksum=run_checksum,
)


def _changed_checksum(
    queue_id: int, offset: int, delivery_count: int, acquired_before: int, annotations: bytes | None
) -> int:
    fields = _CHANGED(queue_id, offset, delivery_count, bool(acquired_before))
    return crc32(fields) if annotations is None else crc32(annotations, crc32(fields) ^ 1)


def _changed_of(queue_id: int, offset: int, count: int, acquired: int, annotations: bytes | None) -> Return:
    return Return(queue_id, offset, count, annotations, bool(acquired))


CHANGED: Final = SqlTable(
    "changed",
    1,
    ("queue_id", "offset"),
    [
        *integers("queue_id", "offset", "delivery_count", "acquired_before"),
        Column("annotations", BLOB, nullable=True),
    ],
    _changed_of,
    checksum=_changed_checksum,
)

# Those that hold something live from ?2 on.
_SELECT_LIVE_RUNS: Final = RUN.select(
    "WHERE queue_id=?1 AND first_offset>=coalesce("
    "(SELECT max(first_offset) FROM run WHERE queue_id=?1 AND first_offset<=?2), ?2) "
    "AND first_offset<=?3 AND live_count>0 ORDER BY first_offset LIMIT ?4"
)
# The run that holds offset ?2, if any, and those after it up to ?3.
_SELECT_RUNS: Final = RUN.select(
    "WHERE queue_id=?1 AND first_offset>=coalesce("
    "(SELECT max(first_offset) FROM run WHERE queue_id=?1 AND first_offset<=?2), ?2) "
    "AND first_offset<=?3 ORDER BY first_offset LIMIT ?4"
)


class Run:
    """A row of `run`. `end` is the offset after its last; `ends` (of bodies in its segment) may be None.

    `at_ms` is when it was published, where the node retains, else 0. It may be a part of a row of `spread`
    instead.
    """

    __slots__ = (
        "at_ms", "count", "end", "ends", "first", "gone", "live_bytes", "live_count", "position",
        "queue_id", "segment_id", "spread", "total_bytes",
    )  # fmt: skip

    def __init__(
        self,
        queue_id: int,
        first: int,
        count: int,
        segment_id: int,
        position: int,
        gone: int,
        live_count: int,
        live_bytes: int,
        total_bytes: int,
        ends: array[int] | None = None,
        at_ms: int = 0,
    ) -> None:
        self.queue_id = queue_id
        self.first = first
        self.count = count
        self.end = first + count
        self.segment_id = segment_id
        self.position = position
        self.gone = gone
        self.live_count = live_count
        self.live_bytes = live_bytes
        self.total_bytes = total_bytes
        self.ends = ends
        self.at_ms = at_ms
        self.spread: Spread | None = None

    def row(self) -> tuple[int | bytes | None, ...]:
        """The row, with a fresh checksum."""
        gone = gone_bytes(self.gone, self.count)
        return (
            self.queue_id, self.first, self.count, self.segment_id, self.position, gone,
            self.live_count, self.live_bytes, self.total_bytes,
            self.at_ms,
            run_checksum(
                self.queue_id, self.first, self.count, self.segment_id, self.position, gone,
                self.live_count, self.live_bytes, self.total_bytes, self.at_ms,
            ),
        )  # fmt: skip


def gone_bytes(gone: int, count: int) -> bytes | None:
    """The stored form of a bit set: little-endian, just as long as needed; None while nothing is gone."""
    return gone.to_bytes((count + 7) >> 3, "little") if gone else None


def bits_between(first: int, last: int, run_first: int) -> int:
    """The bits of offsets `first` to `last` in a run that begins at `run_first`."""
    return ((1 << (last - first + 1)) - 1) << (first - run_first)


def chains(runs: list[Run]) -> list[tuple[int, int, int]]:
    """(queue, first offset of the first, of the last) of each chain of runs, which are in order."""
    found: list[tuple[int, int, int]] = []
    low = high = runs[0]
    for run in runs[1:]:
        if run.first != high.end or run.queue_id != high.queue_id:
            found.append((low.queue_id, low.first, high.first))
            low = run
        high = run
    found.append((low.queue_id, low.first, high.first))
    return found


def stretches(bits: int) -> Iterator[tuple[int, int]]:
    """(place of the lowest, how many) of each group of ones that are neighbours, from the lowest on."""
    while bits:
        low = (bits & -bits).bit_length() - 1
        shifted = bits >> low
        length = (~shifted & (shifted + 1)).bit_length() - 1
        yield low, length
        bits &= ~(((1 << length) - 1) << low)


def bytes_of_bits(bits: int, ends: array[int], position: int) -> int:
    """How many bytes of bodies the set bits stand for; `position` is where bit 0 is in `ends`."""
    total = 0
    while bits:  # as `stretches`, for every commit
        low = (bits & -bits).bit_length() - 1
        shifted = bits >> low
        length = (~shifted & (shifted + 1)).bit_length() - 1
        first = position + low
        total += ends[first + length - 1] - (ends[first - 1] if first else 0)
        bits &= ~(((1 << length) - 1) << low)
    return total


class _QueueRuns:
    __slots__ = ("by_first", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.by_first: dict[int, Run] = {}

    def put(self, run: Run) -> None:
        """One that is not there; mostly the last."""
        firsts = self.firsts
        if not firsts or run.first > firsts[-1]:
            firsts.append(run.first)
        else:
            firsts.insert(bisect_right(firsts, run.first), run.first)
        self.by_first[run.first] = run


class RunCache:
    """Runs as the last commit left them. It shrinks only in `trim`, between groups. Those of `spreads` are
    held until they are gone: there are `spread_messages` in them.
    """

    def __init__(self, unit: UnitOfWork, capacity: int = CACHE_MESSAGES) -> None:
        self._unit = unit
        self._capacity = capacity
        self._held = 0
        self._queues: dict[int, _QueueRuns] = {}
        self._oldest_first: OrderedDict[tuple[int, int], Run] = OrderedDict()
        self.spreads: dict[Spread, None] = {}  # the oldest first
        self.spread_messages = 0
        self._spread_runs: dict[int, int] = {}  # by queue, how many

    def find(self, queue_id: int, offset: int, last: int) -> Run | None:
        """The first run that ends after `offset` and begins at or before `last`."""
        queue = self._queues.get(queue_id)
        if queue is not None:
            index = bisect_right(queue.firsts, offset) - 1
            if index >= 0:
                run = queue.by_first[queue.firsts[index]]
                if offset < run.end:
                    return run
        for row in self._unit.query(_SELECT_RUNS, (queue_id, offset, last, LOAD_RUNS)):
            loaded = RUN.value(row)  # a damaged row is left to `read`, which puts it into quarantine
            if loaded is not None:
                self.add(loaded)
        queue = self._queues.get(queue_id)
        if queue is None:
            return None
        index = bisect_right(queue.firsts, offset) - 1
        if index >= 0:
            run = queue.by_first[queue.firsts[index]]
            if offset < run.end:
                return run
        index += 1
        if index == len(queue.firsts):
            return None
        run = queue.by_first[queue.firsts[index]]
        return run if run.first <= last else None

    def select(self, queue_id: int, offset: int, last: int, limit: int) -> list[Row]:
        """Rows from the one that holds `offset`, or the next one, in order."""
        rows = self._unit.query(_SELECT_RUNS, (queue_id, offset, last, limit))
        return self._with_spreads(rows, queue_id, offset, last, limit) if self.is_spread(queue_id) else rows

    def _with_spreads(self, rows: list[Row], queue_id: int, offset: int, last: int, limit: int) -> list[Row]:
        """With the runs that have no row, as if they had one."""
        queue = self._queues[queue_id]
        begin = max(0, bisect_right(queue.firsts, offset) - 1)
        held = [queue.by_first[first] for first in queue.firsts[begin : bisect_right(queue.firsts, last)]]
        more = [run.row() for run in held if run.spread is not None and run.end > offset]
        return sorted([*rows, *more], key=_place_of)[:limit]

    def select_live(self, queue_id: int, offset: int, last: int, limit: int) -> list[Row]:
        """Rows in order, without those of which nothing is live: in a retaining node there may be a million
        of those.
        """
        return self._unit.query(_SELECT_LIVE_RUNS, (queue_id, offset, last, limit))

    def add(self, run: Run) -> Run:
        """Hold it; the one that is held already wins, but takes over `ends`."""
        queue = self._queues.get(run.queue_id)
        if queue is None:
            queue = self._queues[run.queue_id] = _QueueRuns()
        held = queue.by_first.get(run.first)
        if held is not None:
            if held.ends is None:
                held.ends = run.ends
            return held
        queue.put(run)
        self._oldest_first[run.queue_id, run.first] = run
        self._held += run.count + RUN_OVERHEAD
        return run

    def hold(self, spread: Spread) -> None:
        """Hold the runs of a row of `spread`."""
        self.spreads[spread] = None
        for run in spread.runs:
            queue = self._queues.get(run.queue_id)
            if queue is None:
                queue = self._queues[run.queue_id] = _QueueRuns()
            queue.put(run)
            self._spread_runs[run.queue_id] = self._spread_runs.get(run.queue_id, 0) + 1
            self.spread_messages += run.count

    def is_spread(self, queue_id: int) -> bool:
        """Whether a queue has something in a row of `spread`."""
        return queue_id in self._spread_runs

    def discard(self, queue_id: int, first: int) -> None:
        """Forget one run; harmless if it is not held."""
        run = self._oldest_first.pop((queue_id, first), None)
        if run is not None:
            self._held -= run.count + RUN_OVERHEAD
            queue = self._queues[queue_id]
        elif self._spread_runs.get(queue_id):
            queue = self._queues[queue_id]
            run = queue.by_first.get(first)
            if run is None:
                return
            self.spread_messages -= run.count
            self._spread_runs[queue_id] -= 1
            if not self._spread_runs[queue_id]:
                del self._spread_runs[queue_id]
        else:
            return
        del queue.by_first[first]
        del queue.firsts[bisect_right(queue.firsts, first) - 1]
        if not queue.firsts:
            del self._queues[queue_id]

    def discard_queue(self, queue_id: int) -> None:
        """Forget all runs of a queue, of which none is in a row of `spread`."""
        assert not self.is_spread(queue_id), "they were gathered before"
        queue = self._queues.pop(queue_id, None)
        if queue is not None:
            for first, run in queue.by_first.items():
                del self._oldest_first[queue_id, first]
                self._held -= run.count + RUN_OVERHEAD

    def trim(self) -> None:
        """Forget the oldest until the rest fits."""
        while self._held > self._capacity:
            queue_id, first = next(iter(self._oldest_first))
            self.discard(queue_id, first)

    @property
    def held(self) -> int:
        """What the runs held count against the capacity."""
        return self._held


def _place_of(row: Row) -> tuple[bool, Any]:
    """By which rows of one queue are sorted as SQLite does it, whatever damage made of a number."""
    first = row[1]
    return not isinstance(first, int), first if isinstance(first, int) else 0
