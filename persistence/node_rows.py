"""Rows of table `node`.

Their checksum is over the identity (id, name, kind, settings), which seldom changes and whose part memory
keeps, and then over the numbers, which change with traffic.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.group import NodeState
from amqp_broker.persistence.table import TEXT, Column, SqlTable, integers, texts
from amqp_broker.persistence.unit_of_work import UnitOfWork

SET_NEXT_OFFSET: Final = "UPDATE node SET next_offset=?, checksum=? WHERE id=?"
SET_PURGED_TO: Final = "UPDATE node SET next_offset=?, purged_to=?, checksum=? WHERE id=?"
CONFIGURE_NODE: Final = "UPDATE node SET settings=?, checksum=? WHERE id=?"
TOMBSTONE_NODE: Final = "UPDATE node SET name=NULL, settings='{}', purged_to=?, checksum=? WHERE id=?"
UNSOUND: Final = "the row of the node does not match its checksum"

encoded_settings = json.JSONEncoder(separators=(",", ":")).encode
"""The settings of a node as they are stored."""
_IDENTITY: Final = struct.Struct("<4q").pack
_NUMBERS: Final = struct.Struct("<2q").pack


def node_identity(queue_id: int, name: bytes | None, kind: bytes, settings: bytes) -> int:
    """The checksum of the columns that are not numbers; texts are encoded, `name` None if deleted."""
    fields = _IDENTITY(queue_id, -1 if name is None else len(name), len(kind), len(settings))
    return crc32(b"".join((fields, name or b"", kind, settings)))


def numbered_checksum(identity: int, next_offset: int, purged_to: int) -> int:
    """The checksum of a row of which `node_identity` is known."""
    return crc32(_NUMBERS(next_offset, purged_to), identity)


def node_checksum(
    queue_id: int, name: bytes | None, kind: bytes, settings: bytes, next_offset: int, purged_to: int
) -> int:
    """The checksum of a row, in the order of its columns."""
    return numbered_checksum(node_identity(queue_id, name, kind, settings), next_offset, purged_to)


def identity_of(queue_id: int, name: str | None, kind: str, settings: str) -> int:
    """The part of the checksum that memory keeps."""
    return node_identity(queue_id, None if name is None else name.encode(), kind.encode(), settings.encode())


def _node_of(
    queue_id: int, name: str | None, kind: str, settings: str, next_offset: int, purged_to: int
) -> tuple[NodeState, int, int]:
    node = NodeState(queue_id, name or "", kind, _settings(name or "", settings))
    node.identity = identity_of(queue_id, name, kind, settings)
    return node, next_offset, purged_to


def _settings(name: str, text: str) -> dict[str, object]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(f"the settings of node {name!r} are no JSON: {error}") from error
    if not isinstance(settings, dict):
        raise StoreCorrupt(f"the settings of node {name!r} are no JSON object")
    return settings


NODE: Final = SqlTable(
    "node",
    1,
    ("id",),
    [
        *integers("id"),
        Column("name", TEXT, nullable=True),
        *texts("kind", "settings"),
        *integers("next_offset", "purged_to"),
    ],
    _node_of,
    checksum=node_checksum,
    sealed=5,
)
ALL_NODES: Final = NODE.select("ORDER BY id")


def read_nodes(unit: UnitOfWork) -> list[tuple[NodeState, int, int]]:
    """Each node, its next offset and its purge mark; a deleted one has no name. Raises StoreCorrupt,
    StoreFailed.
    """
    found = []
    for row in unit.query(ALL_NODES):
        node = NODE.value(row)
        if node is None:
            raise StoreCorrupt(f"{UNSOUND}: node {row[0]!r}")
        found.append(node)
    return found


def keep_next_offset(unit: UnitOfWork, node: NodeState) -> None:
    """Its row tells `next_offset` from now on. Raises as `UnitOfWork.execute`."""
    checksum = numbered_checksum(node.identity, node.next_offset, node.purged_to)
    unit.execute(SET_NEXT_OFFSET, (node.next_offset, checksum, node.queue_id))
