"""The append-only log of events on disk, without gaps: its last row is never forgotten, so that no number
is given out twice.

A row is a run of `count` entries with the numbers from `seq` on. `fields` is the JSON object of what they
have in common, or, where they differ, an array of that and of an object with a list of values for each field.
`kept_ms` is the stamp of the store's own clock (keep_clock.py), by which a row is forgotten.

    seq    1 .. 300 | 301 | 302 .. 1325 | 1326           rows
           ^ first                        ^ last, stays        next_seq: 1327

Beyond `keep_bytes` the oldest rows are forgotten, too. What was there when the store was opened is counted
first, in steps of `idle`, and until then nothing is forgotten: that is keeping longer.
"""

from __future__ import annotations

import json
from typing import Any, Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.halves import EVENT_RUN_MAX, ROW_BYTES, Event, encoded_fields, size_of
from amqp_broker.persistence.keep_clock import FORGET_EVENTS, FORGET_ROWS
from amqp_broker.persistence.questions import EventRange, EventsFrom
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import INTEGER, Column, SqlTable, integers, texts
from amqp_broker.persistence.unit_of_work import UnitOfWork


def run_of(seq: int, at_ms: int, kind: str, content: Any, count: int) -> Event:
    """The run that a row is, of which `content` is the decoded JSON."""
    if isinstance(content, list):
        fields, columns = content
        return Event(kind, at_ms, fields, seq, count, columns)
    return Event(kind, at_ms, content, seq, count)


def _event_of(seq: int, at_ms: int, _: int, kind: str, fields: str, count: int) -> Event:
    return run_of(seq, at_ms, kind, json.loads(fields), count)


EVENT: Final = SqlTable(
    "event",
    3,
    ("seq",),
    [*integers("seq", "at_ms", "kept_ms"), *texts("kind", "fields"), Column("count", INTEGER, 4, 1)],
    _event_of,
    measured=1,
)

_LAST: Final = EVENT.select("ORDER BY seq DESC LIMIT 1")
_FIRST: Final = "SELECT min(seq) FROM event"
_NEXT: Final = "SELECT min(seq) FROM event WHERE seq>=?"
_BEFORE: Final = "SELECT max(seq) FROM event WHERE seq<=?"
_PAGE: Final = EVENT.select("WHERE seq>=? AND seq<? ORDER BY seq")
_LENGTHS: Final = "length(CAST(kind AS BLOB))+length(CAST(fields AS BLOB))"
_BYTES: Final = f"{ROW_BYTES}+coalesce({_LENGTHS}, 0)"
_OLDEST: Final = "SELECT seq, kept_ms, count, 0 FROM event WHERE seq<? ORDER BY seq LIMIT ?"
_OLDEST_SIZES: Final = f"SELECT seq, kept_ms, count, {_BYTES} FROM event WHERE seq<? ORDER BY seq LIMIT ?"
_SIZES: Final = f"SELECT seq, {_BYTES} FROM event WHERE seq>=? AND seq<=? ORDER BY seq LIMIT ?"
_FORGET: Final = "DELETE FROM event WHERE seq<=?"
_ROWS_OF_A_PAGE: Final = 32  # of rows without columns
_ENTRIES_OF_A_PAGE: Final = 256  # of such with columns, about


class EventTable:
    """The table `event`; memory holds nothing of it but the next number."""

    def __init__(self, unit: UnitOfWork, keep_ms: int, keep_bytes: int = 0) -> None:
        assert keep_ms > 0 and keep_bytes >= 0, f"keep events for {keep_ms} ms, {keep_bytes} bytes"
        self._unit = unit
        self._keep_ms = keep_ms
        self._keep_bytes = keep_bytes  # 0: no such bound
        self._bytes = 0  # of what is counted
        self._written = 0  # of the group under way
        self._count_from, self._count_to = 0, -1  # numbers of rows that are still to be counted
        self._first_seq = self.next_seq = 1
        self._last_seq = 0  # of the last row

    def load(self) -> int:
        """What the clock has shown at least, in milliseconds. Raises StoreCorrupt, StoreFailed."""
        rows = self._unit.query(_LAST)
        if not rows:
            return 0
        (row,) = rows
        seq, _, kept_ms, _, _, count, _ = row
        # Of a damaged row nobody knows for how many numbers it stood.
        self.next_seq = seq + (count if EVENT.is_sound(row) else EVENT_RUN_MAX)
        self._last_seq = seq
        self._find_first()
        if self._keep_bytes:
            self._count_to = seq
        return int(kept_ms)

    def _find_first(self) -> None:
        ((first,),) = self._unit.query(_FIRST)
        self._first_seq = self.next_seq if first is None else first

    def keep(self, events: list[Event], next_seq: int) -> None:
        """They are durable."""
        if events:
            self._last_seq = events[-1].seq
            self.next_seq = next_seq
            self._bytes += self._written

    def range(self, _: EventRange) -> tuple[int, int]:
        return self._first_seq, self.next_seq

    def page(self, asked: EventsFrom) -> list[Event]:
        """The answer. Raises RowDamaged, StoreFailed."""
        from_seq, count = asked.from_seq, asked.count
        found: list[Event] = []
        ((at,),) = EVENT.query(self._unit, _BEFORE, (from_seq,))
        if at is None:
            at = from_seq
        end = from_seq + count  # the numbers are dense: more rows are wanted only if some are damaged
        while len(found) < count:
            for row in EVENT.query(self._unit, _PAGE, (at, end)):
                event = EVENT.value(row)
                if event is not None:
                    start = max(from_seq - event.seq, 0)
                    found.extend(event.singles(start, min(event.count, start + count - len(found))))
            ((at,),) = EVENT.query(self._unit, _NEXT, (end,))
            if at is None:
                break
            end = at + count - len(found)
        return found

    def write(self, events: list[Event], stamp: int) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        rows: list[Parameters] = []
        written = 0
        for event in events:
            fields = encoded_fields(event)
            written += size_of(event.kind.encode(), fields.encode())
            rows.append(EVENT.row(event.seq, event.at_ms, stamp, event.kind, fields, event.count))
        self._written = written
        if rows:
            self._unit.execute_many(EVENT.insert, rows)

    def forget_step(self, clock_ms: int) -> tuple[int, bool]:
        """Forget some that were kept long enough, or are too many, oldest first: about how many pages that
        took, and whether more waits.

        Raises StoreFull (nothing happened), StoreCorrupt, StoreFailed.
        """
        if self._count_from <= self._count_to:
            return 0, self._count_step()
        select = _OLDEST_SIZES if self._keep_bytes else _OLDEST
        rows = self._unit.query(select, (self._last_seq, 1))
        if rows and self._is_over(rows[0][1], clock_ms, 0):
            rows = self._unit.query(select, (self._last_seq, FORGET_ROWS))
        old = entries = size = 0
        for _, kept_ms, count, row_bytes in rows:
            if not self._is_over(kept_ms, clock_ms, size) or entries >= FORGET_EVENTS:
                break
            old += 1
            entries += count
            size += row_bytes
        if not old:
            return 0, False
        self._unit.begin()
        self._unit.execute(_FORGET, (rows[old - 1][0],))
        fault_point("expire.before_commit")
        self._unit.commit()
        self._bytes -= size
        self._find_first()
        return 1 + pages_of_events(old, entries), old == FORGET_ROWS or entries >= FORGET_EVENTS

    def _is_over(self, kept_ms: int, clock_ms: int, forgotten_bytes: int) -> bool:
        """Is the oldest row to be forgotten, when so much of the others was?"""
        too_many = bool(self._keep_bytes) and self._bytes - forgotten_bytes > self._keep_bytes
        return too_many or kept_ms + self._keep_ms <= clock_ms

    def _count_step(self) -> bool:
        """Count some of what was there; True: the next step goes on."""
        rows = self._unit.query(_SIZES, (self._count_from, self._count_to, FORGET_ROWS))
        self._bytes += sum([size for _, size in rows])
        self._count_from = rows[-1][0] + 1 if len(rows) == FORGET_ROWS else self._count_to + 1
        return True


def pages_of_events(rows: int, entries: int) -> int:
    """About how many pages they take."""
    return rows // _ROWS_OF_A_PAGE + entries // _ENTRIES_OF_A_PAGE
