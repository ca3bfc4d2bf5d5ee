"""What each retaining node keeps, and up to where that was dropped: table `retained`, and its like in memory.

           swept_to        first_offset                    next_offset
    ----------|-----------------|-------------------------------|
     nothing  | archived ones   | all are kept, also those that |
     archived | wait to be      | are wholly retired (ARCHIVED) |
     is left  | swept           |                               |

Housekeeping moves both marks, and together; only `Retain`, which begins or ends retention at the node's
`next_offset`, moves `first_offset` alone. What is live stays where it is, on either side.
"""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.runs import RUN
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import SqlTable, integers
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

DELETE_RETAINED: Final = "DELETE FROM retained WHERE queue_id=?"
NO_RUN: Final = 1 << 62  # `low_at_ms` while there is none: later than all times
VERIFY_ROWS: Final = 1024  # of `run` that are looked at in one step: four milliseconds
LATEST_ROWS: Final = 256  # the same at the start: where all of them are damaged, what `retained` says counts
_BYTES: Final = "SELECT coalesce(sum(bytes), 0) FROM run WHERE queue_id=? AND first_offset>=?"
_DOWNWARDS: Final = RUN.select(
    "WHERE queue_id=? AND first_offset>=? AND first_offset<? ORDER BY first_offset DESC LIMIT ?"
)
_LOWEST: Final = (
    "SELECT first_offset FROM run WHERE queue_id=? AND first_offset>=? ORDER BY first_offset LIMIT 1"
)


@attrs.define(eq=False)
class Retention:
    """The retention of one node, as the last commit left it. It may have ended, and wait for the sweep only.

    `at_ms` is when the latest message was published; `low_at_ms` when the oldest one that is kept was, None
    if that is not known. `byte_count` has the rows of `run` below `believed_to` as they say, also damaged
    ones, until `verify_step` has looked at them.
    """

    keep_ms: int
    keep_bytes: int
    first_offset: int
    swept_to: int
    at_ms: int
    byte_count: int = 0
    believed_to: int = 0
    low_at_ms: int | None = NO_RUN

    def retains(self) -> bool:
        """Whether the node retains settled messages; False if its retention has ended."""
        return bool(self.keep_ms or self.keep_bytes)

    def row(self, queue_id: int) -> Parameters:
        """The row of the retention, in the order of the columns."""
        return RETAINED.row(
            queue_id, self.keep_ms, self.keep_bytes, self.first_offset, self.swept_to, self.at_ms
        )

    def to_be_verified(self) -> bool:
        """Could a damaged row make the bytes more, or less, than there are?"""
        return bool(self.keep_bytes) and self.first_offset < self.believed_to

    def miscounted(self, row: Row) -> None:
        """A row of `run` does not match its checksum: nobody knows what it is counted for."""
        if isinstance(row[1], int) and row[1] < self.believed_to and isinstance(row[8], int):
            self.byte_count -= row[8]

    def is_over(self, at_ms: int, clock_ms: int) -> bool:
        """Is the oldest run, published at `at_ms`, to be dropped?"""
        too_many = 0 < self.keep_bytes < self.byte_count
        return too_many or bool(self.keep_ms and at_ms + self.keep_ms <= clock_ms)

    def is_due(self, clock_ms: int) -> bool:
        """Is there something to sweep, as far as known?"""
        if self.swept_to < self.first_offset or not self.retains() or self.low_at_ms is None:
            return True
        return self.low_at_ms != NO_RUN and self.is_over(self.low_at_ms, clock_ms)


RETAINED: Final = SqlTable(
    "retained",
    4,
    ("queue_id",),
    integers("queue_id", "keep_ms", "keep_bytes", "first_offset", "swept_to", "at_ms"),
    lambda _, *values: Retention(*values),
)


def load_retentions(unit: UnitOfWork) -> dict[int, Retention]:
    """By node, without what their runs tell (`measure`). Raises StoreCorrupt, StoreFailed.

    Of a damaged row only its node is believed: everything that is there is kept until the next `Retain`.
    """
    found: dict[int, Retention] = {}
    for row in unit.query(RETAINED.select("")):
        if RETAINED.is_sound(row):
            found[row[0]] = RETAINED.made(row)
        elif isinstance(row[0], int):
            found[row[0]] = Retention(NO_RUN, 0, -1, -1, 0)
    return found


def measure(unit: UnitOfWork, queue_id: int, retention: Retention, purged_to: int, next_offset: int) -> None:
    """Fill in what the runs of the node tell. Raises StoreCorrupt, StoreFailed."""
    if retention.first_offset < 0:
        lowest = unit.query(_LOWEST, (queue_id, purged_to))
        first = lowest[0][0] if lowest else next_offset
        if not isinstance(first, int):
            raise StoreCorrupt(f"the index of node {queue_id} is damaged")
        retention.first_offset = retention.swept_to = first
    ((retention.byte_count,),) = unit.query(_BYTES, (queue_id, retention.first_offset))
    retention.believed_to = next_offset
    for row in unit.query(_DOWNWARDS, (queue_id, retention.first_offset, next_offset, LATEST_ROWS)):
        run = RUN.value(row)
        if run is not None:
            retention.at_ms = max(retention.at_ms, run.at_ms)
            break
    retention.low_at_ms = None


def verify_step(unit: UnitOfWork, queue_id: int, retention: Retention) -> None:
    """Count some of the rows that are believed so far only if they match their checksums: one flipped bit in
    a size must not drop what there is room for. Raises StoreCorrupt, StoreFailed.
    """
    first, end = retention.first_offset, retention.believed_to
    rows = unit.query(_DOWNWARDS, (queue_id, first, end, VERIFY_ROWS))
    for row in rows:
        if RUN.value(row) is None:
            retention.miscounted(row)
    last = rows[-1][1] if len(rows) == VERIFY_ROWS else first
    retention.believed_to = last if isinstance(last, int) else first
