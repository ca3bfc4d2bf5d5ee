"""The anonymous terminus: each message names its node in properties.to, and is taken as if sent there.

transfer --properties.to--> registry --> Node --relayed--> a Sink for this message
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import DecodeError, Message
from amqp_broker.links import Delivery
from amqp_broker.nodes.ends import Sink
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.queue_sink import txn_id_of
from amqp_broker.nodes.termini import target_answer
from amqp_broker.queues import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.nodes.queue_sink import PostRule
    from amqp_broker.nodes.queues import QueueNodes
    from amqp_broker.nodes.registry import Registry


class RelayNode(Node):
    """The terminus; the right to send is asked for with each message."""

    def __init__(self, registry: Registry, queues: QueueNodes) -> None:
        super().__init__()
        self._registry = registry
        self._queues = queues

    async def open_sink(self, attachment: Attachment) -> Sink:
        """For any link."""
        attachment.answer = target_answer(attachment.target, None)
        rule = await self._queues.rules.open(attachment, None)
        return RelaySink(attachment, self._registry, rule, self._queues.nodes.config.limits.address_bytes)


class RelaySink(Sink):
    """One link to it. `rule` is that of the link, whatever the queue."""

    def __init__(
        self, attachment: Attachment, registry: Registry, rule: PostRule | None, address_bytes: int
    ) -> None:
        super().__init__(attachment.connection, attachment.link)
        self.attachment = attachment
        self.transactions = attachment.transactions
        self.rule = rule
        self._registry = registry
        self._address_bytes = address_bytes

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Each message for itself."""
        for at, delivery in enumerate(deliveries):
            if self.ended:
                self.lose(deliveries[at:])
                return
            self._relay(delivery)

    def _relay(self, delivery: Delivery) -> None:
        transaction = None
        txn_id = txn_id_of(delivery)
        try:
            if txn_id is not None:
                transaction = self.transactions.find(txn_id)
            sink = self._sink_for(delivery.payload)
        except TransactionError as error:
            self.detach(error.error())
        except NodeRefused as refused:
            if transaction is None:
                self.refuse([delivery], refused.error)
            else:
                self.transactions.refuse_posts(transaction, self.link, [delivery], refused.error)
                self.processed(1)
        except DecodeError as error:
            self.lose([delivery], error.description)
            self.malformed(error)
        else:
            sink.on_deliveries([delivery])
            self.ended = self.ended or sink.ended

    def _sink_for(self, payload: bytes) -> Sink:
        """What takes a message. Raises NodeRefused, DecodeError."""
        properties = Message(payload).properties
        address = None if properties is None else properties.to
        if address is None:
            raise NodeRefused(
                "amqp:invalid-field", "properties.to is missing: the anonymous terminus needs it"
            )
        try:
            parsed = parse_address(address, self._address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        return self._registry.named(parsed.name).relayed(self)

    def on_detached(self) -> None:
        """The link is gone."""
        if self.rule is not None:
            self.rule.on_detached()
