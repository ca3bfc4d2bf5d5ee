"""Topics as nodes: links send to them, and receive by subscriptions (the JMS mapping's terminus capabilities
`topic`, `temporary-topic`, `shared` and `global`).
"""

from __future__ import annotations

from copy import copy
from typing import Final

from amqp_broker.addresses import (
    TEMPORARY_PREFIX,
    Address,
    AddressError,
    parse_address,
    parse_topic_pattern,
)
from amqp_broker.authorisation import CREATE, RECEIVE, SEND, Principal
from amqp_broker.connection import Sink
from amqp_broker.connection import Source as End
from amqp_broker.filters.source_filter import NO_LOCAL
from amqp_broker.frames import Source, Target
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.queue_sink import RelayedSink
from amqp_broker.nodes.queues import priority_of
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.registry import FORMER, Registry
from amqp_broker.nodes.termini import (
    CONFIGURATION,
    COPY,
    QUEUE,
    TOPIC_CAPABILITIES,
    filters_in_effect,
    node_properties,
    source_answer,
)
from amqp_broker.nodes.termini import target_answer as _target_answer
from amqp_broker.topics.links import SubscriptionSource, TopicSink
from amqp_broker.topics.subscriptions import (
    DETACH,
    GLOBAL,
    NEVER,
    SHARED,
    Identity,
    Subscription,
    Wish,
    former_identity,
    identity_of,
    is_durable,
    split_no_local,
    timeout_of,
)
from amqp_broker.topics.topic import Topic
from amqp_broker.topics.topics import Topics
from amqp_broker.word_patterns import WILDCARDS

TOPIC: Final = "topic"
TEMPORARY_TOPIC: Final = "temporary-topic"
HELD: Final = (*TOPIC_CAPABILITIES, SHARED, GLOBAL)


def register_topics(registry: Registry, topics: Topics) -> None:
    """Register the nodes of topics, of subscriptions to them, and of links that look for the one they had."""
    queues = topics.nodes.queues

    def wanted(name: str | None, capabilities: tuple[str, ...]) -> bool:
        by_capability = any(each in TOPIC_CAPABILITIES for each in capabilities)
        if name is None:
            return by_capability
        if by_capability and queues.find(name) is not None:
            raise NodeRefused("amqp:not-allowed", f"{name!r} is a queue, and was asked for as a topic")
        return by_capability or topics.is_topic(name)

    def target(name: str | None, capabilities: tuple[str, ...]) -> Node | None:
        return TopicNode(topics, name, capabilities) if wanted(name, capabilities) else None

    def source(source: Source) -> Node | None:
        name = None if source.dynamic else source.address
        capabilities = source.capabilities or ()
        if name is None and not source.dynamic:
            return None
        if name is not None and not isinstance(name, str):
            return None
        if wanted(name, capabilities) or (name is not None and _is_pattern(name) and not queues.find(name)):
            return SubscriptionNode(topics, name)
        return None

    registry.register_target(target)
    registry.register_source(source)
    registry.register(FORMER, lambda _: FormerNode(topics))


def _is_pattern(name: str) -> bool:
    return any(word in WILDCARDS for word in name.split("."))


class TopicEnd(Node):
    """Base: a topic by its name, or (None) one that is made for the link."""

    is_received_from = True

    def __init__(self, topics: Topics, name: str | None) -> None:
        super().__init__(name or "")
        self.topics = topics
        self.dynamic = name is None
        self.topic: Topic | None = None

    @property
    def there(self) -> bool:
        """Whether nothing has to be made before it is opened."""
        return self.topic is not None

    def check_name(self, principal: Principal, action: str) -> None:
        """Whether `principal` may do `action` at the topic, and make it if it is not there. Raises
        NodeRefused.
        """
        address = self._address()
        self._admit(principal, action, address)
        self.topic = self.topics.find(self.name)
        if self.topic is None:
            if self.name.startswith(TEMPORARY_PREFIX):
                reason = f"no topic {self.name!r}: it was a dynamic node, and is gone"
                raise NodeRefused("amqp:not-found", reason)
            if not self.topics.nodes.authoriser.authorise(principal, CREATE, address):
                raise NodeRefused("amqp:not-found", f"no topic {self.name!r}, and no right to create it")
            self.topics.check_room()

    def check_dynamic(self, attachment: Attachment, address: str | None) -> None:
        """Whether the link may have a topic of its own, which gets its name. Raises NodeRefused."""
        if address is not None:
            reason = "a dynamic terminus must not name an address (3.5.3, 3.5.4)"
            raise NodeRefused("amqp:invalid-field", reason)
        connection = attachment.connection
        site = self.topics.nodes.dynamic_site(
            connection.principal, connection.container_id, attachment.link.name
        )
        self.name = site.name
        self.topics.check_room()

    def _address(self) -> Address:
        try:
            address = parse_address(self.name, self.topics.nodes.config.limits.address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        if address.reserved:
            raise NodeRefused("amqp:not-found", f"no topic {self.name!r}: '$' names the broker's own nodes")
        if _is_pattern(self.name):
            raise NodeRefused("amqp:invalid-field", f"topic {self.name!r} has a wildcard among its words")
        return address

    def _admit(self, principal: Principal, action: str, address: Address) -> None:
        if not self.topics.nodes.authoriser.authorise(principal, action, address):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not {action} at {address.name!r}"
            )

    async def make(self, attachment: Attachment) -> None:
        """Make the topic, if it is not there."""
        if self.dynamic:
            self.topic = self.topics.make_temporary(self.name)
        elif self.topic is None:
            self.topic = await self.topics.declare(self.name)

    def held(self, asked: tuple[str, ...] | None) -> tuple[str, ...]:
        """The capabilities that our terminus has. Raises NodeRefused for that of a queue."""
        if QUEUE in (asked or ()):
            raise NodeRefused("amqp:not-allowed", f"{self.name!r} is a topic, and was asked for as a queue")
        held = tuple(each for each in asked or () if each in HELD)
        return held if any(each in TOPIC_CAPABILITIES for each in held) else (TOPIC, *held)


class TopicNode(TopicEnd):
    """A topic for those who send."""

    def __init__(self, topics: Topics, name: str | None, capabilities: tuple[str, ...] = ()) -> None:
        super().__init__(topics, name)

    def check(self, principal: Principal) -> None:
        """Admits who has the right to send there, and where it is not there, to create it."""
        self.check_name(principal, SEND)

    def check_sink(self, attachment: Attachment) -> None:
        """As `check`; a new one is for who has the right to create."""
        target = attachment.target
        if self.dynamic:
            self.check_dynamic(attachment, target.address)
        else:
            self.check(attachment.principal)
        attachment.answer = target_answer(target, self.name, self.held(target.capabilities))

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink that posts what is sent to all subscriptions."""
        assert self.topic is not None, "it was made"
        gone = self.topics.drop if self.dynamic else None
        sink = TopicSink(attachment, self.topics.nodes, self.topic, gone)
        attachment.credit = sink.begin()
        return sink

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """The sink for one message that came through the anonymous terminus."""
        assert self.topic is not None, "it was made"
        return RelayedSink(relay, self.topic, self.topics.nodes, relay.transactions, None)


class SubscriptionNode(TopicEnd):
    """What a link receives of a topic, or of all that a pattern means."""

    def __init__(self, topics: Topics, name: str | None) -> None:
        super().__init__(topics, name)
        self._identity: Identity | None = None
        self._wish: Wish | None = None

    def check_source(self, attachment: Attachment) -> None:
        """Admits who has the right to receive there; a durable subscription needs that to create, too."""
        source = attachment.source
        principal = attachment.principal
        nodes = self.topics.nodes
        priority_of(attachment.attach.properties)
        if self.dynamic:
            self.check_dynamic(attachment, source.address)
        elif not _is_pattern(self.name):
            self.check_name(principal, RECEIVE)
        try:
            pattern = parse_topic_pattern(self.name, nodes.config.limits.address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        if not self.dynamic and not nodes.authoriser.authorise_all(principal, RECEIVE, pattern.words):
            raise NodeRefused(
                "amqp:unauthorized-access",
                f"{principal.rule_name!r} may not receive at all that {pattern.text!r} means",
            )
        durable = is_durable(attachment) and not self.dynamic
        if durable and not nodes.authoriser.authorise_all(principal, CREATE, pattern.words):
            raise NodeRefused(
                "amqp:unauthorized-access",
                f"{principal.rule_name!r} may not create a durable subscription to {pattern.text!r}",
            )
        asked = copy(source)
        asked.durable, asked.capabilities = 0, None
        answer = source_answer(asked, self.name)
        filters = {key: value for key, value in (source.filter or {}).items() if value is not None}
        no_local, others = split_no_local(filters)
        found, _ = filters_in_effect(others)
        answer.filter = filters or None
        answer.distribution_mode = COPY
        answer.dynamic_node_properties = node_properties(source, modes=(COPY,), with_link=True)
        answer.capabilities = self.held(source.capabilities)
        timeout_s = None
        if durable:
            timeout_s = timeout_of(attachment)
            answer.durable = CONFIGURATION  # what is unsettled comes anew (3.5.5)
            answer.expiry_policy = NEVER if timeout_s is None else DETACH
            answer.timeout = timeout_s or 0
        attachment.answer = answer
        not_from = _own_container(attachment) if no_local else ""
        shared = SHARED in answer.capabilities
        self._wish = Wish(pattern, answer.filter, found, shared, timeout_s, not_from)
        if not self.dynamic:
            self._identity = identity_of(attachment, nodes.config.limits.subscription_name_bytes)
        self.topics.check_subscription(self._identity, self._wish)

    async def make(self, attachment: Attachment) -> None:
        """Make the topic, where one is named."""
        if self.dynamic or not _is_pattern(self.name):
            await super().make(attachment)

    async def open_source(self, attachment: Attachment) -> End:
        """The source that gives what the subscription holds; it begins here, unless it was there before."""
        assert self._wish is not None, "it was checked"
        subscription = await self.topics.subscribe(self._identity, self._wish)
        return open_subscription(self.topics, attachment, subscription, self.topic if self.dynamic else None)


class FormerNode(Node):
    """The durable subscription that a link of this name had: looked for without a source (the JMS mapping
    does so before it closes one).
    """

    is_received_from = True

    def __init__(self, topics: Topics) -> None:
        super().__init__()
        self._topics = topics
        self._subscription: Subscription | None = None

    def check_source(self, attachment: Attachment) -> None:
        """It has to be there. Raises NodeRefused."""
        identity = former_identity(attachment, self._topics.nodes.config.limits.subscription_name_bytes)
        subscription = self._topics.named(identity)
        if subscription is None:
            raise NodeRefused(
                "amqp:not-found",
                f"source null, and no durable subscription {identity.name[:64]!r} of this container",
            )
        wish = subscription.wish
        attachment.answer = Source(
            address=wish.pattern.text,
            durable=CONFIGURATION,
            expiry_policy=NEVER if wish.timeout_s is None else DETACH,
            timeout=wish.timeout_s or 0,
            distribution_mode=COPY,
            filter=wish.filters,
            default_outcome=source_answer(Source(), "").default_outcome,
            outcomes=source_answer(Source(), "").outcomes,
            capabilities=(TOPIC, *((SHARED,) if wish.shared else ())),
        )
        self._subscription = subscription

    async def open_source(self, attachment: Attachment) -> End:
        """The source that gives what the subscription holds."""
        assert self._subscription is not None, "it was checked"
        return open_subscription(self._topics, attachment, self._subscription, None)


def _own_container(attachment: Attachment) -> str:
    """Whose messages the no-local filter keeps out: those of the container that subscribes."""
    if GLOBAL in (attachment.source.capabilities or ()):
        reason = f"filter {NO_LOCAL}: a global subscription is that of all containers"
        raise NodeRefused("amqp:invalid-field", reason)
    return attachment.connection.container_id


def open_subscription(
    topics: Topics, attachment: Attachment, subscription: Subscription, temporary: Topic | None
) -> End:
    """A link to the queue of a subscription; with it goes a topic that was made for it."""

    def left(source: SubscriptionSource) -> None:
        if temporary is not None:
            topics.drop(temporary)
        topics.left(subscription, source)

    source = SubscriptionSource(attachment, topics.nodes, subscription.queue, left)
    source.priority = priority_of(attachment.attach.properties)
    subscription.links.append(source)
    subscription.queue.attach(source)
    return source


def target_answer(asked: Target, address: str, capabilities: tuple[str, ...]) -> Target:
    """The target of a link that sends to a topic, as it really is."""
    asked = copy(asked)
    asked.capabilities = None
    answer = _target_answer(asked, address)
    answer.dynamic_node_properties = node_properties(asked, modes=(COPY,), with_link=True)
    answer.capabilities = capabilities
    return answer
