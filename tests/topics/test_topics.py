"""Topics: what is sent to one goes to each of its subscriptions (behaviour paper 2.3.11; JMS mapping)."""

from __future__ import annotations

import attrs
import pytest

from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import Byte, Properties, Source, Symbol, Target, plain_value
from amqp_broker.testing import memory_config
from tests.support.by_hand import Control, Served, at_hand, condition_of, posted, text, within
from tests.support.topics import (
    durable,
    got,
    no_local,
    publish,
    publisher,
    selector,
    shared,
    shared_durable,
    subscribe,
    topic,
)

SMALL = QueuePolicy(pattern="small", kind="topic", max_messages=2)


@at_hand()
async def test_each_subscriber_gets_a_copy(at: Served) -> None:
    """2.3.11: "a policy of distributing to all outgoing links". The source says that it copies (3.5.5)."""
    one, two = at, at.another()
    link = await subscribe(one, topic("news"))
    assert (link.source.distribution_mode, link.source.capabilities) == ("copy", ("topic",))
    await subscribe(two, topic("news"))
    await publish(at, "news", b"a", b"b")
    assert (got(one), got(two)) == ([b"a", b"b"], [b"a", b"b"])


@at_hand()
async def test_a_topic_without_subscriptions_takes_messages(at: Served) -> None:
    """They are accepted, and nobody gets them; who comes later gets what comes later."""
    await publish(at, "news", b"lost")
    await subscribe(at, topic("news"))
    await publish(at, "news", b"kept")
    assert got(at) == [b"kept"]


@at_hand()
async def test_a_subscription_of_a_link_goes_with_it(at: Served) -> None:
    """Not durable, 3.5.6: nothing of it is left, and nothing is kept for it."""
    link = await subscribe(at, topic("news"))
    queues = len(at.broker.nodes.queues.queues())
    link.detach(closed=False)
    await at.settle()
    assert len(at.broker.nodes.queues.queues()) == queues - 1
    at.detached.clear()
    await publish(at, "news", b"a")
    await subscribe(at, topic("news"))
    assert got(at) == []


@at_hand()
async def test_a_durable_subscription_is_kept_for_its_link(at: Served) -> None:
    """3.5.6, 3.5.7: by container-id and link name; a detach that does not close keeps it."""
    client = at.another("me")
    link = await subscribe(client, durable("news"))
    assert (link.source.durable, link.source.expiry_policy) == (1, "never")
    await publish(at, "news", b"a")
    link.detach(closed=False)
    await at.settle()
    client.detached.clear()
    client.take()
    await publish(at, "news", b"b")
    await subscribe(at, durable("news"))  # of another container
    assert got(at) == []
    await client.breaks()
    again = at.another("me")
    await subscribe(again, durable("news"))
    assert got(again) == [b"a", b"b"]


@at_hand()
async def test_closing_ends_a_durable_subscription(at: Served) -> None:
    """2.6.4: who closes the link has no subscription any more."""
    link = await subscribe(at, durable("news"))
    link.detach(closed=True)
    await at.settle()
    at.detached.clear()
    await publish(at, "news", b"a")
    await subscribe(at, durable("news"))
    assert got(at) == []


@at_hand()
async def test_unsubscribing_by_the_link_without_a_source(at: Served) -> None:
    """The JMS mapping: an attach with source null finds what the link had, and a close ends it."""
    link = await subscribe(at, durable("news", filter=selector("a = 1")))
    link.detach(closed=False)
    await at.settle()
    at.detached.clear()
    found = at.session.attach_receiver("sub", None, Target(), credit=0)
    await at.settle()
    assert found.source is not None and found.source.address == "news" and found.source.durable == 1
    found.detach(closed=True)
    await at.settle()
    at.detached.clear()
    await at.receiver(None, name="sub")
    assert at.condition() == "amqp:not-found"


@pytest.mark.parametrize("code", [False, True])
@at_hand()
async def test_no_local_keeps_out_what_the_own_container_sends(at: Served, code: bool) -> None:
    """Alone, in a transaction and by the anonymous terminus. What others send comes, if it passes all."""
    link = await subscribe(at, topic("news", filter=no_local(code)))
    assert plain_value(link.source.filter).keys() == {"no-local"}
    await subscribe(at, topic("news", filter=no_local() | selector("n = 1")), "some")
    await publish(at, "news", b"own", application_properties={"n": 1})
    control = Control(at)
    txn_id = await control.declare()
    own = await publisher(at, "news", "in a transaction")
    own.send_in([text(b"own")], within(txn_id))
    await control.commit(txn_id)
    anyone = await at.sender(Target(capabilities=("topic",)), "anyone")
    anyone.send([text(b"own", properties=Properties(to="news"))])
    await at.settle()
    assert got(at) == []
    other = at.another("other")
    await publish(other, "news", b"a", application_properties={"n": 1})
    await publish(other, "news", b"b", application_properties={"n": 2})
    assert sorted(got(at)) == [b"a", b"a", b"b"]


@at_hand()
async def test_no_local_is_part_of_a_durable_subscription(at: Served) -> None:
    """While its container is away, too; with and without it are two subscriptions."""
    client = at.another("me")
    link = await subscribe(client, durable("news", filter=no_local()))
    await publish(client, "news", b"own")
    link.detach(closed=False)
    await client.settle()
    client.detached.clear()
    await publish(at.another("me"), "news", b"own")
    await publish(at, "news", b"a")
    link = await subscribe(client, durable("news", filter=no_local()))
    assert got(client) == [b"a"]
    link.detach(closed=False)
    await client.settle()
    client.detached.clear()
    await subscribe(client, durable("news"))
    await publish(client, "news", b"own")
    assert got(client) == [b"own"]


@at_hand()
async def test_no_local_is_refused_where_it_means_nothing(at: Served) -> None:
    """On a queue, which does not know who sent what it holds, and for a subscription of all containers."""
    await at.receiver(Source(address="q", filter=no_local()))
    (gone,) = at.detached
    assert gone.error is not None and "no-local" in str(gone.error.description)
    assert at.condition() == "amqp:not-implemented"
    await at.receiver(shared("news", "global", filter=no_local()), name="s|1")
    assert at.condition() == "amqp:invalid-field"


@at_hand()
async def test_another_selector_makes_another_subscription(at: Served) -> None:
    """JMS: "equivalent to unsubscribing (deleting) the old one and creating a new one"; so for the topic."""
    client = at.another("me")
    link = await subscribe(client, durable("news", filter=selector("a = 1")))
    await publish(at, "news", b"a", application_properties={"a": 1})
    link.detach(closed=False)
    await at.settle()
    client.take()
    client.detached.clear()
    await subscribe(client, durable("news", filter=selector("a = 2")))
    await publish(at, "news", b"b", application_properties={"a": 1})
    await publish(at, "news", b"c", application_properties={"a": 2})
    assert got(client) == [b"c"]
    assert sum(queue.persistent for queue in at.broker.nodes.queues.queues()) == 1


@at_hand()
async def test_links_of_a_shared_subscription_take_turns(at: Served) -> None:
    """`name|volatile1`, `name|volatile2` are one; it goes with the last of them."""
    client = at.another("me")
    first = await subscribe(client, shared("news"), "s|volatile1", credit=1)
    second = await subscribe(client, shared("news"), "s|volatile2", credit=1)
    await publish(at, "news", b"a", b"b", b"c")
    assert sorted(got(client)) == [b"a", b"b"]
    first.detach(closed=True)
    await at.settle()
    client.detached.clear()
    second.set_credit(5)
    await at.settle()
    assert got(client, second) == [b"a", b"c"]
    second.detach(closed=True)
    await at.settle()
    client.detached.clear()
    await publish(at, "news", b"d")
    await subscribe(client, shared("news"), "s|volatile1")
    assert got(client) == []


@at_hand()
async def test_a_global_subscription_is_shared_by_containers(at: Served) -> None:
    """`global`: without a client identifier its name is that of all containers."""
    one, two = at.another("one"), at.another("two")
    await subscribe(one, shared_durable("news", "global"), "s|global", credit=1)
    await subscribe(two, shared_durable("news", "global"), "s|global2", credit=1)
    await subscribe(two, shared_durable("news"), "s", credit=9)  # that of the container is another one
    await publish(at, "news", b"a", b"b")
    assert (len(got(one)), len(got(two))) == (1, 3)


@at_hand()
async def test_a_selector_of_a_subscription(at: Served) -> None:
    """It says what is copied; what is not for it takes no room."""
    await subscribe(at, topic("news", filter=selector("a > 1")))
    await publish(at, "news", b"1", application_properties={"a": 1})
    await publish(at, "news", b"2", application_properties={"a": 2})
    assert got(at) == [b"2"]


@at_hand()
async def test_wildcards(at: Served) -> None:
    """`*` is one word, `#` any number of them."""
    for name, pattern in (("one", "a.*"), ("any", "a.#"), ("in", "#.z"), ("all", "#")):
        client = at.another(name)
        await subscribe(client, Source(address=pattern))
    for address in ("a", "a.b", "a.b.z", "z"):
        await publish(at, address, address.encode())
    came = {each.connection.container_id: got(each) for each in at._together[1:]}
    assert came == {
        "one": [b"a.b"],
        "any": [b"a", b"a.b", b"a.b.z"],
        "in": [b"a.b.z", b"z"],
        "all": [b"a", b"a.b", b"a.b.z", b"z"],
    }


@at_hand()
async def test_a_topic_is_none_by_another_name(at: Served) -> None:
    """2.1: the same address means the same node; what is a queue is no topic, and the other way round."""
    await at.post("q", b"a")
    await at.receiver(topic("q"), name="wrong")
    assert at.condition() == "amqp:not-allowed"
    await publish(at, "news", b"a")
    await subscribe(at, Source(address="news"))
    await at.sender("news")
    await at.receiver(Source(address="news", capabilities=("queue",)), name="wrong")
    assert at.condition() == "amqp:not-allowed"
    await at.sender(Target(address="a.#", capabilities=("topic",)), "wild")
    assert at.condition() == "amqp:invalid-field"


@at_hand()
async def test_a_temporary_topic_goes_with_its_link(at: Served) -> None:
    """3.5.10: and the links of its subscribers end."""
    owner = await at.sender(Target(dynamic=True, capabilities=("temporary-topic",)), "owner")
    address = owner.target.address
    other = at.another()
    await subscribe(other, Source(address=address, capabilities=("temporary-topic",)))
    await publish(at, address, b"reply")
    assert got(other) == [b"reply"]
    owner.detach()
    await at.settle()
    at.detached.clear()
    assert other.condition() == "amqp:resource-deleted"
    await at.receiver(Source(address=address, capabilities=("temporary-topic",)), name="late")
    assert at.condition() == "amqp:not-found"


@at_hand()
async def test_messages_that_name_a_topic(at: Served) -> None:
    """The anonymous terminus, by properties.to: it is a topic already, or `x-opt-jms-dest` says so."""
    await subscribe(at, topic("news"))
    link = await at.sender(None)
    jms = {Symbol("x-opt-jms-dest"): Byte(1)}
    link.send([text(b"a", properties=Properties(to="news"))])
    link.send([text(b"b", properties=Properties(to="fresh"), message_annotations=jms)])
    link.send([text(b"c", properties=Properties(to="news"), message_annotations=jms)])
    await at.settle()
    assert at.conditions == ["accepted"] * 3
    assert got(at) == [b"a", b"c"]
    assert at.broker.features.topics.is_topic("fresh")


@at_hand()
async def test_a_post_in_a_transaction(at: Served) -> None:
    """4.4.1: copied when it is committed, to those who are there then; rolled back, to nobody."""
    await subscribe(at, topic("news"))
    sender, control = await publisher(at, "news"), Control(at)
    txn_id = await control.declare()
    await posted(at, sender, txn_id, b"a", b"b")
    late = at.another()
    await subscribe(late, topic("news"))
    assert (at.take(), late.take()) == ([], [])
    await control.commit(txn_id)
    assert (got(at), got(late)) == ([b"a", b"b"], [b"a", b"b"])
    txn_id = await control.declare()
    await posted(at, sender, txn_id, b"c")
    await control.roll_back(txn_id)
    assert (at.take(), late.take()) == ([], [])


@at_hand(attrs.evolve(memory_config(), queue_policies=(SMALL,)))
async def test_a_full_subscription_refuses_what_has_no_room_in_it(at: Served) -> None:
    """Whole or not at all: the others have none of it either. A run is taken as far as there is room."""
    slow, fast = at.another("slow"), at.another("fast")
    await subscribe(slow, topic("small"), credit=0)
    quick = await subscribe(fast, topic("small"))
    link = await publisher(at, "small")
    link.send([text(bytes([each])) for each in b"abcd"])
    await at.settle()
    assert at.conditions == ["accepted"] * 2 + ["amqp:resource-limit-exceeded"] * 2
    assert got(fast, quick) == [b"a", b"b"]
    control = Control(at)
    txn_id = await control.declare()
    await posted(at, link, txn_id, b"e")
    assert condition_of(await control.discharge(txn_id)) == "amqp:transaction:rollback"
    await slow.breaks()
    control = Control(at, "again")
    txn_id = await control.declare()
    await posted(at, link, txn_id, b"f")
    await control.commit(txn_id)
    assert got(fast) == [b"f"]
