"""Durable cursors as `$management` tells them, and to delete one by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp_broker.authorisation import Principal
from amqp_broker.management.entity_types import DELETE, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.operations.operation import answer_to
from amqp_broker.retained.administration import CursorInfo, durable_cursors
from amqp_broker.retained.retained_nodes import RetainedNodes


def cursor_type(retained: RetainedNodes) -> EntityType[CursorInfo]:
    """The type of one broker."""

    async def delete(one: CursorInfo, _: Mapping[str, Any], principal: Principal) -> None:
        error: Exception | None = await answer_to(
            lambda then: retained.cursors.forget(one.name, principal, lambda positions: None, then)
        )
        if error is not None:
            raise Unmanageable(409, f"cursor {one.name!r} stays: {error}")

    return EntityType(
        "cursor", "a durable cursor of readers by offset, by its name",
        lambda: durable_cursors(retained), lambda one: one.name,
        {
            "positions": lambda one: one.positions,
            "lags": lambda one: one.lags,
            "held_by": lambda one: one.held_by,
            "owner": lambda one: one.owner,
        },
        {DELETE: Action(delete, "its place is forgotten")},
    )  # fmt: skip
