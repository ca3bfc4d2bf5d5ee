"""Topics, subscriptions and bindings as `$management` tells them, and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from amqp_broker.authorisation import DELETE as MAY_DELETE
from amqp_broker.authorisation import Principal
from amqp_broker.management.changing import changed, queue_changes, reset_action, tries
from amqp_broker.management.core_types import bounds, counted, lasting_address
from amqp_broker.management.entity_types import DELETE, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.queue_operations import FORCE, message_actions
from amqp_broker.operations.operation import answer_to
from amqp_broker.operations.removal import Then
from amqp_broker.topics.bindings import Binding, Bindings, Wanted
from amqp_broker.topics.subscriptions import Subscription
from amqp_broker.topics.topic import Topic
from amqp_broker.topics.topics import ROUTING, ROUTINGS, Topics
from amqp_broker.word_patterns import WILDCARDS


def topic_types(topics: Topics, bindings: Bindings) -> list[EntityType[Any]]:
    """The types of one broker."""
    return [_topic(topics), _subscription(topics), _binding(bindings)]


def _topic(topics: Topics) -> EntityType[Topic]:
    async def make(name: str, told: Mapping[str, Any]) -> bool:
        routing = told.get(ROUTING, "")
        if routing not in ("", *ROUTINGS):
            names = ", ".join(ROUTINGS)
            raise Unmanageable(400, f"{ROUTING}: expected one of {names}, got {routing!r:.80}")
        lasting_address(topics.nodes, name, "topic")
        if any(word in WILDCARDS for word in name.split(".")):
            raise Unmanageable(403, f"{name!r} is no name for a topic that lasts")
        if topics.nodes.queues.find(name) is not None:
            raise Unmanageable(409, f"{name!r} is a queue")
        there = topics.find(name) is not None
        await topics.declare(name, routing)
        return not there

    async def delete(topic: Topic, told: Mapping[str, Any], _: Principal) -> None:
        why = topics.why_kept(topic)
        if why:
            raise Unmanageable(409, why)
        await _gone(f"topic {topic.name!r}", partial(topics.delete, topic))

    return EntityType(
        "topic", "a topic that was used or declared, by its address",
        topics.topics, lambda topic: topic.name,
        {
            "declared": lambda topic: topic.declared,
            ROUTING: lambda topic: topic.routing or None,
            "temporary": lambda topic: topic.temporary,
            "senders": lambda topic: len(topic.producers),
            "receivers": lambda topic: len(topics.members(topic.name)),
            "subscriptions": lambda topic: topics.subscribed(topic.name),
            "posted": lambda topic: topic.next_offset,
            "copied": lambda topic: topic.copied,
            "passed_over": lambda topic: topic.passed_over,
            "unrouted": lambda topic: topic.unrouted,
        },
        {
            DELETE: Action(
                delete, "it is gone, if it was declared, and nobody sends or subscribes to it", (), MAY_DELETE
            ),
        },
        find=lambda name: next((topic for topic in topics.topics() if topic.name == name), None),
        named_by_address=True, make=make, made_of=(ROUTING,),
    )  # fmt: skip


def _subscription(topics: Topics) -> EntityType[Subscription]:
    async def delete(subscription: Subscription, told: Mapping[str, Any], _: Principal) -> None:
        _check_end(subscription, force=told["force"])
        if subscription.queue.leaving:
            await topics.nodes.letters_stored(subscription.queue)
            _check_end(subscription, force=told["force"])
        await _gone("the subscription", partial(topics.end, subscription))

    return EntityType(
        "subscription", "a subscription to topics, by the name of its queue",
        lambda: topics.subscriptions().values(), lambda one: one.queue.name,
        {
            "topic": lambda one: one.wish.pattern.text,
            "user": lambda one: one.identity and one.identity.user,
            "container_id": lambda one: one.identity and one.identity.container,
            "subscription_name": lambda one: one.identity and one.identity.name,
            "durable": lambda one: one.durable,
            "shared": lambda one: one.wish.shared,
            "filtered": lambda one: one.wish.filter is not None,
            "timeout_s": lambda one: one.wish.timeout_s,
            "links": lambda one: len(one.links),
            "messages": lambda one: one.queue.message_count,
            "bytes": lambda one: one.queue.byte_count,
            "available": lambda one: one.queue.backlog.available(),
            **bounds(lambda one: one.queue),
            **tries(topics.nodes, lambda one: one.queue),
            **changed(lambda one: one.queue),
            "passed_over": lambda one: one.member.passed_over,
            **counted(lambda one: one.queue),
        },
        {
            **reset_action(topics.nodes, lambda one: one.queue),
            **message_actions(topics.nodes, lambda one: one.queue),
            DELETE: Action(
                delete, "it is gone; with messages or links only by `force`, and they are gone with it",
                (FORCE,), MAY_DELETE,
            ),
        },
        find=lambda name: topics.subscriptions().get(name),
        changes=queue_changes(topics.nodes, lambda one: one.queue),
    )  # fmt: skip


def _check_end(subscription: Subscription, *, force: bool) -> None:
    """Raises Unmanageable where the subscription stays."""
    links, messages = len(subscription.links), subscription.queue.message_count
    if (links or messages) and not force:
        raise Unmanageable(
            409, f"expected an empty subscription without links, it has {messages} messages and {links} "
            f"links: say force, and they are gone with it"
        )  # fmt: skip


def _binding(bindings: Bindings) -> EntityType[Binding]:
    async def make(name: str, told: Mapping[str, Any]) -> bool:
        told = {key: value for key, value in told.items() if value is not None}
        if not all(isinstance(value, str) for value in told.values()) or not {"topic", "queue"} <= {*told}:
            raise Unmanageable(400, f"expected topic and queue, and perhaps selector, got {told!r:.120}")
        wanted = Wanted(told["topic"], told["queue"], told.get("selector"), told.get("source", ""))
        return await bindings.make(name, wanted)

    async def delete(binding: Binding, told: Mapping[str, Any], _: Principal) -> None:
        if binding.configured:
            raise Unmanageable(
                409, f"the configuration binds queue {binding.wanted.queue!r:.80} to "
                f"{binding.wanted.topic!r:.80}: the binding stays as long as its [[binding]]"
            )  # fmt: skip
        await _gone("the binding", partial(bindings.delete, binding))

    return EntityType(
        "binding", "a queue that gets what is sent to topics, by the name of the binding; a `[[binding]]` by "
        "its place, from 0 on",
        bindings.all, lambda one: one.name,
        {
            "topic": lambda one: one.wanted.topic,
            "queue": lambda one: one.wanted.queue,
            "selector": lambda one: one.wanted.selector,
            "source": lambda one: one.wanted.source or None,
            "configured": lambda one: one.configured,
            "copied": lambda one: one.member.copied,
            "passed_over": lambda one: one.member.passed_over,
        },
        {DELETE: Action(delete, "its queue gets nothing by it any more; a `[[binding]]` stays")},
        find=bindings.find, make=make, made_of=("topic", "queue", "selector", "source"),
    )  # fmt: skip


async def _gone(what: str, delete: Callable[[Then], None]) -> None:
    """Wait until a start would not find it. Raises Unmanageable."""
    error = await answer_to(delete)
    if error is not None:
        raise Unmanageable(500, f"a start may find {what} again: {error.description}")
