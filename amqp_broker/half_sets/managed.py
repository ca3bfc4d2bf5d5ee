"""Sets of half messages as `$management` tells them, and to void one by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp_broker.authorisation import Principal
from amqp_broker.half_sets.administration import HalfSetInfo, SetAdministration
from amqp_broker.halves.administration import HalfRefusedByHand
from amqp_broker.management.entity_types import REASON, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.queue_operations import FORCE


def set_type(administration: SetAdministration) -> EntityType[HalfSetInfo]:
    """The type of one broker."""

    async def void(one: HalfSetInfo, told: Mapping[str, Any], principal: Principal) -> None:
        who, reason, force = principal.rule_name, told["reason"] or "", bool(told["force"])
        try:
            await administration.void(one.group, one.producer, one.set_id, who, reason, force=force)
        except HalfRefusedByHand as refused:
            raise Unmanageable(409, str(refused)) from None

    return EntityType(
        "set", "a set of half messages that is not decided: its group, its producer and its id",
        administration.describe, lambda one: f"{one.group}/{one.producer}/{one.set_id}",
        {
            "group": lambda one: one.group,
            "producer": lambda one: one.producer,
            "epoch": lambda one: one.epoch,
            "state": lambda one: one.state,
            "messages": lambda one: one.count,
            "bytes": lambda one: one.byte_count,
            "age_ms": lambda one: one.age_ms,
            "container_id": lambda one: one.container_id,
            "destinations": lambda one: one.destinations,
            "coordinator": lambda one: one.coordinator,
            "store": lambda one: one.store,
        },
        {"VOID": Action(
            void, "it never wins; a prepared one only by `force`, which may lose messages", (REASON, FORCE)
        )},
    )  # fmt: skip
