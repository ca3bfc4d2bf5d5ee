"""Retention in memory: the reference for what it means.

A run is what is dropped at once: consecutive messages of one commit, as many as a segment of the store on
disk takes. They count as published together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

import attrs

from amqp_broker.persistence.directory import MAX_SEGMENT_BYTES, MAX_SEGMENT_MESSAGES
from amqp_broker.persistence.questions import (
    MISSING,
    MISSING_AT_ONCE,
    Quarantined,
    ReadResult,
    RetainedPageOf,
)
from amqp_broker.persistence.records import Record
from amqp_broker.persistence.retention import SWEEP_RETAINED, Retain, Retained


@attrs.define
class RetainedRun:
    """Offsets from `first` to before `end`. `group` tells the commit."""

    group: int
    first: int
    end: int
    byte_count: int
    at_ms: int


class MemoryRetention:
    """What one node retains: from `first_offset` on, live and archived alike."""

    def __init__(self, policy: Retain, next_offset: int) -> None:
        self.keep_ms = policy.keep_ms
        self.keep_bytes = policy.keep_bytes
        self.first_offset = next_offset
        self.at_ms = 0  # when the last one was published
        self.records: dict[int, Record] = {}
        self._runs: list[RetainedRun] = []
        self._byte_count = 0

    def post(self, records: Sequence[Record], group: int) -> None:
        """They are published."""
        first, count = records[0].offset, len(records)
        size = sum([len(record.body) for record in records])
        fits = count <= MAX_SEGMENT_MESSAGES and size <= MAX_SEGMENT_BYTES
        if records[-1].offset - first == count - 1 and (fits or self._open(group, first, count, size)):
            self._post_whole(records, group, size)
            return
        for record in records:
            self._post_whole((record,), group, len(record.body))

    def take(self, first: int, records: Sequence[Record], at_ms: int) -> None:
        """They are published out of another node."""
        self.at_ms = max(self.at_ms, at_ms)
        size = sum([len(record.body) for record in records])
        self._runs.append(RetainedRun(0, first, first + len(records), size, self.at_ms))
        self._byte_count += size
        for offset, record in enumerate(records, first):
            self.records[offset] = record

    def _open(self, group: int, first: int, count: int, size: int) -> RetainedRun | None:
        """The run that the messages may be added to."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.group != group or run.end != first:
            return None
        fits = run.end - run.first + count <= MAX_SEGMENT_MESSAGES
        return run if fits and run.byte_count + size <= MAX_SEGMENT_BYTES else None

    def _post_whole(self, records: Sequence[Record], group: int, size: int) -> None:
        first, end = records[0].offset, records[-1].offset + 1
        self._byte_count += size
        self.at_ms = max(self.at_ms, *[record.enqueued_at_ms for record in records])
        run = self._open(group, first, len(records), size)
        if run is None:
            self._runs.append(RetainedRun(group, first, end, size, self.at_ms))
        else:
            run.end = end
            run.byte_count += size
            run.at_ms = self.at_ms
        for record in records:
            self.records[record.offset] = record

    def purge(self, next_offset: int) -> None:
        """Nothing is left."""
        self.first_offset = next_offset
        self.records.clear()
        self._runs.clear()
        self._byte_count = 0

    def describe(self, next_offset: int) -> Retained:
        """The answer to RetainedBy."""
        return Retained(self.keep_ms, self.keep_bytes, self.first_offset, next_offset, self._byte_count)

    def offset_at(self, at_ms: int, next_offset: int) -> int:
        """The answer to OffsetAt."""
        return next((run.first for run in self._runs if run.at_ms >= at_ms), next_offset)

    def is_due(self, clock_ms: int) -> bool:
        """Is there something to drop?"""
        return bool(self._runs) and self._is_over(self._runs[0], clock_ms)

    def _is_over(self, run: RetainedRun, clock_ms: int) -> bool:
        too_large = bool(self.keep_bytes) and self._byte_count > self.keep_bytes
        return too_large or bool(self.keep_ms and run.at_ms + self.keep_ms <= clock_ms)

    def drop_some(self, clock_ms: int) -> list[tuple[int, Record]]:
        """Move the watermark past the oldest ones; they are returned, each with its offset."""
        gone: list[tuple[int, Record]] = []
        dropped = 0
        for run in self._runs[:SWEEP_RETAINED]:
            if not self._is_over(run, clock_ms):
                break
            self._byte_count -= run.byte_count
            for offset in range(run.first, run.end):
                record = self.records.pop(offset, None)
                if record is not None:
                    gone.append((offset, record))
            self.first_offset = run.end
            dropped += 1
        del self._runs[:dropped]
        return gone

    def page(
        self, asked: RetainedPageOf, end: int, fresh: Callable[[int, Record], Record]
    ) -> ReadResult:
        """The answer to RetainedPageOf; `end` is the node's `next_offset`."""
        records: list[Record] = []
        missing: list[Quarantined] = []
        size = 0
        begin = max(asked.from_offset, self.first_offset)
        index = max(bisect_right(self._runs, begin, key=attrgetter("first")) - 1, 0)
        for offset in range(begin, end):
            while index + 1 < len(self._runs) and self._runs[index].end <= offset:
                index += 1
            stored = self.records.get(offset)
            if stored is None:
                missing.append(Quarantined(asked.queue_id, offset, MISSING))
                if len(missing) == MISSING_AT_ONCE:
                    return ReadResult(records, offset + 1, missing)
                continue
            size += len(stored.body)
            if records and (len(records) >= asked.max_messages or size > asked.max_bytes):
                return ReadResult(records, offset, missing)
            record = fresh(offset, stored)
            record.enqueued_at_ms = max(record.enqueued_at_ms, self._runs[index].at_ms)
            records.append(record)
        return ReadResult(records, max(asked.from_offset, end), missing)
