"""The service: each order once, again where it failed, a dead letter in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_broker import RunningBroker, message, open_client, running_broker
from amqp_broker.frames import Described, Source, Symbol
from amqp_broker.testing import FrameTrace, ScriptedFaults

from .shop import Order, Service, place, price_of

pytestmark = pytest.mark.anyio
SELECTOR = "apache.org:selector-filter:string"
PRICES = {"shoes": 90, "hat": 25}


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    """A service, until the block ends."""
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("count", [1, 5, 30])
async def test_all_orders_are_fulfilled_once(broker: RunningBroker, count: int) -> None:
    """In their order, with a parcel each."""
    async with running(Service(broker.url, {"shoes": 100})) as service, open_client(broker.url) as client:
        await place(client, *map(Order, range(count)))
        await broker.until(lambda: broker.depth("parcels") == count and broker.depth("orders") == 0)
    assert (service.fulfilled, service.stock) == (list(range(count)), {"shoes": 100 - count})
    parcels = [each.properties["correlation_id"] for each in broker.peek("parcels")]
    assert parcels == [f"order-{number}" for number in range(count)]


@pytest.mark.parametrize(
    "wrong",
    [
        message("shoes"), message([1], message_id="order-x"), message({"item": "shoes", "quantity": 1}),
        message({"item": "shoes"}, message_id="order-1"),
        message({"item": "shoes", "quantity": 0}, message_id="order-1"),
    ],
)  # fmt: skip
async def test_what_is_no_order_is_a_dead_letter(broker: RunningBroker, wrong: Any) -> None:
    """It says why, and the next one is fulfilled."""
    async with running(Service(broker.url, {"shoes": 1})) as service, open_client(broker.url) as client:
        await (await client.open_sender("orders")).send(wrong)
        await place(client, Order(2))
        await broker.until(lambda: broker.depth("parcels") == 1 and broker.depth("dead-letters") == 1)
    assert service.fulfilled == [2]
    dead = broker.peek("dead-letters")[0].message_annotations
    assert dead["x-opt-dead-letter-reason"] == "rejected"
    assert dead["x-opt-dead-letter-description"].startswith("shop:no-order")


@pytest.mark.parametrize("deliveries", [1, 2, 3, 5])
async def test_an_order_is_tried_some_times(deliveries: int) -> None:
    """And then it is a dead letter, with their number."""
    toml = f'[[queue]]\npattern = "orders"\nmax_deliveries = {deliveries}\ndead_letter_address = "failed"\n'
    async with (
        running_broker(toml) as broker, running(Service(broker.url, {})), open_client(broker.url) as client
    ):  # fmt: skip
        await place(client, Order(1, "gold"))
        await broker.until(lambda: broker.depth("failed") == 1)
        dead = broker.peek("failed")[0].message_annotations
    assert dead["x-opt-dead-letter-reason"] == "max-deliveries"
    assert dead["x-opt-dead-letter-count"] == deliveries


@pytest.mark.parametrize("delay_s", [60, 600])
async def test_an_order_waits_for_the_stock(delay_s: int) -> None:
    """What failed is tried again after a while, when there is something to send."""
    toml = f'[[queue]]\npattern = "orders"\nredelivery_delay_ms = {delay_s * 1_000}\n'
    faults = ScriptedFaults(FrameTrace())
    async with (
        running_broker(toml, faults=faults) as broker, running(Service(broker.url, {})) as service,
        open_client(broker.url) as client,
    ):  # fmt: skip
        await place(client, Order(1))
        await broker.until(lambda: "Modified" in str(broker.trace.of("service")))
        service.stock["shoes"] = 1
        broker.clock.advance(delay_s + 1)
        await broker.until(lambda: service.fulfilled == [1])
        await broker.until(lambda: broker.depth("orders") == 0)


async def connected(broker: RunningBroker, service: Service, times: int) -> None:
    """So often since its start."""
    await broker.until(lambda: service.connections == times)


@pytest.mark.parametrize("breaks", [1, 2, 4])
async def test_the_service_comes_back(broker: RunningBroker, breaks: int) -> None:
    """After each lost connection it goes on."""
    async with running(Service(broker.url, {"shoes": 100})) as service:
        for number in range(breaks):
            async with open_client(broker.url) as client:
                await place(client, Order(number))
                await broker.until(lambda: broker.depth("orders") == 0)
            broker.faults.reset_connections()
            await connected(broker, service, 2 + number)
    assert service.fulfilled == list(range(breaks))


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_an_order_that_comes_twice_has_one_parcel(broker: RunningBroker, nth: int) -> None:
    """The network said one of three twice."""
    broker.faults.message(nth, address="orders").duplicate()
    async with running(Service(broker.url, {"shoes": 100})) as service, open_client(broker.url) as client:
        await place(client, *map(Order, range(3)))
        await broker.until(lambda: len(service.fulfilled) == 3 and broker.depth("orders") == 0)
    assert (broker.depth("parcels"), service.stock) == (3, {"shoes": 97})


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_parcel_that_is_lost(broker: RunningBroker, nth: int) -> None:
    """The connection breaks when a parcel is stored: its order comes again, with a second parcel."""
    broker.faults.message(nth, address="parcels").reset_after_commit()
    async with running(Service(broker.url, {"shoes": 100})) as service, open_client(broker.url) as client:
        await place(client, Order(0), Order(1))
        await broker.until(lambda: sorted(service.fulfilled) == [0, 1] and broker.depth("orders") == 0)
    parcels = [each.properties["correlation_id"] for each in broker.peek("parcels")]
    assert sorted(parcels) == sorted(["order-0", "order-1", f"order-{nth - 1}"])


@pytest.mark.parametrize(("item", "price"), [("shoes", 90), ("hat", 25), ("nothing", -1)])
async def test_a_price_is_asked_for(broker: RunningBroker, item: str, price: int) -> None:
    """The queue for the answer goes with its link."""
    async with running(Service(broker.url, {}, PRICES)), open_client(broker.url) as client:
        assert await price_of(client, item) == price
        await broker.until(lambda: not [each for each in broker.queues() if each.startswith("temporary.")])


@pytest.mark.parametrize("customers", [2, 5])
async def test_many_ask_at_once(broker: RunningBroker, customers: int) -> None:
    """Each has the answer to its own question."""
    async with running(Service(broker.url, {}, PRICES)), open_client(broker.url) as client:
        asked = [price_of(client, ("hat", "shoes")[number % 2]) for number in range(customers)]
        assert await asyncio.gather(*asked) == [(25, 90)[number % 2] for number in range(customers)]


def consumers_of(broker: RunningBroker, address: str) -> int:
    """How many links take from a queue."""
    return sum(each["consumers"] for each in broker.entities("queue") if each["name"] == address)


@pytest.mark.parametrize("services", [2, 3])
async def test_services_share(broker: RunningBroker, services: int) -> None:
    """Each order is one service's."""
    made = [Service(broker.url, {"shoes": 100}, name=f"service-{nth}") for nth in range(services)]
    tasks = [asyncio.create_task(each.run()) for each in made]
    async with open_client(broker.url) as client:
        await broker.until(lambda: consumers_of(broker, "orders") == services)
        await place(client, *map(Order, range(6 * services)))
        await broker.until(lambda: broker.depth("orders") == 0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert sorted(number for each in made for number in each.fulfilled) == list(range(6 * services))
    assert all(each.fulfilled for each in made)


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("item = 'shoes'", ["order-0", "order-3"]),
        ("quantity BETWEEN 2 AND 3", ["order-1", "order-2"]),
        ("item LIKE 's%' AND quantity > 1", ["order-2", "order-3"]),
        ("item IN ('hat', 'scarf')", ["order-1", "order-2"]),
        ("missing IS NULL AND NOT quantity = 1", ["order-1", "order-2", "order-3"]),
    ],
)
async def test_some_orders_are_looked_for(broker: RunningBroker, selector: str, wanted: list[str]) -> None:
    """The others stay."""
    chosen = {SELECTOR: Described(Symbol(SELECTOR), selector)}
    async with open_client(broker.url) as client:
        items = enumerate(("shoes", "hat", "scarf", "shoes"))
        await place(client, *(Order(number, item, number + 1) for number, item in items))
        orders = await client.open_receiver("orders", source=Source(address="orders", filter=chosen))
        came = []
        while received := await orders.receive_now():
            came.append(received.properties.message_id)
            orders.accept(received)
        await broker.until(lambda: broker.depth("orders") == 4 - len(wanted))
    assert came == wanted


async def test_a_stuck_worker_loses_its_order() -> None:
    """Who says nothing for too long is detached."""
    toml = '[[queue]]\npattern = "orders"\nconsumer_timeout_ms = 1_800_000\n'
    async with running_broker(toml) as broker, open_client(broker.url) as client:
        await place(client, Order(1))
        stuck = await client.open_receiver("orders")
        await asyncio.wait_for(stuck.receive(), 10)
        broker.clock.advance(1_800 * 1.5 + 1)
        assert broker.peek("orders")[0].delivery_count == 1
