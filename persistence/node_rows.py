"""Rows of table `node`: their checksum, and what becomes of one that does not match it.

The checksum is over the identity (id, name, kind, settings), which seldom changes and whose part memory
keeps, and then over the numbers, which change with traffic.

A damaged row goes into quarantine as it was, and is written anew with what can be believed of it, so that its
messages stay where they are and the next start does not meet it again. Settings are never believed: a set is
not sealed, and not one that is known. Nor is a purge mark: what it says is gone would be deleted for good.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from amqp_broker.persistence.checksums import is_sound, node_checksum, node_identity
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import EVERYTHING, NodeState
from amqp_broker.persistence.questions import Quarantined
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

# Texts are read as bytes: what is damaged may be no UTF-8.
FORMER_NODE_COLUMNS: Final = (
    "id, CAST(name AS BLOB), CAST(kind AS BLOB), CAST(settings AS BLOB), next_offset, purged_to"
)
NODE_COLUMNS: Final = f"{FORMER_NODE_COLUMNS}, checksum"
INSERT_NODE: Final = (
    "INSERT INTO node (id, name, kind, settings, next_offset, purged_to, checksum) "
    "VALUES (?, ?, ?, ?, 0, 0, ?)"
)
SET_NEXT_OFFSET: Final = "UPDATE node SET next_offset=?, checksum=? WHERE id=?"
SET_PURGED_TO: Final = "UPDATE node SET next_offset=?, purged_to=?, checksum=? WHERE id=?"
CONFIGURE_NODE: Final = "UPDATE node SET settings=?, checksum=? WHERE id=?"
TOMBSTONE_NODE: Final = "UPDATE node SET name=NULL, settings='{}', purged_to=?, checksum=? WHERE id=?"
QUARANTINED: Final = -1  # the offset of a node itself

_ALL: Final = f"SELECT {NODE_COLUMNS} FROM node ORDER BY id"
_MEND: Final = (
    "UPDATE node SET name=?, kind=?, settings='{}', next_offset=?, purged_to=?, checksum=? WHERE id=?"
)
_PUT_AWAY: Final = (
    "INSERT INTO quarantine (queue_id, offset, segment_id, reason, bytes) VALUES (?, ?, 0, ?, ?)"
)
_LEAST_NEXT: Final = (
    "SELECT max(coalesce((SELECT first_offset FROM retained WHERE queue_id=?1), 0), "
    "coalesce((SELECT max(offset) FROM cursor WHERE queue_id=?1), 0))"
)
_REASON: Final = "the row of the node does not match its checksum"
_KINDS: Final = ("queue", "set")
_HIGHEST_OFFSET: Final = 1 << 48  # above it, the number of a damaged row is not believed

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encoded_settings(settings: dict[str, object]) -> str:
    """The settings of a node as they are stored."""
    return _encode(settings)


def identity_of(queue_id: int, name: str | None, kind: str, settings: str) -> int:
    """The part of the checksum that memory keeps."""
    return node_identity(queue_id, None if name is None else name.encode(), kind.encode(), settings.encode())


def tombstone_identity(node: NodeState) -> int:
    """The part of the checksum that memory keeps of a node that was deleted."""
    return identity_of(node.queue_id, None, node.kind, "{}")


def mend_nodes(unit: UnitOfWork) -> list[Quarantined]:
    """Put damaged rows into quarantine, and write them anew. Raises StoreFull, StoreCorrupt, StoreFailed."""
    rows = unit.query(_ALL)
    damaged = [row for row in rows if not is_sound(node_checksum, row)]
    if not damaged:
        return []
    names = {row[1] for row in rows if is_sound(node_checksum, row)}
    told: list[Quarantined] = []
    unit.begin()
    for row in damaged:
        queue_id = row[0]
        name, kind, numbers = _believed(unit, row, names)
        if name is not None:
            names.add(name.encode())
        checksum = node_checksum(
            queue_id, None if name is None else name.encode(), kind.encode(), b"{}", *numbers
        )
        unit.execute(_PUT_AWAY, (queue_id, QUARANTINED, _REASON, repr(row).encode()))
        unit.execute(_MEND, (name, kind, *numbers, checksum, queue_id))
        told.append(Quarantined(queue_id, QUARANTINED, f"{_REASON}; it is {name!r} now, a {kind}"))
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


def read_nodes(unit: UnitOfWork) -> list[tuple[NodeState, int, int]]:
    """Each node, its next offset and its purge mark; a deleted one has no name. Raises StoreCorrupt,
    StoreFailed.
    """
    return [_node_of(row) for row in unit.query(_ALL)]


def _node_of(row: Sequence[object]) -> tuple[NodeState, int, int]:
    queue_id, name, kind, settings, next_offset, purged_to, _ = row
    if not is_sound(node_checksum, row):
        raise StoreCorrupt(f"{_REASON}: node {queue_id!r}")
    assert isinstance(queue_id, int) and isinstance(kind, bytes) and isinstance(settings, bytes)
    assert isinstance(next_offset, int) and isinstance(purged_to, int)
    called = name.decode() if isinstance(name, bytes) else ""
    node = NodeState(queue_id, called, kind.decode(), _settings(called, settings))
    node.identity = node_identity(queue_id, name if isinstance(name, bytes) else None, kind, settings)
    return node, next_offset, purged_to


def _settings(name: str, text: bytes) -> dict[str, object]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(f"the settings of node {name!r} are no JSON: {error}") from error
    if not isinstance(settings, dict):
        raise StoreCorrupt(f"the settings of node {name!r} are no JSON object")
    return settings
