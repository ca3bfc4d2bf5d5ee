"""The anonymous terminus: each message names its node in properties.to, and is taken as if sent there.

    transfer --properties.to--> registry --> Node --admit, check--> (its queue is there) --relayed--> a Sink
                                                  +--make--> what comes behind it on the connection waits

The node judges as it does for an attach, and what an attach would make is made here, too: one door.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.connection import Sink
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Byte, DecodeError, Message, Symbol
from amqp_broker.links import Delivery
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.queue_sink import txn_id_of
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.termini import target_answer
from amqp_broker.queues import NoRoom

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.nodes.queues import QueueNodes
    from amqp_broker.nodes.registry import Registry

JMS_DESTINATION: Final = "x-opt-jms-dest"
"""The message annotation in which a JMS client says what properties.to is, as the capability of an attach
does.
"""

_JMS_DESTINATION: Final = JMS_DESTINATION.encode()
_JMS_TOPICS: Final = {1: "topic", 3: "temporary-topic"}


class RelayNode(Node):
    """The anonymous terminus; each message needs the right to send where it goes."""

    def __init__(self, registry: Registry, queues: QueueNodes) -> None:
        super().__init__()
        self._registry = registry
        self._queues = queues

    def check_sink(self, attachment: Attachment) -> None:
        """Any link may send here."""
        attachment.answer = target_answer(attachment.target, None)
        self._queues.rules.check(attachment.attach, None)

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink of one link, which has the rule of that link."""
        attachment.rule = await self._queues.rules.open(attachment, None)
        return RelaySink(attachment, self._registry, self._queues.nodes)


class RelaySink(Sink):
    """One link to the anonymous terminus. There is no credit for the queues behind it: a full one is asked
    again when what came before is stored.
    """

    def __init__(self, attachment: Attachment, registry: Registry, nodes: BrokerNodes) -> None:
        super().__init__(attachment.connection, attachment.link)
        self._attachment = attachment
        self.transactions = attachment.transactions
        self.link.keeps_messages = True
        self._registry = registry
        self._nodes = nodes
        self._asked_again: Delivery | None = None

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take each message for itself; those behind one whose queue has to be made first wait for it."""
        for at, delivery in enumerate(deliveries):
            if self.ended:
                self.lose(deliveries[at:])
                return
            if txn_id_of(delivery) is not None and self.behind_store(deliveries[at:]):
                return
            try:
                node = self._node_for(delivery)
                if node.there:
                    self._pass(node.relayed(self, self._attachment), delivery)
                    if self.held(deliveries[at + 1 :]):
                        return
                    continue
            except NoRoom as full:
                if self._nodes.writer.at_rest or delivery is self._asked_again:
                    self._refuse(delivery, full)
                    continue
                self._asked_again = delivery
                self.connection.hold(partial(self._ask_again, deliveries[at:]))
                return
            except (NodeRefused, DecodeError, TransactionError) as error:
                self._refuse(delivery, error)
                continue
            self.connection.hold(partial(self._make, node, deliveries[at:]))
            return

    def _node_for(self, delivery: Delivery) -> Node:
        """The sink that takes a message, if the sender may send there. Raises NodeRefused, DecodeError,
        TransactionError.
        """
        txn_id = txn_id_of(delivery)
        if txn_id is not None:
            self.transactions.find(txn_id)
        message = Message(delivery.payload)
        properties = message.properties
        address = None if properties is None else properties.to
        if address is None:
            raise NodeRefused(
                "amqp:invalid-field", "properties.to is missing: the anonymous terminus needs it"
            )
        try:
            parsed = parse_address(address, self._nodes.config.limits.address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        kind = _jms_kind(message) if _JMS_DESTINATION in delivery.payload else ()
        node = self._registry.named(parsed.name, kind)
        principal = self.connection.principal
        node.admit(principal)
        node.check(principal)
        return node

    async def _make(self, node: Node, deliveries: list[Delivery]) -> None:
        """Make the queue that the first of these messages is for, and go on with all of them."""
        try:
            await node.make(self._attachment)
        except NodeRefused as refused:
            self._refuse(deliveries.pop(0), refused)
        self.on_deliveries(deliveries)

    async def _ask_again(self, deliveries: list[Delivery]) -> None:
        """What came before is stored now, or refused."""
        await self.transactions.decided()
        self.on_deliveries(deliveries)

    def _pass(self, sink: Sink, delivery: Delivery) -> None:
        sink.on_deliveries([delivery])
        self.ended = self.ended or sink.ended

    def _refuse(self, delivery: Delivery, error: NodeRefused | DecodeError | TransactionError) -> None:
        if isinstance(error, TransactionError):
            self.detach(error.error())
            return
        self.refuse_each([delivery], refusal_of(error))

    def on_detached(self) -> None:
        """The link is gone."""
        if self._attachment.rule is not None:
            self._attachment.rule.on_detached()


def _jms_kind(message: Message) -> tuple[str, ...]:
    """The terminus capability that a JMS client would give to a link of its own. Raises DecodeError."""
    annotations: dict[Any, Any] = message.message_annotations or {}
    kind = annotations.get(Symbol(JMS_DESTINATION))
    topic = _JMS_TOPICS.get(kind.value) if isinstance(kind, Byte) else None
    return () if topic is None else (topic,)
