"""What does not match its checksum leaves its queue for a table of its own, where a human can look at it.

It is never delivered, and it never stops the broker twice: the next start does not meet it again.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence.checksums import numbered_checksum
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import Group, NodeState
from amqp_broker.persistence.group_writer import GroupWriter
from amqp_broker.persistence.node_rows import SET_NEXT_OFFSET
from amqp_broker.persistence.reader import Damage
from amqp_broker.persistence.runs import RUN_COLUMNS, RunCache
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

_INSERT: Final = "INSERT INTO quarantine (queue_id, offset, segment_id, reason, bytes) VALUES (?, ?, ?, ?, ?)"
_SELECT_ROW: Final = f"SELECT {RUN_COLUMNS} FROM run WHERE queue_id=? AND first_offset=?"
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
    unit.execute_many(_INSERT, rows)
    damaged_rows = [(node.queue_id, d.damaged_row) for d in damages if d.damaged_row is not None]
    miscounted: list[Row] = []
    if damaged_rows:
        if node.retention is not None:
            miscounted = [row for key in damaged_rows for row in unit.query(_SELECT_ROW, key)]
        unit.execute_many(_DELETE_ROW, damaged_rows)
        checksum = numbered_checksum(node.identity, node.next_offset, node.purged_to)
        unit.execute(SET_NEXT_OFFSET, (node.next_offset, checksum, node.queue_id))
    writer.write(group)
    fault_point("quarantine.before_commit")
    unit.commit()
    writer.settle(group, {}, runs)
    if damaged_rows:
        node.durable_next = node.next_offset
    for row in miscounted:
        if node.retention is not None and row[1] >= node.retention.first_offset:
            node.retention.miscounted(row)
