"""Durable cursors as `$management` tells them, and to delete one by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from amqp_broker.authorisation import Principal
from amqp_broker.management.entity_types import DELETE, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.retained.administration import CursorInfo, durable_cursors
from amqp_broker.retained.retained_nodes import RetainedNodes


def cursor_type(retained: RetainedNodes) -> EntityType[CursorInfo]:
    """The type of one broker."""

    async def delete(one: CursorInfo, _: Mapping[str, Any], principal: Principal) -> None:
        done = trio.Event()
        errors: list[Exception | None] = []

        def then(error: Exception | None) -> None:
            errors.append(error)
            done.set()

        retained.cursors.forget(one.name, principal, lambda positions: None, then)
        await done.wait()
        if errors[0] is not None:
            raise Unmanageable(409, f"cursor {one.name!r} stays: {errors[0]}")

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
