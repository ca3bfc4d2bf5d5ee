"""Who gets messages first: consumers with a priority, and queues for one consumer."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import ConfigurationError, QueuePolicy
from amqp_broker.frames import RECEIVER, Int, Source, Symbol, Ubyte
from amqp_broker.persistence import Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from amqp_broker.testing import memory_config
from tests.filters.test_selection import World, filter_of, record_of
from tests.support.broker_clients import round_trip, session_to
from tests.support.by_hand import Served, at_hand, connection_by_hand, idle_link, text
from tests.support.examples import seeds
from tests.support.jumping_broker import PATIENT, JumpingBroker, stopping

HUGE = 10**9
EXCLUSIVE = memory_config(queue_policies=(QueuePolicy(pattern="mine", exclusive=True),))


def rank(value: Any, name: str = "priority") -> dict[Any, Any]:
    """The properties of an attach that ask for a priority."""
    return {Symbol(name): value}


async def got(at: Served) -> list[bytes]:
    """What came, which is forgotten here."""
    await at.settle()
    found = at.bodies()
    at.received.clear()
    return found


@at_hand()
async def test_the_higher_one_is_first_while_it_has_credit(at: Served) -> None:
    """Beyond its credit messages go to the next lower one, and so on."""
    low, high, usual = at.another("low"), at.another("high"), at.another("usual")
    await low.receiver("q", 9, properties=rank(Int(-1)))
    await usual.receiver("q", 1)
    link = await high.receiver("q", 2, properties=rank(Int(5)))
    await at.post("q", *(b"%d" % number for number in range(6)))
    assert [await got(each) for each in (high, usual, low)] == [[b"0", b"1"], [b"2"], [b"3", b"4", b"5"]]
    link.flow(1)
    await at.settle()
    await at.post("q", b"6")
    assert [await got(each) for each in (high, usual, low)] == [[b"6"], [], []]


@pytest.mark.parametrize("name", ["priority", "x-priority", "rabbitmq:priority"])
@at_hand()
async def test_each_property_is_known_and_told(at: Served, name: str) -> None:
    """The answer has it, so that a client knows that it holds."""
    low = at.another("low")
    await low.receiver("q", 9)
    link = await at.receiver("q", 9, properties=rank(Ubyte(9), name))
    assert link.remote_attach is not None
    assert link.remote_attach.properties == {"priority": Int(9)}
    await at.post("q", b"1")
    assert [await got(each) for each in (at, low)] == [[b"1"], []]


@pytest.mark.parametrize("value", ["high", True, Int(-(2**31)), 2**40])
@at_hand()
async def test_what_is_no_priority_is_refused(at: Served, value: Any) -> None:
    """Not taken for 0: the receiver would get messages that are for others. Nothing is made."""
    await at.receiver("q", properties=rank(value))
    assert at.condition() == "amqp:invalid-field"
    await at.receiver(Source(address="t", capabilities=("topic",)), properties=rank(value))
    assert at.condition() == "amqp:invalid-field"
    assert at.broker.nodes.queues.queues() == []


@at_hand()
async def test_a_priority_ends_with_its_link(at: Served) -> None:
    """What is left shares as ever, and nothing is asked for priorities."""
    link = await at.receiver("q", 9, properties=rank(Int(5)))
    queue = at.queue("q")
    assert len(queue.levels) == 1
    link.detach()
    await at.settle()
    assert queue.levels == []


@at_hand()
async def test_links_of_a_shared_subscription_have_priorities(at: Served) -> None:
    """A subscription is a queue."""
    source = Source(address="t", capabilities=("topic", "shared", "global"))
    low, high = at.another("low"), at.another("high")
    await low.receiver(source, 9, "s|1")
    await high.receiver(source, 9, "s|2", properties=rank(Int(1)))
    link = await at.sender("t")
    link.send([text(b"%d" % number) for number in range(3)])
    assert [len(await got(each)) for each in (high, low)] == [3, 0]


@pytest.mark.parametrize("seed", seeds(60))
def test_nobody_is_overtaken_by_a_lower_one(seed: int) -> None:
    """Random links with priorities and filters at a queue in memory: when the queue rests, a link with credit
    has everything that it is for; and of two that want one message, the higher one has it.
    """
    rand = random.Random(seed)
    world = World(HUGE)
    for step in range(120):
        choice = rand.random()
        links = [*world.held]
        if choice < 0.15 or not links:
            _attach(world, rand)
        elif choice < 0.2:
            world.detach(rand.choice(links))
        elif choice < 0.55:
            link = rand.choice(links)
            link.ask(link.demand + rand.randrange(4))
        elif choice < 0.8:
            world.post([record_of(rand.choice(("red", "green")), step) for _ in range(rand.randrange(4))])
        else:
            consumer = rand.choice(links)
            back = [each for each in world.held[consumer] if rand.random() < 0.5]
            world.give_back(consumer, back, rand.random() < 0.2)
        _check_order(world)
        world.check()


def _attach(world: World, rand: random.Random) -> None:
    text = rand.choice([None, None, "colour = 'red'", "colour <> 'red'", "TRUE"])
    made = Consumer(
        world.connection, idle_link(world.connection), world.queue, browser=False, settled=False,
        filter=filter_of(text) if text else None,
    )  # fmt: skip
    made.priority = rand.choice([0, 0, 1, 5, -3])
    world.queue.attach(made)
    world.held[made] = []


def _check_order(world: World) -> None:
    """Each round of assignments gives nothing to a link while a higher one wants that message."""
    before = {each: each.demand for each in world.held}
    grants = world.queue.assign(0)
    given: dict[Consumer, int] = {}
    for consumer, run in grants:
        given[consumer] = given.get(consumer, 0) + len(run)
    for consumer, run in grants:
        for record in run:
            for other in world.held:
                wants = before[other] > given.get(other, 0)
                assert not (wants and other.priority > consumer.priority and world.is_for(other, record))
    world._take(grants)


def test_without_priorities_nothing_is_ranked() -> None:
    """It costs nothing where nobody uses it: the usual way is taken."""
    queue = Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))
    connection = connection_by_hand()
    for _ in range(2):
        made = Consumer(connection, idle_link(connection), queue, browser=False, settled=False)
        queue.attach(made)
        made.ask(2)
    records = [Record(0, b"", durable=False) for _ in range(4)]
    queue.number(records)
    queue.make_available(records, 0)
    assert len(queue.levels) == 1
    assert [len(run) for _, run in queue.assign(0)] == [2, 2]


@at_hand(EXCLUSIVE)
async def test_an_exclusive_queue_has_one_consumer(at: Served) -> None:
    """A second one is refused with amqp:resource-locked until the first is gone; browsers may come."""
    other = at.another()
    first = await at.receiver("mine", 0)
    await other.receiver("mine", 1, "second")
    assert other.condition() == "amqp:resource-locked"
    await at.receiver("mine", 1, "of the same connection")
    assert at.condition() == "amqp:resource-locked"
    await other.receiver(Source(address="mine", distribution_mode="copy"), 1, "browses")
    await at.post("mine", b"1")
    assert other.bodies() == [b"1"]
    assert other.detached == []
    first.detach()
    await at.settle()
    await other.receiver("mine", 1, "second")
    assert other.bodies() == [b"1", b"1"]


def test_two_that_come_together_are_one() -> None:
    """The queue is made for the first of two connections, and the second finds it in use."""
    with stopping(JumpingBroker(attrs.evolve(PATIENT, queue_policies=EXCLUSIVE.queue_policies))) as broker:
        with session_to(broker, "one") as one, session_to(broker, "two") as two:
            one.connection.raises_errors = two.connection.raises_errors = False
            links = [each.put_attach(RECEIVER, "r", "mine") for each in (one, two)]
            for each in (one, two):
                each.connection.flush()
            round_trip(one, two)
            errors = [link.detached.error for link in links if link.detached is not None]
    assert [error.condition for error in errors if error is not None] == ["amqp:resource-locked"]


@pytest.mark.parametrize("kind", ["topic", "log"])
def test_exclusive_is_for_queues(kind: str) -> None:
    """From a log nobody takes, and a topic has no consumers."""
    with pytest.raises(ConfigurationError, match="exclusive"):
        QueuePolicy(pattern="x", kind=kind, exclusive=True, retention_ms=1000 if kind == "log" else 0)


def test_those_below_wait_while_there_is_more_to_look_at() -> None:
    """A link with a filter looks at a part of the queue in a turn: nobody takes from the rest before it."""
    world = World(HUGE)
    high = world.attach("colour = 'red'")
    world.detach(high)
    high.priority = 1
    world.queue.attach(high)
    world.held[high] = []
    high.ask(1)
    low = world.attach(None)
    low.ask(2_000)
    world.post([record_of("green", number) for number in range(700)] + [record_of("red", 0)])
    assert world.queue.assign(0) == []
    assert world.queue.unfinished()
    grants = {consumer: len(run) for consumer, run in world.queue.assign(0)}
    assert grants == {high: 1, low: 700}
