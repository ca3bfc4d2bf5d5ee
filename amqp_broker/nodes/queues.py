"""Queues as nodes: those with an address, and those that are made for one link.

`rules` is a hook for features: `PostRules` has a say in what links post.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import BROWSE, RECEIVE, SEND, Principal
from amqp_broker.connection import Sink, Source
from amqp_broker.frames import Int, plain_value
from amqp_broker.lifetime import Lifetime
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.queue_sink import PostRule, QueueSink, RelayedSink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import (
    COPY,
    EXPIRY_WITH_LINK,
    LIFETIME_POLICY,
    LOG,
    filters_in_effect,
    no_queue,
    source_answer,
    target_answer,
)
from amqp_broker.queues import NoRoom

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.frames import Attach
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Site

SETTLED_MODE = 1  # snd-settle-mode settled (2.8.2)
PRIORITY: Final = "priority"
PRIORITY_PROPERTIES: Final = (PRIORITY, "x-priority", "rabbitmq:priority")
"""Properties of an attach by which a link that receives has a priority (`Queue.levels`); the first is
that of Artemis and of the brokers of Qpid.
"""
PRIORITY_MAX: Final = 2**31 - 1
"""Of a priority, and of a negative one: what an int of the wire holds (1.6.8)."""


def priority_of(properties: dict[Any, Any] | None) -> int:
    """What the properties of an attach ask for; 0 is the usual one. Raises NodeRefused for what is none."""
    for name in PRIORITY_PROPERTIES:
        asked = (properties or {}).get(name)
        if asked is None:
            continue
        value = plain_value(asked)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > PRIORITY_MAX:
            raise NodeRefused(
                "amqp:invalid-field",
                f"expected a whole number of at most {PRIORITY_MAX} as {name} of the link, got {asked!r:.80}",
            )
        return value
    return 0


class PostRules:
    """Whether there is a rule for what a link posts; here there is none."""

    def check(self, attach: Attach, site: Site | None) -> None:
        """Whether a link to the queue at `site`, or to the anonymous terminus (None), can be had at all.
        Raises NodeRefused.
        """

    async def open(self, attachment: Attachment, queue: Queue | None) -> PostRule | None:
        """The rule for such a link; it may add to our answer. Raises NodeRefused for what the store knows of
        a queue that was there before.
        """
        return None


class Lasting:
    """Whether the terminus of a link outlives it (2.6.3); here none does."""

    def wished(self, attachment: Attachment, *, persistent: bool = False) -> tuple[str, int, int] | None:
        """The expiry-policy, timeout (seconds) and durability of the terminus as it is made, where it may be
        `persistent` if its node is; None: it ends with its link. Raises NodeRefused.
        """
        return None

    async def sink(self, attachment: Attachment, queue: Queue, rule: PostRule | None) -> QueueSink:
        """The sink of a link whose target outlives it. Raises NodeRefused."""
        raise AssertionError("no target outlives its link")

    async def source(self, attachment: Attachment, queue: Queue) -> QueueSource:
        """The source of a link whose source outlives it. Raises NodeRefused."""
        raise AssertionError("no source outlives its link")

    def superseded(self, attachment: Attachment) -> None:
        """A link is attached whose terminus ends with it: no former one of its name has a terminus now."""


class QueueNodes:
    """Opens the links to queues of one broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self.rules = PostRules()
        self.lasting = Lasting()

    def check_sink(self, attachment: Attachment, site: Site) -> None:
        """Whether a link that sends to the queue at `site` can be had as asked. Raises NodeRefused."""
        answer = attachment.answer = target_answer(attachment.target, site.name)
        if site.archives:
            answer.capabilities = (*(no_queue(answer.capabilities) or ()), LOG)
        if site.judges:
            attachment.max_message_size = site.policy.ring_bytes or None
        self.rules.check(attachment.attach, site)
        lasting = self.lasting.wished(attachment, persistent=site.persistent)
        if lasting is not None:
            answer.expiry_policy, answer.timeout, answer.durable = lasting

    async def sink(self, attachment: Attachment, queue: Queue) -> Sink:
        """The sink of a link that sends to `queue`. Raises NodeRefused."""
        rule = await self.rules.open(attachment, queue)
        answer = attachment.answer
        if answer.expiry_policy != EXPIRY_WITH_LINK or answer.timeout:
            sink = await self.lasting.sink(attachment, queue, rule)
        else:
            self.lasting.superseded(attachment)
            sink = QueueSink(
                attachment.connection, attachment.link, queue, self.nodes, attachment.transactions, rule
            )
        if queue.lifetime is not None:
            queue.lifetime.joined(sink)
        attachment.credit = sink.begin()
        return sink

    async def source(self, attachment: Attachment, queue: Queue) -> Source:
        """The source of a link that receives from `queue`. Raises NodeRefused."""
        answer = attachment.answer
        if answer.expiry_policy != EXPIRY_WITH_LINK or answer.timeout:
            source = await self.lasting.source(attachment, queue)
        else:
            self.lasting.superseded(attachment)
            source = QueueSource(
                attachment.connection, attachment.link, queue, self.nodes, attachment.transactions,
                browser=attachment.source.distribution_mode == COPY,
                settled=attachment.attach.snd_settle_mode == SETTLED_MODE,
                default_outcome=answer.default_outcome,
                outcomes=frozenset(answer.outcomes or ()),
                filter=attachment.filter,
            )  # fmt: skip
        source.priority = priority_of(attachment.attach.properties)
        if queue.lifetime is not None:
            queue.lifetime.joined(source)
        queue.attach(source)
        return source

    def answer_source(self, attachment: Attachment, site: Site) -> None:
        """The source of a link that receives from the queue at `site`, with the filters that hold. Raises
        NodeRefused.
        """
        answer = attachment.answer = source_answer(attachment.source, site.name)
        attachment.filter, answer.filter = filters_in_effect(attachment.source.filter)
        lasting = self.lasting.wished(attachment, persistent=site.persistent)
        if lasting is not None:
            answer.expiry_policy, answer.timeout, answer.durable = lasting
        priority = priority_of(attachment.attach.properties)
        if priority:
            attachment.properties = {PRIORITY: Int(priority)}

    def check_exclusive(self, attachment: Attachment, site: Site) -> None:
        """Whether nobody else takes messages of an exclusive queue. Raises NodeRefused."""
        owner = None if site.queue is None else site.queue.owner
        if owner is not None and owner is not attachment.connection:
            reason = f"queue {site.name!r} is exclusive: it is of another connection"
            raise NodeRefused("amqp:resource-locked", reason)
        if not site.policy.exclusive or site.queue is None or attachment.source.distribution_mode == COPY:
            return
        if any(not consumer.browser for consumer in site.queue.consumers):
            reason = f"queue {site.name!r} is exclusive (of its [[queue]]), and another link receives from it"
            raise NodeRefused("amqp:resource-locked", reason)


class QueueNode(Node):
    """A queue by its address; it is made on first use where its policy allows that."""

    is_received_from = True

    def __init__(self, queues: QueueNodes, name: str) -> None:
        super().__init__(name)
        self._queues = queues

    def check(self, principal: Principal) -> None:
        """Admits who has the right to send there; the queue has to take any message."""
        site = self._queues.nodes.site(principal, self.name, SEND)
        site.check_messages()
        self.sites = (site,)

    def check_sink(self, attachment: Attachment) -> None:
        """Admits who has the right to send there, where the link can be had as asked."""
        self.check(attachment.principal)
        self._queues.check_sink(attachment, self.sites[0])

    def check_source(self, attachment: Attachment) -> None:
        """Admits who has the right to receive there, or to browse."""
        right = BROWSE if attachment.source.distribution_mode == COPY else RECEIVE
        self.sites = (self._queues.nodes.site(attachment.principal, self.name, right),)
        self._queues.check_exclusive(attachment, self.sites[0])
        self._queues.answer_source(attachment, self.sites[0])

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink that posts what is sent to the queue."""
        return await self._queues.sink(attachment, self.sites[0].made)

    async def open_source(self, attachment: Attachment) -> Source:
        """The source that takes messages of the queue, or shows them."""
        self._queues.check_exclusive(attachment, self.sites[0])  # others may have come meanwhile
        return await self._queues.source(attachment, self.sites[0].made)

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """The sink for one message that came through the anonymous terminus. Raises NoRoom."""
        queue = self.sites[0].made
        if not queue.find_room():
            raise NoRoom(queue)
        return RelayedSink(relay, queue, self._queues.nodes, relay.transactions, attachment.rule)


class TemporaryNode(Node):
    """A queue that is made for one link (3.5.3, 3.5.4), and goes when its lifetime policy says so (3.5.10 to
    3.5.13). Who has the right to create may have one.
    """

    is_received_from = True

    def __init__(self, queues: QueueNodes) -> None:
        super().__init__()
        self._queues = queues

    def check_sink(self, attachment: Attachment) -> None:
        """Any link may send there."""
        if attachment.target.address is not None:
            raise NodeRefused("amqp:invalid-field", "a dynamic target must not name an address (3.5.4)")
        site = self._site(attachment)
        site.check_messages()
        self._queues.check_sink(attachment, site)

    def check_source(self, attachment: Attachment) -> None:
        """The link for which it is made receives."""
        if attachment.source.address is not None:
            raise NodeRefused("amqp:invalid-field", "a dynamic source must not name an address (3.5.3)")
        self._queues.answer_source(attachment, self._site(attachment))

    def _site(self, attachment: Attachment) -> Site:
        connection = attachment.connection
        site = self._queues.nodes.dynamic_site(
            connection.principal, connection.container_id, attachment.link.name
        )
        self.sites = (site,)
        return site

    async def make(self, attachment: Attachment) -> None:
        """Make the queue, with the lifetime that its link was answered."""
        await super().make(attachment)
        policy = attachment.answer.dynamic_node_properties[LIFETIME_POLICY]
        self.sites[0].made.lifetime = Lifetime(policy)

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink of the link for which the queue was made."""
        return await self._queues.sink(attachment, self.sites[0].made)

    async def open_source(self, attachment: Attachment) -> Source:
        """The source of the link for which the queue was made."""
        return await self._queues.source(attachment, self.sites[0].made)
