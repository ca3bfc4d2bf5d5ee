"""Queues of RabbitMQ that go by themselves: auto-delete, exclusive, and both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from amqp_broker.frames import Accepted, Source
from amqp_broker.persistence.sqlite import verify_directory
from tests.links.pair import Message as Sendable
from tests.rabbitmq.test_management_node import CONFIG, Pair, asks, bound, pair_of
from tests.support.by_hand import Control, Served, at_hand, by_hand, condition_of, posted, text
from tests.support.halves import half, resolution
from tests.support.topics import publish

AUTO = {"auto_delete": True}
OWN = {"exclusive": True}


def there(at: Served, name: str = "q") -> bool:
    """Whether there is a queue of this name."""
    return at.broker.nodes.queues.find(name) is not None


async def gone(at: Served, link: Any) -> None:
    """A link ends."""
    link.detach()
    await at.rest()
    at.detached.clear()


@asks()
async def test_a_queue_goes_with_the_last_who_receives(one: Pair) -> None:
    """Not before somebody did; senders and browsers don't keep it; its messages and bindings are gone."""
    at = one.at
    status, told = await one.ask("PUT", "/queues/q", AUTO)
    assert (status, told["auto_delete"], told["durable"], told["exclusive"]) == ("201", True, True, False)
    assert (await one.ask("PUT", "/queues/q", AUTO))[0] == "200"
    await one.ask("PUT", "/exchanges/e", {"type": "fanout"})
    await one.ask("POST", "/bindings", bound("e", ""))
    sender = await at.sender("q", "sends")
    sender.send([text(b"1"), text(b"2")])
    await at.settle()
    await gone(at, await at.receiver(Source(address="q", distribution_mode="copy"), 5, "looks"))
    assert there(at)
    first = await at.receiver("q", 1, "one")
    second = await at.receiver("q", 0, "two")
    await gone(at, first)
    assert there(at)
    second.detach()
    await at.rest()
    assert not there(at) and len(at.broker.features.bindings.all()) == 3
    assert [each.error.condition for each in at.detached if each.error] == ["amqp:resource-deleted"]
    await publish(at, "e", b"3")
    at.take()
    assert (await one.refused("GET", "/queues/q"))[0] == "404"


@asks()
async def test_a_half_message_outlives_a_queue_that_goes_by_itself(one: Pair) -> None:
    """It is committed into the dead letters, whose queue is made when it is put, and not for the queue."""
    at = one.at
    await one.ask("PUT", "/queues/q", AUTO)
    assert not there(at, "dead-letters")
    puts, resolves = await at.sender("$half/g/q", "puts"), await at.sender("$half-resolve/g", "resolves")
    assert there(at, "dead-letters")
    puts.send([Sendable(half("h", b"1"))])
    await at.settle()
    await gone(at, await at.receiver("q", 1, "one"))
    assert not there(at)
    resolves.send([Sendable(resolution("h", "commit"))])
    await at.settle()
    await at.receiver("dead-letters", 1, "dead")
    assert at.bodies() == [b"1"]


def test_it_is_kept_until_somebody_received(tmp_path: Path) -> None:
    """Over a restart, with its bindings; whose last receiver went is not there after the next."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path))

    async def before(at: Served) -> None:
        one = await pair_of(at)
        await one.ask("PUT", "/queues/q", AUTO)
        await one.ask("PUT", "/exchanges/e", {})
        await one.ask("POST", "/bindings", bound("e", "k"))
        await publish(at, "e.k", b"1")

    async def after(at: Served) -> None:
        one = await pair_of(at)
        assert (await one.ask("GET", "/queues/q"))[1]["auto_delete"] is True
        link = await at.receiver("q", 1)
        assert at.bodies() == [b"1"]
        await gone(at, link)
        assert not there(at)

    async def last(at: Served) -> None:
        assert not there(at) and len(at.broker.features.bindings.all()) == 3

    for main in (before, after, last):
        by_hand(main, config)
        assert verify_directory(tmp_path) == []


@asks()
async def test_an_exclusive_queue_is_of_its_connection(one: Pair) -> None:
    """Others send there, and that is all; it is gone with the connection, with what it holds."""
    at = one.at
    status, told = await one.ask("PUT", "/queues/q", OWN)
    assert (status, told["exclusive"], told["auto_delete"]) == ("201", True, False)
    assert (await one.ask("PUT", "/queues/q", OWN))[0] == "200"
    other = await pair_of(at.another())
    for method, path, body in (
        ("PUT", "/queues/q", OWN), ("PUT", "/queues/q", {}), ("DELETE", "/queues/q", None),
        ("DELETE", "/queues/q/messages", None),
    ):  # fmt: skip
        status, why = await other.refused(method, path, body)
        assert status == "409" and "of another connection" in why
    for mode in ("move", "copy"):
        await other.at.receiver(Source(address="q", distribution_mode=mode), 1)
        assert other.at.condition() == "amqp:resource-locked"
    await other.at.post("q", b"1")
    link = await at.receiver("q", 1)
    assert at.bodies() == [b"1"]
    await gone(at, link)
    assert there(at)
    await at.breaks()
    assert not there(at)
    assert (await other.ask("PUT", "/queues/q", {}))[0] == "201"
    await other.at.receiver("q", 1)


@asks()
async def test_an_exclusive_queue_may_go_earlier(one: Pair) -> None:
    """By its last receiver, or by hand: its connection does not know it any more, and may have others."""
    at = one.at
    status, told = await one.ask("PUT", "/queues/q", OWN | AUTO)
    assert (status, told["exclusive"], told["auto_delete"]) == ("201", True, True)
    assert (await one.refused("PUT", "/queues/q", OWN))[0] == "409"
    await gone(at, await at.receiver("q", 1))
    assert not there(at)
    for _ in range(3):
        assert (await one.ask("PUT", "/queues/q", OWN | {"durable": False}))[0] == "201"
        assert (await one.ask("DELETE", "/queues/q"))[0] == "200"
    assert not at.connection._afterwards


@asks()
async def test_a_transaction_loses_a_queue_that_went(one: Pair) -> None:
    """As one that was deleted by hand: what was posted there has no queue, and all of it is rolled back."""
    at = one.at
    await one.ask("PUT", "/queues/q", AUTO)
    control, up = Control(at), await at.sender("q", "sends")
    txn_id = await control.declare()
    await posted(at, up, txn_id, b"1")
    await gone(at, await at.receiver("q", 0))
    assert not there(at)
    assert condition_of(await control.discharge(txn_id)) == "amqp:transaction:rollback"


@at_hand(CONFIG)
async def test_who_took_a_message_settles_it_as_the_queue_goes(at: Served) -> None:
    """The outcome has nothing to change any more, and nothing fails."""
    one = await pair_of(at)
    await one.ask("PUT", "/queues/q", AUTO)
    await at.post("q", b"1")
    link = await at.receiver("q", 1)
    link.dispose(at.take(), Accepted(), False)
    link.detach()
    await at.rest()
    assert not there(at)
    assert (await one.ask("PUT", "/queues/q", AUTO))[0] == "201"
    assert at.queue().message_count == 0
