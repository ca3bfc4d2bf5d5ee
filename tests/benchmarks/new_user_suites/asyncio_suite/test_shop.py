"""Customers: what they place is there once, and they learn what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amqp_broker import RunningBroker, message, open_client, running_broker
from amqp_broker.client import LinkRefused, MessageRefused, OutcomeUnknown
from amqp_broker.frames import Disposition, Released, Transfer
from amqp_broker.testing import ScriptedFaults

from .shop import NotPlaced, Order, place, place_reliably

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("body", ["shoes", "schön 靴", {"item": "hat"}, ["one", 2], -5, b"\x00\xff"])
async def test_an_order_arrives_once(broker: RunningBroker, body: Any) -> None:
    """Whatever it is."""
    async with open_client(broker.url) as client:
        await (await client.open_sender("orders")).send(body)
    assert [each.body for each in broker.peek("orders")] == [body]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", "urgent"), ("correlation_id", "basket-7"), ("reply_to", "answers"),
        ("group_id", "customer-3"), ("content_type", "text/plain"), ("user_id", b"anna"), ("message_id", 7),
        ("to", "the warehouse"),
    ],
)  # fmt: skip
async def test_what_is_said_of_an_order_stays(broker: RunningBroker, field: str, value: Any) -> None:
    """Who receives it reads what the sender wrote."""
    async with open_client(broker.url) as client:
        await (await client.open_sender("orders")).send(message("shoes", **{field: value}))
        orders = await client.open_receiver("orders")
        received = await asyncio.wait_for(orders.receive(), 10)
        orders.accept(received)
    assert getattr(received.properties, field) == value


@pytest.mark.parametrize("count", [1, 10, 100])
async def test_many_orders_at_once(broker: RunningBroker, count: int) -> None:
    """All are accepted when this returns, and none changes its place."""
    async with open_client(broker.url) as client:
        sender = await client.open_sender("orders")
        assert await sender.send_many(Order(number).message() for number in range(count)) == count
    there = [each.properties["message_id"] for each in broker.peek("orders")]
    assert there == [f"order-{number}" for number in range(count)]


@pytest.mark.parametrize("seconds", [60, 3_600, 86_400])
async def test_an_order_expires(broker: RunningBroker, seconds: int) -> None:
    """Not before its time, and then it is a dead letter."""
    async with open_client(broker.url) as client:
        await place(client, Order(1), ttl_ms=seconds * 1_000)
    broker.clock.advance(seconds - 30)
    assert broker.depth("orders") == 1
    broker.clock.advance(31)
    assert broker.depth("orders") == 0
    assert broker.peek("dead-letters")[0].message_annotations["x-opt-dead-letter-reason"] == "expired"


@pytest.mark.parametrize("nth", [1, 3, 5])
async def test_one_of_five_orders_is_refused(broker: RunningBroker, nth: int) -> None:
    """Its customer learns why."""
    broker.faults.message(nth, address="orders").reject("amqp:not-allowed", "sold out")
    refused = []
    async with open_client(broker.url) as client:
        for number in range(1, 6):
            try:
                await place(client, Order(number))
            except MessageRefused as error:
                refused.append((number, error.condition, error.description))
    assert refused == [(nth, "amqp:not-allowed", "sold out")]
    assert broker.depth("orders") == 4


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_a_customer_tries_again(broker: RunningBroker, failures: int) -> None:
    """After what was released."""
    broker.faults.message(count=failures).release()
    assert await place_reliably(broker.url, Order(1)) == failures + 1
    assert broker.depth("orders") == 1


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_customer_gives_up(broker: RunningBroker, tries: int) -> None:
    """After as many tries as it was told."""
    broker.faults.message(count=tries).modify()
    with pytest.raises(NotPlaced, match=f"{tries} tries"):
        await place_reliably(broker.url, Order(1), tries)
    assert broker.depth("orders") == 0


async def test_a_customer_does_not_argue(broker: RunningBroker) -> None:
    """A rejected order is not tried again."""
    fault = broker.faults.message().reject("shop:closed", "for ever")
    with pytest.raises(NotPlaced, match="for ever"):
        await place_reliably(broker.url, Order(1))
    assert fault.happened
    assert len(broker.refused) == 1


@pytest.mark.parametrize("resets", [1, 3])
async def test_an_order_whose_outcomes_are_lost(broker: RunningBroker, resets: int) -> None:
    """Each try is stored."""
    broker.faults.message(count=resets).reset_after_commit()
    assert await place_reliably(broker.url, Order(1)) == resets + 1
    assert broker.depth("orders") == resets + 1


@pytest.mark.parametrize("window_ms", [60_000, 600_000])
async def test_an_order_is_there_once_though_its_outcome_is_lost(window_ms: int) -> None:
    """Where the broker looks at numbers."""
    faults = ScriptedFaults()
    faults.message().reset_after_commit()
    toml = f'[[queue]]\npattern = "orders"\nduplicate_window_ms = {window_ms}\n'
    async with running_broker(toml, faults=faults) as broker:
        assert await place_reliably(broker.url, Order(1)) == 2
        assert broker.depth("orders") == 1


async def test_nobody_knows_what_became_of_an_order(broker: RunningBroker) -> None:
    """The broker's word was lost on its way, and then the connection."""
    broker.faults.drop(Disposition, 1)
    async with open_client(broker.url) as client:
        sending = asyncio.create_task(place(client, Order(1)))
        await broker.until(lambda: broker.depth("orders") == 1)
        broker.faults.reset_connections()
        with pytest.raises(OutcomeUnknown):
            await sending


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_connection_breaks_at_an_order(broker: RunningBroker, nth: int) -> None:
    """The broker never saw it, and it comes with the next try."""
    broker.faults.reset_at(Transfer, nth)
    tries = [await place_reliably(broker.url, Order(number)) for number in (1, 2)]
    assert tries == ([2, 1] if nth == 1 else [1, 2])
    assert broker.depth("orders") == 2


@pytest.mark.parametrize("condition", ["amqp:unauthorized-access", "amqp:resource-limit-exceeded"])
async def test_an_address_is_refused(broker: RunningBroker, condition: str) -> None:
    """The customer is told, and the trace shows it."""
    broker.faults.attach(address="orders").refuse(condition, "not today")
    async with open_client(broker.url, container_id="anna") as client:
        with pytest.raises(LinkRefused, match="not today") as caught:
            await place(client, Order(1))
    assert caught.value.condition == condition
    assert [(each.client, each.address) for each in broker.refused] == [("anna", "orders")]


async def test_a_full_disk(broker: RunningBroker) -> None:
    """Nothing of the order is stored, and the next one is taken."""
    broker.declare("orders")
    broker.faults.refuse_commit(1)
    async with open_client(broker.url) as client:
        with pytest.raises(MessageRefused):
            await place(client, Order(1))
        await place(client, Order(2))
    assert [each.properties["message_id"] for each in broker.peek("orders")] == ["order-2"]


async def test_an_order_waits_for_the_disk(broker: RunningBroker) -> None:
    """No outcome before the commit."""
    async with open_client(broker.url) as client:
        sender = await client.open_sender("orders")
        with broker.faults.held_commits():
            sending = asyncio.create_task(sender.send("shoes"))
            await broker.until(lambda: "Transfer" in str(broker.trace))
            assert not sending.done()
        await sending
    assert broker.depth("orders") == 1


@pytest.mark.parametrize("kept", [1, 2, 5])
async def test_a_full_queue(kept: int) -> None:
    """Who sends waits, until there is room."""
    async with (
        running_broker(f'[[queue]]\npattern = "orders"\nmax_messages = {kept}\n') as broker,
        open_client(broker.url) as client,
    ):
        sender = await client.open_sender("orders")
        for number in range(kept):
            await sender.send(str(number))
        waiting = asyncio.create_task(sender.send("one more"))
        await broker.until(lambda: broker.entities("queue")[0]["full"])
        assert not waiting.done()
        assert broker.purge("orders") == kept
        await waiting
        assert [each.body for each in broker.peek("orders")] == ["one more"]


async def test_an_outcome_is_an_object(broker: RunningBroker) -> None:
    """Released is told apart from rejected."""
    broker.faults.message().release()
    async with open_client(broker.url) as client:
        with pytest.raises(MessageRefused) as caught:
            await place(client, Order(1))
    assert isinstance(caught.value.outcome, Released)
