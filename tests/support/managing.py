"""A client of `$management` by hand, and the queue in which it finds the replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import AmqpValue, Message, Properties, encode_message, plain_value
from amqp_broker.links import ReceiverLink, SenderLink
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Main, Served, by_hand, drives

SELF = "org.amqp.management"


@attrs.define
class Asking:
    """One client of `$management`, and the queue in which it finds the replies."""

    at: Served
    requests: SenderLink
    replies: ReceiverLink
    asked: int = 0

    async def ask(self, operation: str, type: str | None = SELF, body: Any = None, **told: Any) -> Any:
        """Status, description, body and further application properties of the reply."""
        self.asked += 1
        self.send({"operation": operation, "type": type, **told}, body)
        await self.at.settle()
        came = [Message(delivery.payload) for delivery in self.at.received]
        ids = [each.properties and each.properties.correlation_id for each in came]
        at = ids.index(f"{self.asked}")
        reply = came[at]
        del self.at.received[at]
        found = plain_value(reply.application_properties)
        (section,) = reply.body_sections()
        assert isinstance(section, AmqpValue)
        return found.pop("statusCode"), found.pop("statusDescription"), plain_value(section.value), found

    def send(self, told: dict[str, Any], body: Any = None, **fields: Any) -> None:
        """One request, without waiting for what comes of it."""
        properties = {"reply_to": "replies", "message_id": f"{self.asked}", **fields}
        known = {name: value for name, value in told.items() if value is not None}
        self.requests.send([Sendable(encode_message(
            properties=Properties(**properties), application_properties=known, body=AmqpValue(body),
        ))])  # fmt: skip

    async def body(self, operation: str, type: str | None = SELF, body: Any = None, **told: Any) -> Any:
        """The body of a reply that says 200."""
        status, description, found, _ = await self.ask(operation, type, body, **told)
        assert (status, description) == (200, "OK")
        return found

    async def refused(self, operation: str, type: str | None = SELF, body: Any = None, **told: Any) -> Any:
        """Status and description of a reply that says no; such a reply has no body and nothing was made."""
        queues = self.at.broker.nodes.queues.queues()
        status, description, found, _ = await self.ask(operation, type, body, **told)
        assert status >= 400 and found is None and self.at.broker.nodes.queues.queues() == queues
        return status, description


async def asking(at: Served) -> Asking:
    """A client that asks."""
    replies = await at.receiver("replies", 1_000, "replies")
    return Asking(at, await at.sender("$management", "requests"), replies)


def asks(config: BrokerConfig | None = None) -> Callable[[Main], Callable[..., None]]:
    """A test whose parameter is such a client."""

    def run(main: Main) -> None:
        async def served(at: Served) -> None:
            await main(await asking(at))

        by_hand(served, config)

    return drives(run)
