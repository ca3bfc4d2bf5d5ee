"""The append-only log of events on disk, without gaps: its last entry is never forgotten, so that no number
is given out twice.

`kept_ms` is the stamp of the store's own clock (keep_clock.py), by which an event is forgotten.
"""

from __future__ import annotations

import json
from typing import Final

from amqp_broker.persistence.checksums import event_checksum, is_sound
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.halves import Event
from amqp_broker.persistence.keep_clock import FORGET_EVENTS
from amqp_broker.persistence.sound_page import sound_page
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

# Texts are read as bytes: what is damaged may be no UTF-8.
EVENT_COLUMNS: Final = "seq, at_ms, kept_ms, CAST(kind AS BLOB), CAST(fields AS BLOB), checksum"
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM event"
_LAST_KEPT: Final = "SELECT kept_ms FROM event ORDER BY seq DESC LIMIT 1"
_PAGE: Final = f"SELECT {EVENT_COLUMNS} FROM event WHERE seq>? ORDER BY seq LIMIT ?"
_INSERT: Final = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, 1)"
_OLDEST: Final = "SELECT seq, kept_ms FROM event WHERE seq<? ORDER BY seq LIMIT ?"
_FORGET: Final = "DELETE FROM event WHERE seq<=?"

_encode = json.JSONEncoder(separators=(",", ":")).encode


class EventTable:
    """The table `event`; memory holds nothing of it but the next number."""

    def __init__(self, unit: UnitOfWork, keep_ms: int) -> None:
        assert keep_ms > 0, f"keep events for {keep_ms} ms"
        self._unit = unit
        self._keep_ms = keep_ms
        self.next_seq = 1

    def load(self) -> int:
        """What the clock has shown at least, in milliseconds. Raises StoreCorrupt, StoreFailed."""
        ((last,),) = self._unit.query(_LAST)
        self.next_seq = last + 1
        rows = self._unit.query(_LAST_KEPT)
        return int(rows[0][0]) if rows else 0

    def page(self, from_seq: int, count: int) -> list[Event]:
        """See `Store.events`. Raises RowDamaged, StoreFailed."""
        return sound_page(self._read, event_of, _seq_of, from_seq - 1, count)

    def _read(self, after: int, limit: int) -> list[Row]:
        try:
            return self._unit.query(_PAGE, (after, limit))
        except StoreCorrupt as error:
            raise RowDamaged(f"the stored events cannot be read: {error}") from error

    def write(self, events: list[Event], stamp: int) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        rows: list[Parameters] = []
        for event in events:
            fields = _encode(event.fields)
            checksum = event_checksum(event.seq, event.at_ms, stamp, event.kind.encode(), fields.encode())
            rows.append((event.seq, event.at_ms, stamp, event.kind, fields, checksum))
        if rows:
            self._unit.execute_many(_INSERT, rows)

    def forget_step(self, clock_ms: int) -> tuple[int, bool]:
        """Forget some that were kept long enough, oldest first: how many, and whether more waits.

        Raises StoreFull (nothing happened), StoreCorrupt, StoreFailed.
        """
        rows = self._unit.query(_OLDEST, (self.next_seq - 1, 1))
        if rows and rows[0][1] + self._keep_ms <= clock_ms:
            rows = self._unit.query(_OLDEST, (self.next_seq - 1, FORGET_EVENTS))
        old = 0
        for _, kept_ms in rows:
            if kept_ms + self._keep_ms > clock_ms:
                break
            old += 1
        if not old:
            return 0, False
        self._unit.begin()
        self._unit.execute(_FORGET, (rows[old - 1][0],))
        fault_point("expire.before_commit")
        self._unit.commit()
        return old, old == FORGET_EVENTS


def event_of(row: Row) -> Event | None:
    """Of a row of EVENT_COLUMNS, if that is sound."""
    if not is_sound(event_checksum, row):
        return None
    seq, at_ms, _, kind, fields, _ = row
    return Event(kind.decode(), at_ms, json.loads(fields), seq)


def _seq_of(row: Row) -> int:
    seq: int = row[0]
    return seq
