"""Subscriptions on a full disk: messages that have left them wait for room to be dead letters, and what is
asked for meanwhile gets its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import pytest
import trio

from amqp_broker.addresses import parse_topic_pattern
from amqp_broker.authorisation import Principal
from amqp_broker.broker_nodes import BrokerNodes
from amqp_broker.filters.source_filter import selector_filter
from amqp_broker.frames import Rejected
from amqp_broker.management.queue_operations import deletion
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.persistence import Post, StoreFull
from amqp_broker.rabbitmq.lifetimes import UntilLastReceiver
from amqp_broker.testing import ScriptedFaults
from amqp_broker.topics.managed import topic_types
from amqp_broker.topics.subscriptions import Identity, Subscription, Wish
from amqp_broker.topics.topics import Topics
from tests.support.by_hand import Served, at_hand, by_hand
from tests.support.topics import durable, publish, subscribe, topic

ONE = Identity("user", "one", "sub", durable=True)
OTHER = Identity("user", "other", "sub", durable=True)
NEWS = Wish(parse_topic_pattern("news"), None, None, shared=False)
FILTERED = attrs.evolve(NEWS, filter=selector_filter("x = 1"))


@contextmanager
def no_room(at: Served) -> Iterator[Callable[[], None]]:
    """Inside of the block the store takes no message until what this gives is called."""
    full = True
    store = at.broker.writer._store
    apply = store.apply

    def with_room_for_none(units: Any) -> list[Exception | None]:
        refused = [full and any(type(verb) is Post for verb in unit) for unit in units]
        errors = apply([[] if no else unit for no, unit in zip(refused, units, strict=True)])
        return [StoreFull("no room") if no else error for no, error in zip(refused, errors, strict=True)]

    def end() -> None:
        nonlocal full
        full = False

    with patch.object(store, "apply", with_room_for_none):
        yield end


async def with_letter(at: Served, *identities: Identity) -> Topics:
    """The topics of a broker with these subscriptions, each with one message; `expire` takes it out."""
    topics: Topics = at.broker.features.topics
    for identity in identities:
        await topics.subscribe(identity, NEWS)
    await publish(at, "news", b"short")
    await at.broker.nodes.queues.site_by_name("dead-letters").make()
    return topics


def expire(at: Served, identity: Identity = ONE) -> Subscription:
    """The message of this subscription has expired: its letter is on its way."""
    subscription = at.broker.features.topics.named(identity)
    assert subscription is not None
    expired = subscription.queue.backlog.take(1)
    assert len(expired) == 1
    at.broker.nodes.expire(subscription.queue, expired)
    return subscription


@at_hand()
async def test_who_waits_for_letters_keeps_nobody_out(at: Served) -> None:
    """One takes its subscription up with another filter; others find theirs, and make topics and bindings."""
    topics = await with_letter(at, ONE, OTHER)
    await at.broker.nodes.queues.site_by_name("archive").make()
    taken: list[Subscription] = []

    async def take_up() -> None:
        taken.append(await topics.subscribe(ONE, FILTERED))

    with no_room(at) as room:
        former = expire(at)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_up)
            await trio.testing.wait_all_tasks_blocked()
            assert former.queue.leaving and not taken
            with trio.fail_after(1):
                assert await topics.subscribe(OTHER, NEWS) is topics.named(OTHER)
                await topics.declare("weather")
                assert await topics.subscribe(attrs.evolve(OTHER, name="new"), NEWS)
            room()
    assert taken == [topics.named(ONE)] and taken[0].wish.filter is not None and former.queue.deleted
    assert at.queue("dead-letters").message_count == 1


@at_hand()
async def test_letters_that_came_while_the_lock_was_waited_for_are_stored_first(at: Served) -> None:
    """Who waited for those that there were looks again when it is its turn."""
    topics = await with_letter(at, ONE)
    await topics.making.acquire()
    taken: list[Subscription] = []

    async def take_up() -> None:
        taken.append(await topics.subscribe(ONE, FILTERED))

    with no_room(at) as room:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_up)
            await trio.testing.wait_all_tasks_blocked()
            former = expire(at)
            topics.making.release()
            await trio.testing.wait_all_tasks_blocked()
            assert not former.queue.deleted and not taken
            room()
    assert former.queue.deleted and at.queue("dead-letters").message_count == 1


@pytest.mark.parametrize("ends", ["closed", "timed out"])
@at_hand()
async def test_a_subscription_that_ends_while_its_timeout_is_changed_is_made_anew(
    at: Served, ends: str
) -> None:
    """Its end and the timeout come in one commit: the link gets one that is there."""
    topics = await with_letter(at, ONE)
    former = topics.named(ONE)
    assert former is not None
    keep = BrokerNodes.keep_settings

    def end() -> None:
        if ends == "closed":
            topics.unsubscribe(former, lambda error: None)
        else:
            topics.timed_out(former)

    async def end_meanwhile(nodes: BrokerNodes, queue: Any) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(end)
        await keep(nodes, queue)

    with patch.object(BrokerNodes, "keep_settings", end_meanwhile):
        found = await topics.subscribe(ONE, attrs.evolve(NEWS, timeout_s=200))
    assert found is topics.named(ONE) and found is not former
    assert former.queue.deleted and not found.queue.deleted and found.wish.timeout_s == 200
    await publish(at, "news", b"second")
    assert found.queue.message_count == 1


@at_hand()
async def test_a_subscription_that_is_deleted_by_force_goes_after_its_letters(at: Served) -> None:
    """By an operator, who is told when it is gone; whoever receives from it is ended."""
    await with_letter(at, ONE)
    features = at.broker.features
    _, managed, _ = topic_types(features.topics, features.bindings)
    delete = managed.actions["DELETE"]
    with no_room(at) as room:
        former = expire(at)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete.run, former, {"force": True}, Principal("admin", "PLAIN"))
            await trio.testing.wait_all_tasks_blocked()
            assert not former.queue.deleted
            room()
    assert former.queue.deleted and features.topics.named(ONE) is None
    assert at.queue("dead-letters").message_count == 1


@at_hand()
async def test_who_waits_for_letters_that_find_no_room_is_refused_after_a_while(at: Served) -> None:
    """What would make room may stand behind it on its connection."""
    topics = await with_letter(at, ONE)
    queue = await at.post("q", b"short", b"stays")
    force = {"force": True}, Principal("admin", "PLAIN")
    delete = deletion(at.broker.nodes).run
    with no_room(at) as room:
        former = expire(at)
        at.broker.nodes.expire(queue, queue.backlog.take(1))
        with trio.fail_after(11), pytest.raises(NodeRefused, match="within 10 s: see that the disk has room"):
            await topics.subscribe(ONE, FILTERED)
        with trio.fail_after(11), pytest.raises(NodeRefused, match="'q' were not stored"):
            await delete(queue, *force)
        assert not queue.deleted and not any(at.broker.nodes._behind_letters.values())
        assert topics.named(ONE) is former, "it is as it was, and can be taken up again"
        room()
        assert (await topics.subscribe(ONE, FILTERED)).queue is not former.queue
        await delete(queue, *force)
    assert queue.deleted and at.queue("dead-letters").message_count == 2


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("ends", ["unsubscribed", "with its receiver", "by force"])
@at_hand()
async def test_a_queue_ends_behind_the_letters_of_what_was_rejected(
    at: Served, ends: str, settled: bool
) -> None:
    """On a full disk they wait; its end would be stored before them, and a crash would forget them."""
    await at.broker.nodes.queues.site_by_name("dead-letters").make()
    if ends == "unsubscribed":
        link = await subscribe(at, durable("news"))
        await publish(at, "news", b"bad")
        (subscription,) = at.broker.features.topics.subscriptions().values()
        queue = subscription.queue
    else:
        queue = await at.post("q", b"bad")
        if ends == "with its receiver":
            queue.lifetime = UntilLastReceiver()
        link = await at.receiver("q", 1)
    async with trio.open_nursery() as nursery:
        with no_room(at) as room:
            link.dispose(at.take(), Rejected(), settled)
            if ends != "by force":
                link.detach(closed=True)
            await at.hear_later()
            if ends == "by force":
                told = {"force": True}, Principal("admin", "PLAIN")
                nursery.start_soon(deletion(at.broker.nodes).run, queue, *told)
            await trio.testing.wait_all_tasks_blocked()
            assert not queue.deleted and queue.leaving == 1
            room()
            await at.rest()
    assert queue.leaving == 0 and queue.deleted and at.queue("dead-letters").message_count == 1


@at_hand()
async def test_a_deletion_by_force_does_not_wait_for_what_is_rejected_all_the_time(at: Served) -> None:
    """While letters find room its end is stored behind them, though there are always others."""
    await at.broker.nodes.queues.site_by_name("dead-letters").make()
    queue = await at.post("q", b"short")
    at.broker.nodes.letter_leaves(queue)  # there is always one
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deletion(at.broker.nodes).run, queue, {"force": True}, Principal("a", "PLAIN"))
        await trio.testing.wait_all_tasks_blocked()
        at.broker.nodes.expire(queue, queue.backlog.take(1))
    assert queue.deleted and at.queue("dead-letters").message_count == 1


def test_a_timeout_that_finds_no_room_is_refused() -> None:
    """As what else an attach cannot have: the link is, and its connection goes on; the subscription stays."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        wish = topic("news", durable=2, expiry_policy="link-detach", timeout=100)
        link = await subscribe(at, wish)
        link.detach(closed=False)
        await at.settle()
        at.detached.clear()
        wish.timeout = 200
        faults.refuse_commit(1)
        await at.receiver(wish, name="sub")
        assert at.condition() == "amqp:resource-limit-exceeded"
        (subscription,) = at.broker.features.topics.subscriptions().values()
        assert not subscription.links and subscription.wish.timeout_s == 100
        await subscribe(at, wish)
        assert subscription.links and subscription.queue.settings["timeout_s"] == 200

    by_hand(main, faults=faults)
