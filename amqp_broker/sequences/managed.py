"""Sequenced streams as `$management` tells them, and to have one begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amqp_broker.authorisation import Principal
from amqp_broker.management.entity_types import LISTED, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.sequences.administration import PAGE, SequenceAdministration, StreamInfo

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


def stream_type(nodes: BrokerNodes, administration: SequenceAdministration) -> EntityType[StreamInfo]:
    """The type of one broker."""

    async def streams() -> list[StreamInfo]:
        found: list[StreamInfo] = []
        for queue in nodes.queues.queues():
            after, of_queue = "", 0
            while of_queue < LISTED:
                page = await administration.streams(queue.name, after)
                found += page
                if len(page) < PAGE:
                    break
                after, of_queue = page[-1].stream, of_queue + PAGE
        return found

    async def reset(one: StreamInfo, _: Mapping[str, Any], __: Principal) -> None:
        if not await administration.reset(one.queue, one.stream):
            raise Unmanageable(404, f"the stream {one.stream!r} is gone already")

    return EntityType(
        "stream", "a stream of numbered messages: the address of its queue, and its name",
        streams, lambda one: f"{one.queue}/{one.stream}",
        {
            "queue": lambda one: one.queue,
            "stream": lambda one: one.stream,
            "owner": lambda one: one.owner,
            "seq_id": lambda one: one.seq_id,
            "seq_no": lambda one: one.seq_no,
            "reject_count": lambda one: one.reject_count,
            "last_access_ms": lambda one: one.last_access_ms,
        },
        {"RESET": Action(reset, "it begins anew, and belongs to nobody")},
    )  # fmt: skip
