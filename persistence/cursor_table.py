"""Durable named cursors on disk: a row for each node that a cursor stands in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from amqp_broker.persistence.checksums import cursor_checksum, is_sound
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.questions import CursorNames, CursorsOf
from amqp_broker.persistence.retention import Cursor
from amqp_broker.persistence.sound_page import sound_page
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

# Texts are read as bytes: what is damaged may be no UTF-8.
CURSOR_COLUMNS: Final = "CAST(name AS BLOB), queue_id, offset, moved_at_ms, CAST(owner AS BLOB), checksum"
FORMER_CURSOR_COLUMNS: Final = "CAST(name AS BLOB), queue_id, offset, moved_at_ms, X'', checksum"
"""Before there were owners."""

_FIND: Final = f"SELECT {CURSOR_COLUMNS} FROM cursor WHERE name=? ORDER BY queue_id"
_NAMES: Final = (
    "SELECT DISTINCT CAST(c.name AS BLOB) FROM cursor c WHERE c.name>CAST(? AS TEXT) ORDER BY c.name LIMIT ?"
)
_QUEUES: Final = "SELECT DISTINCT queue_id FROM cursor"
_REPLACE: Final = (
    "REPLACE INTO cursor (name, queue_id, offset, moved_at_ms, owner, checksum) VALUES (?, ?, ?, ?, ?, ?)"
)
_FORGET: Final = "DELETE FROM cursor WHERE name=?"
_FORGET_QUEUE: Final = "DELETE FROM cursor WHERE queue_id=?"


class CursorTable:
    """The table `cursor`; memory holds only in which nodes there are any."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._queues: set[int] = set()

    def load(self) -> None:
        """Raises StoreCorrupt, StoreFailed."""
        self._queues = {queue_id for (queue_id,) in self._unit.query(_QUEUES)}

    def find(self, asked: CursorsOf) -> list[Cursor]:
        """The answer. Raises RowDamaged, StoreFailed."""
        return [cursor_of(row) for row in self._read(_FIND, (asked.name,)) if is_sound(cursor_checksum, row)]

    def names(self, asked: CursorNames) -> list[str]:
        """The answer. Raises RowDamaged, StoreFailed."""
        return sound_page(
            lambda cursor, limit: self._read(_NAMES, (cursor, limit)),
            _name_of,
            _key_of,
            asked.after.encode(),
            asked.count,
        )

    def _read(self, sql: str, parameters: Parameters) -> list[Row]:
        try:
            return self._unit.query(sql, parameters)
        except StoreCorrupt as error:
            raise RowDamaged(f"the stored cursors cannot be read: {error}") from error

    def write(self, changes: HalfChanges) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("cursor.before_rows")
        if changes.forgotten_cursors:
            self._unit.execute_many(_FORGET, [(name,) for name in changes.forgotten_cursors])
        if changes.cursors:
            self._unit.execute_many(_REPLACE, [row_of(cursor) for cursor in changes.cursors.values()])
        fault_point("cursor.after_rows")

    def keep(self, changes: HalfChanges) -> None:
        """They are durable."""
        self._queues.update([queue_id for _, queue_id in changes.cursors])

    def forget_queues(self, queue_ids: Iterable[int], changes: HalfChanges | None) -> None:
        """These nodes are deleted by the group, which moves other cursors. Raises as `UnitOfWork.execute`."""
        moved = {queue_id for _, queue_id in changes.cursors} if changes is not None else set()
        for queue_id in queue_ids:
            if queue_id in self._queues or queue_id in moved:
                self._unit.execute(_FORGET_QUEUE, (queue_id,))


def row_of(cursor: Cursor) -> Parameters:
    """The row of a cursor, in the order of the columns."""
    values = (cursor.queue_id, cursor.offset, cursor.moved_at_ms)
    checksum = cursor_checksum(cursor.name.encode(), *values, cursor.owner.encode())
    return (cursor.name, *values, cursor.owner, checksum)


def cursor_of(row: Row) -> Cursor:
    """A sound row of CURSOR_COLUMNS."""
    name, queue_id, offset, moved_at_ms, owner, _ = row
    return Cursor(name.decode(), queue_id, offset, moved_at_ms, owner.decode())


def _name_of(row: Row) -> str | None:
    try:
        name: str = row[0].decode()
    except (AttributeError, UnicodeDecodeError):
        return None  # a damaged row
    return name


def _key_of(row: Row) -> bytes:
    key: bytes = row[0]
    return key
