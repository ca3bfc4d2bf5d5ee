"""All topics and subscriptions of one broker.

    post to a topic --members--> the queues of the subscriptions whose pattern has its name
    attach          --find or make--> Subscription --open--> a link to its queue
    detach          --left--> kept, or gone with its queue: closed, not durable, or its timeout is over
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.addresses import TopicPattern
from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import Error
from amqp_broker.log_setup import logger
from amqp_broker.management.errors import Unmanageable
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.removal import Removal, Then
from amqp_broker.persistence import Configure, CreateNode, DeleteNode, RecoveredNode, StoreFull, Unit
from amqp_broker.queue import Queue
from amqp_broker.topics.subscriptions import (
    SUBSCRIPTION_KIND,
    SUBSCRIPTION_PREFIX,
    Identity,
    Subscription,
    Wish,
    stored_wish,
)
from amqp_broker.topics.topic import Member, Topic

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

ROUTING: Final = "routing"  # of the settings of a topic
DIRECT: Final = "direct"
FANOUT: Final = "fanout"
ROUTINGS: Final = (DIRECT, FANOUT, "topic")  # RabbitMQ's types of exchanges
TOPIC_KIND: Final = "topic"  # of nodes of the store: topics that a client declared


class Topics:
    """Topics by name, subscriptions by what they are for."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        nodes.queues.is_topic = self.is_topic
        self._topics: dict[str, Topic] = {}
        self._named: dict[Identity, Subscription] = {}
        self._exact: dict[str, list[Member]] = {}  # by the name of a topic
        self._patterns: dict[str, tuple[TopicPattern, list[Member]]] = {}  # by their text
        self._fitting: dict[str, list[Member]] = {}  # of these, by the name of a topic; made when asked for
        self._subscriptions: dict[str, Subscription] = {}  # all of them, by their queues' names
        self._last_number = 0
        self.making = trio.Lock()
        """Held by who makes something that lasts."""
        self.leaving: list[Callable[[Topic], Unit]] = []
        """Called with each topic that is deleted by hand: what else has to be stored then."""
        self._bound = 0  # members of queues that are bound
        self._log = logger("topics")

    # What there is

    def is_topic(self, name: str) -> bool:
        """Whether the node of this name copies what comes to each subscription."""
        if name in self._topics:
            return True
        return self.nodes.config.policy_of(name).copies and self.nodes.queues.find(name) is None

    def topics(self) -> list[Topic]:
        """Every topic that was used or declared."""
        return [*self._topics.values()]

    def subscriptions(self) -> dict[str, Subscription]:
        """Every subscription, by the name of its queue."""
        return self._subscriptions

    def find(self, name: str) -> Topic | None:
        """The topic of this name; one that the configuration knows is made when it is looked for."""
        topic = self._topics.get(name)
        if topic is None and self.is_topic(name):
            self.check_room()
            topic = self._enter(name)
        return topic

    def _enter(self, name: str, *, temporary: bool = False) -> Topic:
        topic = Topic(name, self.nodes.memory, self.members, self.nodes.pump, temporary=temporary)
        topic.in_memory = self.nodes.config.memory
        self._topics[name] = topic
        return topic

    def look_for(self, name: str) -> None:
        """Something is bound to the topic of this name, which is one by that."""
        if self.nodes.queues.find(name) is None:
            self.find(name) or self._enter(name)

    async def declare(self, name: str, routing: str = "") -> Topic:
        """The topic of this name, which is one from now on, also after a restart. One that is declared as an
        exchange of RabbitMQ keeps its type. Raises NodeRefused.
        """
        async with self.making:
            topic = self.find(name)
            if topic is not None and (not routing or topic.routing == routing):
                return topic
            if topic is not None and topic.routing:
                reason = f"{name!r} is an exchange of type {topic.routing}, not {routing}"
                raise Unmanageable(409, reason)
            self.check_room()
            settings: dict[str, object] = {ROUTING: routing} if routing else {}
            if topic is not None and topic.declared:
                await self.store([Configure(topic.node_id, settings)])
            else:
                verb = CreateNode(name, TOPIC_KIND, settings)
                await self.store([verb])
                topic = topic or self._enter(name)
                topic.node_id = verb.queue_id
            topic.routing = routing
            return topic

    def delete(self, topic: Topic, then: Then) -> None:
        """A topic that somebody declared is one no more; `then` is called when a start would not find it,
        either.
        """
        verbs: Unit = []
        for leave in self.leaving:
            verbs.extend(leave(topic))
        self.drop(topic)
        self.nodes.writer.submit(Removal([DeleteNode(topic.node_id), *verbs], then))

    def why_kept(self, topic: Topic) -> str:
        """Why a topic can't be deleted by hand; empty: it can."""
        name = topic.name
        if not topic.declared or self.nodes.config.policy_of(name).copies:
            return f"topic {name!r} was not declared: its link or the configuration says that it is one"
        links = len(topic.producers)
        subscriptions = sum(member.source != name for member in self._exact.get(name, ()))
        if links or subscriptions:
            return (
                f"expected a topic that nobody uses, {name!r} has {links} links that send and "
                f"{subscriptions} subscriptions and bindings"
            )
        return ""

    def make_temporary(self, name: str) -> Topic:
        """A topic that goes with its link."""
        self.check_room()
        return self._enter(name, temporary=True)

    def check_room(self) -> None:
        """Whether there may be one more topic. Raises NodeRefused."""
        most = self.nodes.config.limits.max_nodes
        if len(self._topics) >= most:
            raise NodeRefused(
                "amqp:resource-limit-exceeded",
                f"the broker has {most} topics, as many as max_nodes allows",
                limit="max_nodes",
            )

    def drop(self, topic: Topic) -> None:
        """The topic is gone, as the link for which it was made (3.5.10), or by hand: all its links end."""
        del self._topics[topic.name]
        description = f"topic {topic.name!r} was deleted"
        error = Error(condition="amqp:resource-deleted", description=description)
        for sink in list(topic.producers):
            sink.end(error)
        for member in list(self._exact.get(topic.name, ())):
            for consumer in list(member.queue.consumers):
                consumer.end(error)

    # Who gets what is posted

    def members(self, name: str) -> list[Member]:
        """Who gets what is posted to the topic of this name."""
        exact = self._exact.get(name)
        if not self._patterns:
            return exact or []
        fitting = self._fitting.get(name)
        if fitting is None:
            if len(self._fitting) >= self.nodes.config.limits.max_nodes:
                self._fitting.clear()
            found = [members for pattern, members in self._patterns.values() if pattern.matches(name)]
            fitting = self._fitting[name] = [member for members in found for member in members]
        return exact + fitting if exact else fitting

    def subscribed(self, name: str) -> int:
        """How many subscriptions get what is posted to the topic of this name; bindings are none."""
        return sum(member.queue.name in self._subscriptions for member in self.members(name))

    def join(self, pattern: TopicPattern, member: Member) -> None:
        """It gets what is posted to these topics from now on."""
        self._bound += member.bound
        if pattern.exact:
            self._exact.setdefault(pattern.text, []).append(member)
        else:
            self._patterns.setdefault(pattern.text, (pattern, []))[1].append(member)
            self._fitting.clear()

    def leave(self, pattern: TopicPattern, member: Member) -> None:
        """It gets nothing more."""
        self._bound -= member.bound
        if pattern.exact:
            members = self._exact[pattern.text]
        else:
            members = self._patterns[pattern.text][1]
            self._fitting.clear()
        members.remove(member)
        if not members:
            self._exact.pop(pattern.text, None)
            self._patterns.pop(pattern.text, None)

    # Subscriptions

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up the topics and the subscriptions that the store has. What was a queue before the
        configuration called it a topic stays one.
        """
        for queue in self.nodes.queues.queues():
            if self.nodes.config.policy_of(queue.name).copies:
                self._log.warning("topic.is_a_queue", name=queue.name)
        for node in nodes:
            if node.kind == TOPIC_KIND:
                topic = self._enter(node.name)
                topic.node_id = node.queue_id
                topic.routing = str(node.settings.get(ROUTING, ""))
            elif node.kind == SUBSCRIPTION_KIND:
                identity, wish = stored_wish(node.settings)
                queue = self.nodes.queues.adopt(node, self._policy(wish))
                self._rest(self._begin(identity, wish, queue))

    def named(self, identity: Identity) -> Subscription | None:
        """The subscription of this identity."""
        return self._named.get(identity)

    def check_subscription(self, identity: Identity | None, wish: Wish) -> None:
        """Whether it can be had. Raises NodeRefused."""
        known = None if identity is None else self._named.get(identity)
        if known is not None:
            if known.wish.shared != wish.shared:
                kind = "a shared" if known.wish.shared else "not a shared"
                raise NodeRefused("amqp:not-allowed", f"the subscription of this name is {kind} one")
            if known.wish != wish and wish.shared and known.links:
                raise NodeRefused(
                    "amqp:not-allowed",
                    "the shared subscription of this name is for another topic or filter, and in use",
                )
            return
        self.check_receivers(wish.pattern)
        self.nodes.queues.check_room()

    def check_receivers(self, pattern: TopicPattern) -> None:
        """Whether there may be one more subscription, or binding, for these topics. Raises NodeRefused."""
        limits = self.nodes.config.limits
        if len(self._subscriptions) + self._bound >= limits.max_subscriptions:
            most = limits.max_subscriptions
            reason = f"the broker has {most} subscriptions, as many as max_subscriptions allows"
            raise NodeRefused("amqp:resource-limit-exceeded", reason)
        text, most = pattern.text, limits.max_subscriptions_per_topic
        here = self._exact.get(text, []) if pattern.exact else self._patterns.get(text, (None, []))[1]
        if len(here) >= most:
            reason = f"{text!r} has {most} subscriptions, as many as max_subscriptions_per_topic allows"
            raise NodeRefused("amqp:resource-limit-exceeded", reason)

    async def subscribe(self, identity: Identity | None, wish: Wish) -> Subscription:
        """The subscription, which is there from now on. One that had another topic or filter is another one:
        what it held is gone. Raises NodeRefused.
        """
        if identity is None or not identity.durable:
            if not self.nodes.writer.caught_up:  # what was posted before is not for it
                await self.store([])
                self.check_subscription(identity, wish)
            return self._subscribe_in_memory(identity, wish)
        while True:
            known = self._named.get(identity)
            if known is not None and known.wish != wish:
                await self.nodes.letters_stored(known.queue)  # others make theirs meanwhile
            async with self.making:
                known = self._named.get(identity)
                if known is not None and known.wish == wish:
                    await self._keep_timeout(known, wish)
                    if not known.queue.deleted:  # else its end came with the timeout
                        return known
                elif known is None or not known.queue.leaving:
                    return await self._make_durable(identity, wish, known)

    async def _make_durable(
        self, identity: Identity, wish: Wish, former: Subscription | None
    ) -> Subscription:  # fmt: skip
        """One that is stored, in the place of the `former` one."""
        self.check_subscription(identity, wish)
        unit: Unit = self._forget(former) if former is not None else []
        settings = wish.settings(identity)
        verb = CreateNode(identity.node_name, SUBSCRIPTION_KIND, settings)
        made: list[Subscription] = []

        def stored() -> None:
            policy = self._policy(wish)
            queue = self.nodes.queues.enter(verb.name, verb.queue_id, policy, settings=settings)
            made.append(self._begin(identity, wish, queue))

        try:
            await self.store([*unit, verb], stored)
        except NodeRefused:
            if unit:
                self.nodes.writer.submit(Removal(unit, _nothing))
            raise
        return made[0]

    async def _keep_timeout(self, known: Subscription, wish: Wish) -> None:
        """The link that came back may have another timeout. Raises NodeRefused."""
        former = known.wish
        if former.timeout_s != wish.timeout_s:
            _set_wish(known, wish)
            try:
                await self.nodes.keep_settings(known.queue)
            except StoreFull as full:
                _set_wish(known, former)
                description = f"the timeout of the subscription could not be changed: {full}"
                raise NodeRefused("amqp:resource-limit-exceeded", description) from full

    def _subscribe_in_memory(self, identity: Identity | None, wish: Wish) -> Subscription:
        known = None if identity is None else self._named.get(identity)
        if known is not None and known.wish == wish:
            return known
        if known is not None:
            self._forget(known)
        self._last_number += 1
        name = identity.node_name if identity else f"{SUBSCRIPTION_PREFIX}{self._last_number}"
        queue = self.nodes.queues.create_temporary(name, self._policy(wish))
        return self._begin(identity, wish, queue)

    def _policy(self, wish: Wish) -> QueuePolicy:
        """The policy of a topic holds for each of its subscriptions; that of a pattern, for one to it."""
        policy = self.nodes.config.policy_of(wish.pattern.text)
        return policy if policy.copies else QueuePolicy(pattern="**")

    def _begin(self, identity: Identity | None, wish: Wish, queue: Queue) -> Subscription:
        subscription = Subscription(identity, wish, queue)
        if identity is not None:
            self._named[identity] = subscription
        self.join(wish.pattern, subscription.member)
        self._subscriptions[queue.name] = subscription
        return subscription

    def _forget(self, subscription: Subscription) -> Unit:
        """It gets nothing from now on, and is gone with what it holds; what has to be stored for that."""
        queue = subscription.queue
        self.leave(subscription.wish.pattern, subscription.member)
        if subscription.identity is not None:
            del self._named[subscription.identity]
        del self._subscriptions[queue.name]
        self.nodes.timers.forget(Timeout(self, subscription))
        return self.nodes.drop(queue)

    def left(self, subscription: Subscription, source: Any) -> None:
        """A link of it is gone: so is a subscription that is closed by its last link, or not durable."""
        if source in subscription.links:
            subscription.links.remove(source)
        ends = not subscription.links and not subscription.queue.deleted
        if ends and (source.closed or not subscription.durable):
            self.unsubscribe(subscription, source.answer_close)
            return
        if ends:
            self._rest(subscription)
        source.answer_close()

    def unsubscribe(self, subscription: Subscription, then: Then) -> None:
        """It is gone, with all that it holds, behind the dead letters that are on their way, unless somebody
        receives from it by then. `then` is called when a start would not find it, either.
        """
        self.nodes.behind_letters(subscription.queue, partial(self._unsubscribe, subscription, then))

    def _unsubscribe(self, subscription: Subscription, then: Then) -> None:
        if subscription.links:
            then(None)
        else:
            self.end(subscription, then)

    def end(self, subscription: Subscription, then: Then) -> None:
        """It is gone now, with all that it holds, and its links end. `then` is called when a start would not
        find it, either.
        """
        verbs = [] if subscription.queue.deleted else self._forget(subscription)
        if verbs:
            self.nodes.writer.submit(Removal(verbs, then))
        else:
            then(None)

    def _rest(self, subscription: Subscription) -> None:
        """Nobody receives from it now: its time begins to run, if it has one."""
        timeout_s = subscription.wish.timeout_s
        if timeout_s is not None:
            timeout = Timeout(self, subscription)
            self.nodes.timers.forget(timeout)
            self.nodes.timers.set(trio.current_time() + timeout_s, timeout)

    def timed_out(self, subscription: Subscription) -> None:
        """The time of a subscription without links is over (3.5.3)."""
        if not subscription.links and not subscription.queue.deleted:
            self._log.info("subscription.expired", name=subscription.queue.name)
            self.unsubscribe(subscription, _nothing)

    async def store(self, verbs: Unit, stored: Any = None) -> None:
        try:
            await self.nodes.store_step(verbs, stored)
        except StoreFull as full:
            description = f"the node could not be made: {full}"
            raise NodeRefused("amqp:resource-limit-exceeded", description) from full


def _set_wish(subscription: Subscription, wish: Wish) -> None:
    """It differs in its timeout only."""
    queue = subscription.queue
    queue.settings = {**queue.settings, "timeout_s": wish.timeout_s}
    subscription.wish = wish


def _nothing(_: Error | None) -> None:
    """Nobody waits for it."""


class Timeout:
    """When the time of a subscription is over; one for each."""

    __slots__ = ("_subscription", "_topics")

    def __init__(self, topics: Topics, subscription: Subscription) -> None:
        self._topics = topics
        self._subscription = subscription

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timeout) and other._subscription is self._subscription

    def __hash__(self) -> int:
        return hash(id(self._subscription))

    def wake(self) -> None:
        """It may be over."""
        self._topics.timed_out(self._subscription)
