"""The warehouse, the quotes and the bills: each order once, and what nobody can pack is kept."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from proton import Message
from proton.utils import SyncRequestResponse

from amqp_broker import RunningBroker

from .warehouse import Billing, Quotes, Shop, Warehouse, opened


def place(broker: RunningBroker, count: int, **fields: Any) -> None:
    """Orders 0, 1, 2, ..."""
    with Shop(broker.url) as shop:
        for number in range(count):
            shop.place(number, **fields)


def is_empty(broker: RunningBroker, address: str = "orders") -> None:
    """At once, or soon: outcomes are on their way."""
    broker.wait_until(lambda: broker.depth(address) == 0)


@pytest.mark.parametrize("count", [1, 5, 20])
def test_all_orders_are_packed_once(amqp_broker: RunningBroker, count: int) -> None:
    """In the order in which they came."""
    place(amqp_broker, count)
    with Warehouse(amqp_broker.url, {"shoes": 100}) as warehouse:
        warehouse.work(count)
    assert warehouse.packed == [f"order-{number}" for number in range(count)]
    assert warehouse.stock == {"shoes": 100 - count}
    is_empty(amqp_broker)


@pytest.mark.parametrize(
    "body", ["shoes", None, {"quantity": 1}, {"item": "shoes", "quantity": 0}, {"item": 7}]
)
def test_what_is_no_order_is_a_dead_letter(amqp_broker: RunningBroker, body: Any) -> None:
    """It says who refused it, and why."""
    with Shop(amqp_broker.url) as shop:
        shop.say(Message(body=body, durable=True))
    with Warehouse(amqp_broker.url, {"shoes": 100}) as warehouse:
        warehouse.work(1)
    amqp_broker.wait_until(lambda: amqp_broker.depth("dead-letters") == 1)
    dead = amqp_broker.peek("dead-letters")[0].message_annotations
    assert (dead["x-opt-dead-letter-reason"], dead["x-opt-dead-letter-address"]) == ("rejected", "orders")
    assert "shop:no-order" in dead["x-opt-dead-letter-description"]


@pytest.mark.parametrize("deliveries", [1, 2, 3, 5])
def test_an_order_is_tried_some_times(amqp_broker_factory: Any, deliveries: int) -> None:
    """And then it is a dead letter, with their number."""
    broker = amqp_broker_factory(
        f'[[queue]]\npattern = "orders"\nmax_deliveries = {deliveries}\ndead_letter_address = "failed"\n'
    )
    place(broker, 1, item="gold")
    with Warehouse(broker.url, {"shoes": 100}) as warehouse:
        warehouse.work(deliveries)
    broker.wait_until(lambda: broker.depth("failed") == 1)
    dead = broker.peek("failed")[0]
    assert dead.message_annotations["x-opt-dead-letter-reason"] == "max-deliveries"
    assert (dead.message_annotations["x-opt-dead-letter-count"], broker.depth("orders")) == (deliveries, 0)


@pytest.mark.amqp_broker('[[queue]]\npattern = "orders"\nredelivery_delay_ms = 60_000\n')
@pytest.mark.parametrize("others", [0, 2])
def test_an_order_that_failed_waits(amqp_broker: RunningBroker, others: int) -> None:
    """Others overtake it; after a minute it is tried again."""
    with Shop(amqp_broker.url) as shop:
        shop.place(0, item="gold")
        for number in range(others):
            shop.place(number + 1)
    with Warehouse(amqp_broker.url, {"shoes": 100}) as warehouse:
        warehouse.work(1 + others)
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 1)
    amqp_broker.clock.advance(61)
    with Warehouse(amqp_broker.url, {"gold": 1}) as again:
        again.work(1)
    assert (len(warehouse.packed), again.packed) == (others, ["order-0"])


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_the_warehouse_dies_over_an_order(amqp_broker: RunningBroker, deaths: int) -> None:
    """Each time it counts, and the next one has it."""
    place(amqp_broker, 1)
    for death in range(deaths):
        assert Warehouse(amqp_broker.url, {}).take().delivery_count == death
        amqp_broker.faults.reset_connections()
    with Warehouse(amqp_broker.url, {"shoes": 1}) as last:
        last.work(1)
    assert last.packed == ["order-0"]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("item = 'shoes'", ["order-0", "order-3"]),
        ("quantity BETWEEN 2 AND 3", ["order-1", "order-2"]),
        ("item LIKE 's%' AND quantity > 1", ["order-2", "order-3"]),
        ("item IN ('hat', 'scarf')", ["order-1", "order-2"]),
        ("JMSMessageID = 'ID:AMQP_NO_PREFIX:order-3'", ["order-3"]),
        ("missing IS NULL AND NOT quantity = 1", ["order-1", "order-2", "order-3"]),
    ],
)
def test_some_orders_are_looked_for(amqp_broker: RunningBroker, selector: str, wanted: list[str]) -> None:
    """The others stay."""
    with Shop(amqp_broker.url) as shop:
        for number, item in enumerate(("shoes", "hat", "scarf", "shoes")):
            shop.place(number, item, quantity=number + 1)
    with Warehouse(amqp_broker.url, {"shoes": 9, "hat": 9, "scarf": 9}, selector=selector) as warehouse:
        warehouse.work(len(wanted))
    assert warehouse.packed == wanted
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 4 - len(wanted))


@pytest.mark.parametrize("count", [2, 10])
def test_two_warehouses_share(amqp_broker: RunningBroker, count: int) -> None:
    """Half of the orders each, none twice."""
    place(amqp_broker, count)
    with Warehouse(amqp_broker.url, {"shoes": 9}) as one, Warehouse(amqp_broker.url, {"shoes": 9}) as other:
        for _ in range(count // 2):
            one.work(1)
            other.work(1)
    assert sorted(one.packed + other.packed) == sorted(f"order-{number}" for number in range(count))
    is_empty(amqp_broker)


@pytest.mark.parametrize(("item", "price"), [("shoes", 90), ("hat", 25), ("nothing", -1)])
def test_a_price_is_asked_for(amqp_broker: RunningBroker, item: str, price: int) -> None:
    """The answer comes to a queue of the asker's own, which goes with it."""
    with Quotes(amqp_broker.url, {"shoes": 90, "hat": 25}):
        with closing(opened(amqp_broker.url)) as connection:
            assert SyncRequestResponse(connection, "quotes").call(Message(body=item)).body == price
            assert len([each for each in amqp_broker.queues() if each.startswith("temporary.")]) == 1
        amqp_broker.wait_until(lambda: amqp_broker.queues() == ["quotes"])


def test_two_ask_for_prices(amqp_broker: RunningBroker) -> None:
    """Each has its own answers."""
    with (
        Quotes(amqp_broker.url, {"shoes": 90, "hat": 25}),
        closing(opened(amqp_broker.url, "one")) as one, closing(opened(amqp_broker.url, "other")) as other,
    ):  # fmt: skip
        asked = [SyncRequestResponse(each, "quotes") for each in (one, other)]
        assert [each.call(Message(body="hat")).body for each in asked] == [25, 25]
        assert [each.call(Message(body="shoes")).body for each in reversed(asked)] == [90, 90]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_bill_for_each_order(amqp_broker: RunningBroker, count: int) -> None:
    """The order goes with the commit that brings the bill."""
    place(amqp_broker, count)
    Billing(amqp_broker.url, count, gives_back=False).run()
    bills = [each.body for each in amqp_broker.peek("bills")]
    assert bills == [f"bill of order-{number}" for number in range(count)]
    assert amqp_broker.depth("orders") == 0


@pytest.mark.parametrize("count", [1, 3])
def test_no_bill_for_an_order_that_is_given_back(amqp_broker: RunningBroker, count: int) -> None:
    """A rollback leaves all as it was."""
    place(amqp_broker, count)
    Billing(amqp_broker.url, 1, gives_back=True).run()
    assert (amqp_broker.depth("bills"), amqp_broker.depth("orders")) == (0, count)


@pytest.mark.amqp_broker('[[queue]]\npattern = "news"\nkind = "topic"\n')
@pytest.mark.parametrize("readers", [0, 1, 3])
def test_news_are_for_all(amqp_broker: RunningBroker, readers: int) -> None:
    """Whoever subscribes before they are sent has them."""
    connections = [opened(amqp_broker.url, f"reader-{number}") for number in range(readers)]
    links = [each.create_receiver("news", credit=5) for each in connections]
    with Shop(amqp_broker.url, "news") as shop:
        shop.say(Message(body="a sale"))
    assert [each.receive(timeout=10).body for each in links] == ["a sale"] * readers
    for each in connections:
        each.close()
