"""A half message as a row, and back."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from amqp_broker.persistence.checksums import body_seed, half_checksum
from amqp_broker.persistence.half_changes import HalfChange
from amqp_broker.persistence.halves import Half
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row

COLUMN_COUNT: Final = 23

# Texts are read as bytes: what is damaged may be no UTF-8.
COLUMNS: Final = (
    "id, CAST(group_name AS BLOB), half_id, CAST(destination AS BLOB), CAST(container_id AS BLOB), digest, "
    "put_at_ms, size_bytes, message_format, priority, ttl_ms, CAST(state AS BLOB), attempts, due_at_ms, "
    "deadline_ms, resolved_at_ms, CAST(resolver AS BLOB), CAST(reason AS BLOB), expires_at_ms, "
    "CAST(queue AS BLOB), offset, forget_ms, checksum"
)


def row_of(change: HalfChange, number: int, stamp: int) -> Parameters:
    """The row of a half message, in the order of the columns."""
    half = change.half
    forget_ms = _forget_ms(change, stamp)
    return (
        number, half.group, half.half_id, half.destination, half.container_id, half.digest, half.put_at_ms,
        half.size_bytes, half.message_format, half.priority, half.ttl_ms, half.state, half.attempts,
        half.due_at_ms, half.deadline_ms, half.resolved_at_ms, half.resolver, half.reason,
        half.expires_at_ms, half.queue, half.offset, forget_ms, _checksum(half, number, forget_ms),
    )  # fmt: skip


def changed_of(change: HalfChange, number: int, stamp: int) -> Parameters:
    """The columns that change, from the state on, and then the number."""
    half = change.half
    forget_ms = _forget_ms(change, stamp)
    return (
        half.state, half.attempts, half.due_at_ms, half.deadline_ms, half.resolved_at_ms, half.resolver,
        half.reason, half.expires_at_ms, half.queue, half.offset, forget_ms,
        _checksum(half, number, forget_ms), number,
    )  # fmt: skip


def _forget_ms(change: HalfChange, stamp: int) -> int:
    if not change.decided:
        return 0
    half = change.half
    return max(stamp + half.expires_at_ms - half.resolved_at_ms, 1)


def _checksum(half: Half, number: int, forget_ms: int) -> int:
    return half_checksum(
        number, half.group.encode(), half.half_id, half.destination.encode(), half.container_id.encode(),
        half.digest, half.put_at_ms, half.size_bytes, half.message_format, half.priority, half.ttl_ms,
        half.state.encode(), half.attempts, half.due_at_ms, half.deadline_ms, half.resolved_at_ms,
        half.resolver.encode(), half.reason.encode(), half.expires_at_ms, half.queue.encode(), half.offset,
        forget_ms,
    )  # fmt: skip


def half_of(row: Row) -> Half:
    """A sound row of COLUMNS."""
    (
        _, group, half_id, destination, container_id, digest, put_at_ms, size_bytes, message_format,
        priority, ttl_ms, state, attempts, due_at_ms, deadline_ms, resolved_at_ms, resolver, reason,
        expires_at_ms, queue, offset, _, _,
    ) = row  # fmt: skip
    return Half(
        group.decode(), half_id, destination.decode(), state.decode(), digest, put_at_ms, due_at_ms,
        deadline_ms, container_id.decode(), size_bytes, message_format, priority, ttl_ms, attempts,
        resolved_at_ms, resolver.decode(), reason.decode(), expires_at_ms, queue.decode(), offset,
    )  # fmt: skip


def body_checksum(number: int, body: bytes) -> int:
    """The checksum of a body, which is right in its own half message only."""
    return crc32(body, body_seed(number))
