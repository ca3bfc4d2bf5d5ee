"""Durable named cursors on disk: a row for each node that a cursor stands in."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.questions import CursorNames, CursorsOf
from amqp_broker.persistence.retention import Cursor
from amqp_broker.persistence.table import TEXT, Column, SqlTable, integers, sound_page, texts
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

CURSOR: Final = SqlTable(
    "cursor",
    4,
    ("name", "queue_id"),
    [*integers("queue_id", "offset", "moved_at_ms"), *texts("name"), Column("owner", TEXT, 6, "")],
    Cursor,
)

_FIND: Final = CURSOR.select("WHERE name=? ORDER BY queue_id")
_NAMES: Final = (
    "SELECT DISTINCT CAST(c.name AS BLOB) FROM cursor c WHERE c.name>CAST(? AS TEXT) ORDER BY c.name LIMIT ?"
)
_QUEUES: Final = "SELECT DISTINCT queue_id FROM cursor"
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
        found = map(CURSOR.value, CURSOR.query(self._unit, _FIND, (asked.name,)))
        return [cursor for cursor in found if cursor is not None]

    def names(self, asked: CursorNames) -> list[str]:
        """The answer. Raises RowDamaged, StoreFailed."""
        return sound_page(
            lambda after, limit: CURSOR.query(self._unit, _NAMES, (after, limit)),
            _name_of,
            itemgetter(0),
            asked.after.encode(),
            asked.count,
        )

    def write(self, changes: HalfChanges) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("cursor.before_rows")
        if changes.forgotten_cursors:
            self._unit.execute_many(_FORGET, [(name,) for name in changes.forgotten_cursors])
        if changes.cursors:
            self._unit.execute_many(CURSOR.replace, map(CURSOR.row, changes.cursors.values()))
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


def _name_of(row: Row) -> str | None:
    try:
        name: str = row[0].decode()
    except (AttributeError, UnicodeDecodeError):
        return None  # a damaged row
    return name
