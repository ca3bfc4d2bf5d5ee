"""RELOAD of `$management`: the broker reads its configuration again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amqp_broker.authorisation import RELOAD, Principal
from amqp_broker.management.entity_types import Action
from amqp_broker.management.errors import Unmanageable
from amqp_broker.reloading.reload import Reloaded, ReloadRefused, told

Reload = Callable[[], Awaitable[Reloaded]]


def reload_action(reload: Reload) -> dict[str, Action[Any]]:
    """What can be done with the broker itself."""

    async def run(_broker: Any, _told: Mapping[str, Any], _by: Principal) -> dict[str, Any]:
        try:
            done = await reload()
        except ReloadRefused as refused:
            raise Unmanageable(409, f"nothing was changed: {refused}") from None
        return {
            "changed": told(done.changed),
            "at_the_next_start": told(done.waits),
            "not_made": told(done.not_made),
            "closed_connections": done.closed_connections,
        }

    meaning = "it reads its file again; the reply says what changed, and what only a start can change"
    return {"RELOAD": Action(run, meaning, right=RELOAD)}
