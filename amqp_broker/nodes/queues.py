"""Queues as nodes: those with an address, and those that are made for one link.

Two hooks are for features: `PostRules` has a say in what links post (`rules`), and `open_log` opens links
that receive from a queue of kind log, from which nobody takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from amqp_broker.addresses import Address
from amqp_broker.authorisation import BROWSE, RECEIVE, SEND
from amqp_broker.configuration_tables import TRANSACTION_MESSAGES
from amqp_broker.nodes.ends import Sink, Source
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.queue_sink import PostRule, QueueSink, RelayedSink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.nodes.termini import COPY, LOG, no_queue, source_answer, target_answer
from amqp_broker.queues import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.frames import Attach
    from amqp_broker.node_service import NodeService
    from amqp_broker.nodes.relay import RelaySink
    from amqp_broker.queue import Queue

SETTLED_MODE = 1  # snd-settle-mode settled (2.8.2)


class PostRules:
    """Whether there is a rule for what a link posts; here there is none."""

    def check(self, attach: Attach) -> None:
        """Whether the attach can be had at all, before a node is made for it. Raises NodeRefused."""

    async def open(self, attachment: Attachment, queue: Queue | None) -> PostRule | None:
        """The rule for a link to `queue`, or to the anonymous terminus (None); it may add to our answer.
        Raises NodeRefused.
        """
        return None


OpenLog = Callable[[Attachment, "Queue"], Awaitable[Source]]


async def no_logs(attachment: Attachment, queue: Queue) -> Source:
    """Nobody reads logs here."""
    raise NodeRefused("amqp:not-implemented", f"{queue.name!r} is a log, and nothing here reads logs")


class QueueNodes:
    """Opens links to queues; one for each broker."""

    def __init__(self, nodes: NodeService) -> None:
        self.nodes = nodes
        self.rules = PostRules()
        self.open_log: OpenLog = no_logs

    async def sink(self, attachment: Attachment, queue: Queue, *, temporary: bool = False) -> Sink:
        """For a link that sends to `queue`. Raises NodeRefused."""
        if self.nodes.config.policy_of(queue.name).message_type == TRANSACTION_MESSAGES:
            raise NodeRefused(
                "amqp:not-allowed",
                f"queue {queue.name!r} has message_type transaction: it takes half messages only "
                f"($half/<group>/{queue.name})",
            )
        answer = attachment.answer = target_answer(attachment.target, queue.name)
        if queue.archives:
            answer.capabilities = (*(no_queue(answer.capabilities) or ()), LOG)
        rule = await self.rules.open(attachment, queue)
        sink = QueueSink(
            attachment.connection, attachment.link, queue, self.nodes, attachment.transactions, rule,
            temporary=temporary,
        )  # fmt: skip
        attachment.credit = sink.begin()
        return sink

    async def source(self, attachment: Attachment, queue: Queue, *, temporary: bool = False) -> Source:
        """For a link that receives from `queue`. Raises NodeRefused."""
        if queue.archives:
            return await self.open_log(attachment, queue)
        attach = attachment.attach
        answer = attachment.answer = source_answer(attachment.source, queue.name)
        source = QueueSource(
            attachment.connection, attachment.link, queue, self.nodes, attachment.transactions,
            browser=attachment.source.distribution_mode == COPY,
            settled=attach.snd_settle_mode == SETTLED_MODE,
            default_outcome=answer.default_outcome,
            outcomes=frozenset(answer.outcomes or ()),
            temporary=temporary,
        )  # fmt: skip
        queue.attach(source)
        return source


class QueueNode(Node):
    """A queue by its address; it is made on first use where its policy allows that."""

    is_received_from = True

    def __init__(self, queues: QueueNodes, name: str) -> None:
        super().__init__(name)
        self._queues = queues

    async def open_sink(self, attachment: Attachment) -> Sink:
        """For who has the right to send there."""
        queue = await self._queues.nodes.node_for(attachment.principal, self.name, SEND)
        return await self._queues.sink(attachment, queue)

    async def open_source(self, attachment: Attachment) -> Source:
        """For who has the right to receive, or to browse."""
        right = BROWSE if attachment.source.distribution_mode == COPY else RECEIVE
        queue = await self._queues.nodes.node_for(attachment.principal, self.name, right)
        return await self._queues.source(attachment, queue)

    def relayed(self, relay: RelaySink) -> Sink:
        """A queue that exists and has room, for who may send there."""
        nodes = self._queues.nodes
        principal = relay.connection.principal
        parsed = Address(self.name)  # whose grammar the relay has looked at
        if not nodes.authoriser.authorise(principal, SEND, parsed):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not send to {parsed.name!r}"
            )
        queue = nodes.queues.find(parsed)
        if queue is None:
            raise NodeRefused("amqp:not-found", f"no queue {parsed.name!r}")
        if not queue.find_room():
            raise NodeRefused("amqp:resource-limit-exceeded", f"queue {parsed.name!r} is full")
        return RelayedSink(relay, queue, nodes, relay.transactions, relay.rule)


class TemporaryNode(Node):
    """A queue that is made for one link, and goes with it (3.5.3, 3.5.4, 3.5.10)."""

    is_received_from = True

    def __init__(self, queues: QueueNodes) -> None:
        super().__init__()
        self._queues = queues

    async def open_sink(self, attachment: Attachment) -> Sink:
        """For who has the right to create."""
        if attachment.target.address is not None:
            raise NodeRefused("amqp:invalid-field", "a dynamic target must not name an address (3.5.4)")
        target_answer(attachment.target, None)  # refuses before a queue is made
        self._queues.rules.check(attachment.attach)
        return await self._queues.sink(attachment, self._made_for(attachment), temporary=True)

    async def open_source(self, attachment: Attachment) -> Source:
        """For who has the right to create."""
        if attachment.source.address is not None:
            raise NodeRefused("amqp:invalid-field", "a dynamic source must not name an address (3.5.3)")
        source_answer(attachment.source, "")  # refuses before a queue is made
        return await self._queues.source(attachment, self._made_for(attachment), temporary=True)

    def _made_for(self, attachment: Attachment) -> Queue:
        connection = attachment.connection
        return self._queues.nodes.temporary_queue(
            connection.principal, connection.container_id, attachment.link.name
        )
