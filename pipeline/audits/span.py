"""From where to where a log goes: what an audit may judge depends on whether it sees the beginning."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

FIRST_LSN = 1


@attrs.frozen
class Span:
    """First and last number of the log, times in microseconds of the Unix epoch, and how many events."""

    first_lsn: int
    last_lsn: int
    begin_us: int
    end_us: int
    events: int

    @property
    def complete(self) -> bool:
        """Whether it begins with the first event that the broker ever wrote: what is not in it never was."""
        return self.first_lsn <= FIRST_LSN

    @property
    def begin(self) -> datetime:
        """The time of the first event."""
        return datetime.fromtimestamp(self.begin_us / 1e6, UTC)

    @property
    def end(self) -> datetime:
        """The time of the last event."""
        return datetime.fromtimestamp(self.end_us / 1e6, UTC)


EMPTY = Span(FIRST_LSN, FIRST_LSN - 1, 0, 0, 0)


def span_of(events: DataFrame) -> Span:
    """The span of these events; one light pass over two columns."""
    at_us = F.unix_micros("time")
    row = events.agg(F.min("lsn"), F.max("lsn"), F.min(at_us), F.max(at_us), F.count(F.lit(1))).collect()[0]
    if row[0] is None:
        return EMPTY
    return Span(int(row[0]), int(row[1]), int(row[2]), int(row[3]), int(row[4]))
