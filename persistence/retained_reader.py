"""Pages of what a node retains, live and archived alike, and where in it a time is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.directory import Directory
from amqp_broker.persistence.group import NodeState
from amqp_broker.persistence.questions import MISSING, MISSING_AT_ONCE, Quarantined, ReadResult
from amqp_broker.persistence.reader import MOST_ROWS, Page, PageReader, RawSegment
from amqp_broker.persistence.records import Record
from amqp_broker.persistence.runs import RUN, Run, RunCache
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

_PROBE: Final = RUN.select(
    "WHERE queue_id=? AND first_offset BETWEEN ? AND ? ORDER BY first_offset LIMIT ?"
)
_QUARANTINED: Final = "SELECT queue_id, offset, segment_id, bytes IS NULL FROM quarantine ORDER BY offset"
PROBE_ROWS: Final = 2  # one damaged row costs no further question


class _RetainedPage(Page):
    """Full also when too much is missing: nothing that is told has no bound."""

    def full(self) -> bool:
        return len(self.quarantined) >= MISSING_AT_ONCE or Page.full(self)


@attrs.define
class _Quarantined:
    """What of one queue is in quarantine: `offsets` in order, and where whole runs are, theirs by `segments`.
    Numbers of segments that are gone come again after a restart, offsets never do.
    """

    offsets: list[int] = attrs.field(factory=list)
    segments: dict[int, list[int]] = attrs.field(factory=dict)

    def bits_of(self, run: Run) -> int:
        """The bits of a run's messages that are: all of those are retired, too."""
        if any(run.first <= offset < run.end for offset in self.segments.get(run.segment_id, ())):
            return run.gone
        bits = 0
        begin = bisect_left(self.offsets, run.first)
        for offset in self.offsets[begin : bisect_left(self.offsets, run.end)]:
            bits |= 1 << (offset - run.first)
        return bits & run.gone


class RetainedReader(PageReader):
    """Reads pages of retaining nodes. It changes nothing: what is damaged is told each time it is met. What
    was in quarantine when it was first asked, which includes all that an administrator removed, is missing.
    To it nothing of a run is retired, hence no cache learns of its runs.
    """

    def __init__(self, unit: UnitOfWork, directory: Path) -> None:
        super().__init__(unit, RunCache(unit), directory, learning=False)
        self._quarantined: dict[int, _Quarantined] | None = None

    def page(self, node: NodeState, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """The answer to RetainedPageOf. Raises StoreFailed, StoreCorrupt."""
        begin = max(from_offset, node.keep_from)
        if begin >= node.next_offset:
            return ReadResult([], max(from_offset, node.next_offset), [])
        if self._quarantined is None:
            self._quarantined = self._read_quarantine()
        page = _RetainedPage(node, begin, max(max_messages, 1), max_bytes)
        return _without_holes(self._fill(page, from_offset, self._runs.select), begin)

    def _read_quarantine(self) -> dict[int, _Quarantined]:
        found: dict[int, _Quarantined] = {}
        for queue_id, offset, segment_id, whole in self._unit.query(_QUARANTINED):
            one = found.setdefault(queue_id, _Quarantined())
            one.offsets.append(offset)
            if whole:
                one.segments.setdefault(segment_id, []).append(offset)
        return found

    def _run_of(self, row: Row) -> Run | None:
        run = RUN.value(row)
        if run is not None:
            quarantined = self._quarantined.get(run.queue_id) if self._quarantined else None
            run.gone = 0 if quarantined is None else quarantined.bits_of(run)
            run.live_count = run.count - run.gone.bit_count()
            run.live_bytes = run.total_bytes
        return run

    def _take_one(self, page: Page, run: Run, raw: RawSegment) -> bool:
        taken = not run.gone and super()._take_one(page, run, raw)
        if taken:
            _tell_times(page.records[-1:], run)
        return taken

    def _append(
        self, page: Page, run: Run, directory: Directory, indexes: Sequence[int], bodies: list[bytes]
    ) -> None:
        begin = len(page.records)
        super()._append(page, run, directory, indexes, bodies)
        _tell_times(page.records[begin:], run)

    def _lose_row(self, page: Page, row: Row, seen_below: int) -> None:
        """Its values are not believed: what it stood for is missing between its neighbours."""


def _tell_times(records: list[Record], run: Run) -> None:
    """The time told is that by which `offset_at` finds it: what was moved is older than its publication."""
    at_ms = run.at_ms
    for record in records:
        if record.enqueued_at_ms < at_ms:
            record.enqueued_at_ms = at_ms


def _without_holes(page: Page, begin: int) -> ReadResult:
    """The page, with each number that it has no message for told."""
    if len(page.records) == page.at - begin:
        return ReadResult(page.records, page.at, [])
    told = {quarantined.offset: quarantined for quarantined in page.quarantined}
    here = {record.offset for record in page.records}
    found: list[Quarantined] = []
    for offset in range(begin, page.at):
        if offset in here:
            continue
        found.append(told.get(offset) or Quarantined(page.node.queue_id, offset, MISSING))
        if len(found) == MISSING_AT_ONCE:
            records = [record for record in page.records if record.offset <= offset]
            return ReadResult(records, offset + 1, found)
    return ReadResult(page.records, page.at, found)


def offset_at(unit: UnitOfWork, node: NodeState, at_ms: int) -> int:
    """The answer to OffsetAt. Times never fall, so some thirty runs are looked at, however many there are.

    Raises StoreFailed, StoreCorrupt.
    """
    low = node.keep_from
    high = found = node.next_offset
    while low < high:
        middle = (low + high) // 2
        run = _next_sound(unit, node.queue_id, middle, high - 1)
        if run is None:
            high = middle
        elif run.at_ms >= at_ms:
            found, high = run.first, middle
        else:
            low = run.end
    return found


def _next_sound(unit: UnitOfWork, queue_id: int, first: int, last: int) -> Run | None:
    """The first run that begins there and matches its checksum: damaged ones do not lead a search astray."""
    limit = PROBE_ROWS
    while True:
        rows = unit.query(_PROBE, (queue_id, first, last, limit))
        run = next((run for run in map(RUN.value, rows) if run is not None), None)
        if run is not None or len(rows) < limit or not isinstance(rows[-1][1], int):
            return run
        first = rows[-1][1] + 1
        limit = min(limit * 4, MOST_ROWS)
