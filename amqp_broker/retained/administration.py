"""Retained nodes and cursors for an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from amqp_broker.persistence import Store
from amqp_broker.retained.cursors import by_name
from amqp_broker.retained.logs import RetainedLog

if TYPE_CHECKING:
    from amqp_broker.retained.retained_nodes import RetainedNodes


@attrs.frozen
class RetainedInfo:
    """What can be read by offset at one address: from `first`, before `next_offset`; bytes of bodies. `kind`
    is `queue`, `log`, or `events` for the journal.
    """

    address: str
    first: int
    next_offset: int
    byte_count: int
    kind: str


@attrs.frozen
class CursorInfo:
    """A durable cursor: its next offsets by address, the container-id of the link that uses it now, the
    principal whose it is ("": nobody's, an older store's), and how many offsets are behind them by address.
    """

    name: str
    positions: dict[str, int]
    held_by: str | None
    owner: str
    lags: dict[str, int] = attrs.field(factory=dict)


async def retained_nodes(retained: RetainedNodes) -> list[RetainedInfo]:
    """Everything that can be read by offset, the journal first."""

    def described(log: RetainedLog, store: Store) -> RetainedInfo:
        bounds = log.bounds(store)
        return RetainedInfo(log.address, bounds.first, bounds.next_offset, bounds.byte_count, log.kind)

    return await retained.nodes.writer.ask(lambda store: [described(log, store) for log in retained.logs()])


async def durable_cursors(retained: RetainedNodes) -> list[CursorInfo]:
    """All cursors, in the order of their names."""
    addresses = retained.addresses()

    def described(name: str, store: Store, ends: dict[str, int]) -> CursorInfo:
        positions = by_name(retained.cursors.positions(name, store), addresses)
        cursors = retained.cursors
        lags = {address: max(0, ends.get(address, at) - at) for address, at in positions.items()}
        return CursorInfo(name, positions, cursors.held_by(name), cursors.stored_owner(name), lags)

    def all_of(store: Store) -> list[CursorInfo]:
        names = retained.cursors.names()
        ends = {log.address: log.bounds(store).next_offset for log in retained.logs()} if names else {}
        return [described(name, store, ends) for name in names]

    return await retained.nodes.writer.ask(all_of)
