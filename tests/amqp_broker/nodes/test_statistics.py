"""What `$management` counts since the broker started: what came to a queue, and what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import BindingConfig, QueuePolicy
from amqp_broker.counts import COUNTS
from amqp_broker.frames import Accepted, Modified, Rejected, Released, Source, Symbol
from amqp_broker.testing import memory_config
from tests.support.by_hand import Control, Served, at_hand, posted, text, within
from tests.support.managing import Asking, asking, asks
from tests.support.topics import no_local, publish, publisher, selector, subscribe, topic

FAILED = Modified(delivery_failed=True)
POLICIES = (
    QueuePolicy(pattern="twice", max_deliveries=2),
    QueuePolicy(pattern="line", kind="log", retention_ms=10_000),
    QueuePolicy(pattern="told", events=True),
)
here = asks(memory_config(queue_policies=POLICIES))


async def counts(one: Asking, name: str, kind: str = "queue") -> dict[str, int]:
    """Those of an entity that are not 0."""
    read = await one.body("READ", kind, identity=name)
    assert all(read[each] >= 0 for each in COUNTS)
    return {each: read[each] for each in COUNTS if read[each]}


async def given(at: Served, name: str, outcome: Any, credit: int = 2, settled: bool = True) -> None:
    """A consumer gives the next messages this outcome, and goes."""
    at.take()
    link = await at.receiver(name, credit, f"{name} {outcome}")
    link.flow(0)
    link.dispose(at.take(), outcome, settled)
    await at.settle()
    link.detach()
    await at.settle()
    at.detached.clear()


@pytest.mark.parametrize("name", ["q", "told"])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Accepted(), {"accepted": 2}),
        (Released(), {"returned": 2}),
        (FAILED, {"returned": 2}),
        (Rejected(), {"rejected": 2, "dead_letters": 2}),
    ],
    ids=["accepted", "released", "failed", "rejected"],
)
def test_each_outcome_is_counted(name: str, durable: bool, outcome: Any, found: dict[str, int]) -> None:
    """Of so many messages as have it, whether they are stored or not, and with the journal of a queue."""

    @here
    async def run(one: Asking) -> None:
        await one.at.post(name, b"1", b"2", b"3", durable=durable)
        await given(one.at, name, outcome)
        assert await counts(one, name) == {"arrived": 3, "sent": 2, **found}

    run()


@here
async def test_who_goes_returns_what_it_held(one: Asking) -> None:
    """And what is sent again is sent once more."""
    at = one.at
    await at.post("q", b"1", b"2")
    for times in (1, 2):
        link = await at.receiver("q", 2)
        at.take()
        link.detach()
        await at.settle()
        at.detached.clear()
        assert await counts(one, "q") == {"arrived": 2, "sent": 2 * times, "returned": 2 * times}


@here
async def test_a_browser_is_sent_nothing_of_a_queue(one: Asking) -> None:
    """It looks at what stays."""
    at = one.at
    await at.post("q", b"1", b"2")
    await at.receiver(Source(address="q", distribution_mode="copy"), 10)
    assert at.bodies()[-2:] == [b"1", b"2"] and await counts(one, "q") == {"arrived": 2}


@here
async def test_what_ends_without_a_consumer_is_counted(one: Asking) -> None:
    """What expires, what is purged, and what has been tried too often."""
    at = one.at
    await at.post("q", b"1", ttl=1_000)
    await at.pass_time(2)
    assert await counts(one, "q") == {"arrived": 1, "expired": 1, "dead_letters": 1}
    await at.post("q", b"2", b"3")
    await one.body("PURGE", "queue", name="q", count=1)
    await one.body("MOVE", "queue", name="q", to="replies")
    assert await counts(one, "q") == {"arrived": 3, "expired": 1, "removed": 2, "dead_letters": 1}
    await at.post("twice", b"1")
    for _ in range(2):
        await given(at, "twice", FAILED)
    found = {"arrived": 1, "sent": 2, "returned": 1, "failed": 1, "dead_letters": 1}
    assert await counts(one, "twice") == found
    assert (await counts(one, "dead-letters"))["arrived"] == 2


@at_hand()
async def test_a_transaction_counts_when_it_is_committed(at: Served) -> None:
    """What is rolled back has not arrived, and has no outcome."""
    one = await asking(at.another("boss"))
    await at.post("in", b"1", b"2")
    link = await at.receiver("in", 2)
    deliveries = at.take()
    up = await at.sender("out", "out")
    control = Control(at)
    for end, arrived, accepted in ((control.roll_back, 0, 0), (control.commit, 1, 2)):
        txn_id = await control.declare()
        await posted(at, up, txn_id, b"result")
        link.dispose(deliveries, within(txn_id, Accepted()), False)
        await at.settle()
        assert "accepted" not in await counts(one, "in") and await counts(one, "out") == {}
        await end(txn_id)
        assert (await counts(one, "in")).get("accepted", 0) == accepted
        assert (await counts(one, "out")).get("arrived", 0) == arrived


@here
async def test_what_waits_has_not_arrived(one: Asking) -> None:
    """It arrives when its time has come."""
    at = one.at
    link = await at.sender("q")
    link.send([text(b"later", message_annotations={Symbol("x-opt-delivery-delay"): 5_000})])
    await at.settle()
    assert await counts(one, "q") == {}
    await at.pass_time(6)
    assert await counts(one, "q") == {"arrived": 1}


@here
async def test_logs_and_subscriptions_count(one: Asking) -> None:
    """Nobody takes from a log; each subscription has its own copies."""
    at = one.at
    await at.post("line", b"1", b"2")
    assert await counts(one, "line") == {"arrived": 2}
    await subscribe(at, topic("news"), "one")
    await publish(at, "news", b"a", b"b")
    (row,) = (await one.body("QUERY", entityType="subscription"))["results"]
    assert await counts(one, row[0], "subscription") == {"arrived": 2, "sent": 2}


@here
async def test_the_broker_has_all_of_it(one: Asking) -> None:
    """Also of queues that are gone, with what was in them."""
    at = one.at
    await at.post("q", b"1", b"2", b"3", b"4")
    await given(at, "q", Rejected(), 1)
    await one.body("PURGE", "queue", name="q", count=1)
    found = await counts(one, "self", "broker")
    assert (found["rejected"], found["removed"], found["dead_letters"]) == (1, 1, 1)
    assert (await one.ask("DELETE", "queue", name="q", force=True))[0] == 204
    gone = await counts(one, "self", "broker")
    assert {**gone, "removed": 3} == gone and gone["rejected"] == 1
    assert gone["arrived"] == found["arrived"] + 2  # replies


@at_hand()
async def test_a_connection_counts_what_goes_over_it(at: Served) -> None:
    """Both ways, on all links and sessions so far; browsers too."""
    boss = at.another("boss")
    one = await asking(boss)
    await at.post("q", b"1", b"2", b"3")
    await given(at, "q", Accepted())
    assert (at.connection.received, at.connection.sent) == (3, 2)
    assert (boss.connection.received, boss.connection.sent) == (0, 0)
    await one.body("GET-TYPES")
    assert (boss.connection.received, boss.connection.sent) == (1, 1)
    at.session.end()
    await at.settle()
    assert (at.connection.received, at.connection.sent) == (3, 2)


async def told(one: Asking, kind: str, name: str, *attributes: str) -> tuple[Any, ...]:
    """These attributes of an entity."""
    read = await one.body("READ", kind, identity=name)
    return tuple(read[each] for each in attributes)


OF_TOPICS = ("posted", "copied", "passed_over", "unrouted", "subscriptions", "receivers")
BOUND = memory_config(
    bindings=(
        BindingConfig(topic="all.#", queue="archive"),
        BindingConfig(topic="all.red", queue="reds", selector="colour = 'red'"),
    )
)


@asks(BOUND)
async def test_a_topic_counts_what_becomes_of_its_messages(one: Asking) -> None:
    """In, out to each subscription and binding, kept from some by their filters, for nobody."""
    at = one.at
    await publish(at, "news", b"lost", b"lost, too")
    assert await told(one, "topic", "news", *OF_TOPICS) == (2, 0, 0, 2, 0, 0)
    await subscribe(at, topic("news", filter=selector("colour = 'red'")), "reds")
    await publish(at, "news", b"1", b"2", application_properties={"colour": "red"})
    await publish(at, "news", b"3", application_properties={"colour": "blue"})
    assert await told(one, "topic", "news", *OF_TOPICS) == (5, 2, 1, 3, 1, 1)
    await subscribe(at.another(), topic("news.#"), "all")
    await publish(at, "news", b"4", application_properties={"colour": "blue"})
    assert await told(one, "topic", "news", *OF_TOPICS) == (6, 3, 2, 3, 2, 2)
    names = ["topic", "arrived", "sent", "passed_over"]
    found = await one.body("QUERY", body={"attributeNames": names}, entityType="subscription")
    assert sorted(found["results"]) == [["news", 2, 2, 2], ["news.#", 1, 1, 0]]


@asks(BOUND)
async def test_what_is_bound_counts(one: Asking) -> None:
    """A binding is a receiver, and no subscription."""
    await publish(one.at, "all.red", b"1", b"2", application_properties={"colour": "blue"})
    assert await told(one, "topic", "all.red", *OF_TOPICS) == (2, 2, 2, 0, 0, 2)


@at_hand()
async def test_a_topic_counts_what_is_committed(at: Served) -> None:
    """Not what was rolled back; a publisher that does not hear itself passes its subscription over."""
    one = await asking(at.another())
    await subscribe(at, topic("news", filter=no_local()), "other")
    link = await publisher(at, "news")
    control = Control(at)
    for commits in (False, True):
        txn_id = await control.declare()
        assert await posted(at, link, txn_id, b"x", b"y") == [Accepted()] * 2
        await (control.commit(txn_id) if commits else control.roll_back(txn_id))
        expected = (2, 0, 2, 2) if commits else (0, 0, 0, 0)
        assert await told(one, "topic", "news", *OF_TOPICS[:4]) == expected


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="small", kind="topic", max_messages=1),)))
async def test_what_a_full_subscription_refuses_is_not_counted(at: Served) -> None:
    """Of anybody: it was posted to nobody."""
    one = await asking(at.another("third"))
    await subscribe(at, topic("small", filter=no_local()), "own")
    await subscribe(at.another(), topic("small"), "other", credit=0)
    link = await publisher(at, "small")
    link.send([text(bytes([each])) for each in b"ab"])
    await at.settle()
    assert at.conditions == ["accepted", "amqp:resource-limit-exceeded"]
    assert await told(one, "topic", "small", *OF_TOPICS[:4]) == (1, 1, 1, 0)
