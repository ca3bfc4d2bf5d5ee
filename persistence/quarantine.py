"""What does not match its checksum goes to a table of its own, where a human can look at it.

A message leaves its queue. It is never delivered, and it never stops the broker twice: the next start does
not meet it again.

The damaged row of a node goes there as it was, and is written anew with what can be believed of it, so that
its messages stay where they are. Settings are never believed: a set is not sealed, and not one that is known.
Nor is a purge mark: what it says is gone would be deleted for good.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import EVERYTHING, Group, NodeState
from amqp_broker.persistence.group_writer import GroupWriter
from amqp_broker.persistence.node_rows import ALL_NODES, NODE, UNSOUND, keep_next_offset
from amqp_broker.persistence.questions import Quarantined
from amqp_broker.persistence.reader import Damage
from amqp_broker.persistence.runs import RUN, RunCache
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

QUARANTINED: Final = -1  # the offset of a node itself
PUT_AWAY: Final = (
    "INSERT INTO quarantine (queue_id, offset, segment_id, reason, bytes) VALUES (?, ?, ?, ?, ?)"
)
_MEND, _mended = NODE.update("name", "kind", "settings", "next_offset", "purged_to")
_LEAST_NEXT: Final = (
    "SELECT max(coalesce((SELECT first_offset FROM retained WHERE queue_id=?1), 0), "
    "coalesce((SELECT max(offset) FROM cursor WHERE queue_id=?1), 0))"
)
_KINDS: Final = ("queue", "set")
_HIGHEST_OFFSET: Final = 1 << 48  # above it, the number of a damaged row is not believed
_SELECT_ROW: Final = RUN.select("WHERE queue_id=? AND first_offset=?")
_DELETE_ROW: Final = "DELETE FROM run WHERE queue_id=? AND first_offset=?"


def put_into_quarantine(unit: UnitOfWork, damages: list[Damage], node: NodeState, runs: RunCache) -> None:
    """One unit of work for all damages of a page. Segments stay, as evidence and since deleting could fail.

    Raises StoreFull or StoreCorrupt (nothing happened) or StoreFailed.
    """
    group = Group({node.queue_id: node}, runs)
    changes = group.changes(node.queue_id)
    assert changes is not None
    rows: list[tuple[object, ...]] = []
    for damage in damages:
        rows.append((node.queue_id, damage.first, damage.segment_id, damage.reason, damage.body))
        if damage.damaged_row is None:
            changes.retire(damage.first, damage.last)
    writer = GroupWriter(unit, 0, deletes_segments=False)
    unit.begin()
    unit.execute_many(PUT_AWAY, rows)
    damaged_rows = [(node.queue_id, d.damaged_row) for d in damages if d.damaged_row is not None]
    miscounted: list[Row] = []
    if damaged_rows:
        if node.retention is not None:
            miscounted = [row for key in damaged_rows for row in unit.query(_SELECT_ROW, key)]
        unit.execute_many(_DELETE_ROW, damaged_rows)
        keep_next_offset(unit, node)
    writer.write(group)
    fault_point("quarantine.before_commit")
    unit.commit()
    writer.settle(group, {}, runs)
    if damaged_rows:
        node.durable_next = node.next_offset
    for row in miscounted:
        if node.retention is not None and row[1] >= node.retention.first_offset:
            node.retention.miscounted(row)


def mend_nodes(unit: UnitOfWork) -> list[Quarantined]:
    """Put damaged rows into quarantine, and write them anew. Raises StoreFull, StoreCorrupt, StoreFailed."""
    rows = unit.query(ALL_NODES)
    damaged = [row for row in rows if not NODE.is_sound(row)]
    if not damaged:
        return []
    names = {row[1] for row in rows if NODE.is_sound(row)}
    told: list[Quarantined] = []
    unit.begin()
    for row in damaged:
        queue_id = row[0]
        name, kind, numbers = _believed(unit, row, names)
        if name is not None:
            names.add(name.encode())
        unit.execute(PUT_AWAY, (queue_id, QUARANTINED, 0, UNSOUND, repr(row).encode()))
        unit.execute(_MEND, _mended(NODE.row(queue_id, name, kind, "{}", *numbers)))
        told.append(Quarantined(queue_id, QUARANTINED, f"{UNSOUND}; it is {name!r} now, a {kind}"))
    fault_point("quarantine.before_commit")
    unit.commit()
    return told


def _believed(unit: UnitOfWork, row: Row, names: set[object]) -> tuple[str | None, str, tuple[int, int]]:
    """Name, kind and numbers of a damaged row."""
    queue_id, name, kind, settings, next_offset, purged_to, _ = row
    if (name, settings, purged_to) == (None, b"{}", EVERYTHING):  # three marks that agree: it was deleted
        return None, _text(kind) or _KINDS[0], (_number(next_offset), EVERYTHING)
    believed = _text(name)
    if not believed or name in names:
        believed = f"damaged.{queue_id}"
    kind = _text(kind)
    if kind not in _KINDS or believed.startswith("$"):
        kind = _KINDS[believed.startswith("$")]
    ((least,),) = unit.query(_LEAST_NEXT, (queue_id,))
    return believed, kind, (max(_number(next_offset), _number(least)), 0)


def _text(value: object) -> str | None:
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= _HIGHEST_OFFSET else 0
