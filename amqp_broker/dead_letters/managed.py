"""What `$management` can do with dead letters: have them go back to where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from amqp_broker.authorisation import Principal
from amqp_broker.dead_letters.redrive import PAGE_MESSAGES, redrive_page
from amqp_broker.management.entity_types import Action, Argument
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


def redrive_actions(nodes: BrokerNodes) -> dict[str, Action[Queue]]:
    """What can be done with a queue that has dead letters: one group of them in each request."""
    meaning = "a group of dead letters goes back to where they came from"
    arguments = (Argument("offset", int), Argument("count", int))
    return {"REDRIVE": Action(partial(_redrive, nodes), meaning, arguments)}


async def _redrive(
    nodes: BrokerNodes, queue: Queue, told: Mapping[str, Any], _: Principal
) -> dict[str, Any]:  # fmt: skip
    count = PAGE_MESSAGES if told["count"] is None else min(told["count"], PAGE_MESSAGES)
    moved, next_offset = await redrive_page(nodes, queue, told["offset"] or 0, count)
    return {"messages": moved, "next_offset": next_offset, "end_offset": queue.backlog.available_to}
