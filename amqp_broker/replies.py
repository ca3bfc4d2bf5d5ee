"""Where the broker's own nodes send their replies: a queue that exists, named by properties.reply-to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.authorisation import SEND, Principal
from amqp_broker.frames import AmqpValue, Error, Properties, encode_message
from amqp_broker.queues import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.node_service import NodeService
    from amqp_broker.queue import Queue


def reply_queue(nodes: NodeService, principal: Principal, reply_to: object) -> Queue | Error:
    """The queue that `principal` wants the reply in, or why there can be none."""
    if reply_to is None:
        description = "expected the address of a queue in properties.reply-to, got null"
        return Error(condition="amqp:invalid-field", description=description)
    try:
        parsed = parse_address(reply_to, nodes.config.limits.address_bytes)
    except AddressError as error:
        return Error(condition="amqp:invalid-field", description=f"properties.reply-to: {error}")
    if not nodes.authoriser.authorise(principal, SEND, parsed):
        return Error(
            condition="amqp:unauthorized-access",
            description=f"{principal.rule_name!r} may not send to {parsed.name!r}",
        )
    queue = nodes.queues.find(parsed.name)
    if queue is None:
        return Error(condition="amqp:not-found", description=f"properties.reply-to: no queue {parsed.name!r}")
    try:
        nodes.queues.site_by_name(queue.name).check_replies()
    except NodeRefused as refused:
        return Error(condition=refused.error.condition, description=f"properties.reply-to: {refused}")
    return queue


def no_room(queue: Queue) -> Error | None:
    """Why a reply can't be posted there now."""
    if queue.deleted:
        condition, why = "amqp:resource-deleted", "was deleted"
    elif not queue.find_room():
        condition, why = "amqp:resource-limit-exceeded", "is full"
    else:
        return None
    return Error(condition=condition, description=f"properties.reply-to: queue {queue.name!r} {why}")


def ok_reply(correlation_id: Any, body: dict[str, Any]) -> bytes:
    """A reply with the subject "ok" and a map as its value, encoded."""
    return encode_message(
        properties=Properties(correlation_id=correlation_id, subject="ok"), body=AmqpValue(body)
    )
