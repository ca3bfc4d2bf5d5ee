"""Half messages as `$management` tells them, and to have them decided or asked again by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final
from uuid import UUID

import attrs

from amqp_broker.authorisation import Principal
from amqp_broker.coordinator import OpenHalf, half_id_of, half_id_value, shown_half_id
from amqp_broker.frames import Ulong
from amqp_broker.halves.administration import HalfAdministration, HalfRefusedByHand
from amqp_broker.halves.halves import Halves
from amqp_broker.management.entity_types import LISTED, REASON, Action, EntityType
from amqp_broker.management.errors import Unmanageable

KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "string": str, "binary": bytes.fromhex, "uuid": UUID, "ulong": lambda text: Ulong(int(text)),
}  # fmt: skip


@attrs.frozen
class ManagedHalf:
    """One half message that is not decided, and its group."""

    group: str
    half: OpenHalf


def half_type(halves: Halves, administration: HalfAdministration) -> EntityType[ManagedHalf]:
    """The type of one broker."""

    def all_halves() -> Iterator[ManagedHalf]:
        for name, group in halves.groups.items():
            for half in islice(group.open.values(), LISTED):
                yield ManagedHalf(name, half)

    def find(identity: str) -> ManagedHalf | None:
        name, _, shown = identity.partition("/")
        group, key = halves.groups.get(name), _key_of(shown)
        half = None if group is None or key is None else group.open.get(key)
        return None if half is None else ManagedHalf(name, half)

    def action(
        change: Callable[[str, object, str, str], Awaitable[None]], meaning: str
    ) -> Action[ManagedHalf]:
        async def run(one: ManagedHalf, told: Mapping[str, Any], principal: Principal) -> None:
            half_id = half_id_value(one.half.half_id)
            try:
                await change(one.group, half_id, principal.rule_name, told["reason"] or "")
            except HalfRefusedByHand as refused:
                raise Unmanageable(409, str(refused)) from None

        return Action(run, meaning, (REASON,))

    return EntityType(
        "half", "a half message that is not decided: its group, and its half-id with the type of that",
        all_halves, lambda one: f"{one.group}/{shown_half_id(one.half.half_id)}",
        {
            "group": lambda one: one.group,
            "state": lambda one: one.half.state.value,
            "destination": lambda one: one.half.destination,
            "container_id": lambda one: one.half.container_id,
            "attempts": lambda one: one.half.attempts,
            "age_ms": lambda one: one.half.age_ms(halves.now_ms()),
            "bytes": lambda one: one.half.size_bytes,
        },
        {
            "COMMIT": action(administration.commit, "its message becomes available"),
            "ROLLBACK": action(administration.roll_back, "its message never comes"),
            "RESUME": action(administration.resume, "a parked one is asked about again"),
        },
        find=find,
    )  # fmt: skip


def _key_of(shown: str) -> bytes | None:
    """The half-id that `shown_half_id` shows so."""
    kind, _, text = shown.partition(":")
    read = KINDS.get(kind)
    try:
        return None if read is None else half_id_of(read(text))
    except (ValueError, OverflowError):
        return None
