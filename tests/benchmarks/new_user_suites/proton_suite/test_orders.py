"""The shop: what it sends is there once, as it was said, and when it should be."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from proton import Message

from amqp_broker import RunningBroker

from .warehouse import Shop, later, opened


@pytest.mark.parametrize("body", ["shoes", "schön 靴", {"item": "hat"}, ["one", 2], -5])
def test_an_order_arrives_once(amqp_broker: RunningBroker, body: Any) -> None:
    """Whatever it is."""
    with Shop(amqp_broker.url) as shop:
        shop.say(Message(body=body, durable=True))
    assert [each.body for each in amqp_broker.peek("orders")] == [body]
    assert amqp_broker.peek("orders")[0].durable


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", "urgent"), ("correlation_id", "basket-7"), ("reply_to", "answers"),
        ("group_id", "customer-3"), ("content_type", "text/plain"), ("user_id", b"anna"), ("id", "order-1"),
        ("properties", {"colour": "red"}),
    ],
)  # fmt: skip
def test_what_is_said_of_an_order_stays(amqp_broker: RunningBroker, field: str, value: Any) -> None:
    """Who receives it reads what the sender wrote."""
    with Shop(amqp_broker.url) as shop:
        shop.say(Message(body="shoes", durable=True, **{field: value}))
    with closing(opened(amqp_broker.url)) as connection:
        orders = connection.create_receiver("orders")
        received = orders.receive(timeout=10)
        orders.accept()
    assert getattr(received, field) == value


@pytest.mark.parametrize("seconds", [60, 600, 3_600, 86_400])
def test_an_order_expires(amqp_broker: RunningBroker, seconds: int) -> None:
    """Not before its time, and then it is a dead letter."""
    with Shop(amqp_broker.url) as shop:
        shop.place(1, ttl=seconds)
    amqp_broker.clock.advance(seconds - 30)
    assert amqp_broker.depth("orders") == 1
    amqp_broker.clock.advance(31)
    assert amqp_broker.depth("orders") == 0
    assert amqp_broker.peek("dead-letters")[0].message_annotations["x-opt-dead-letter-reason"] == "expired"


@pytest.mark.parametrize("seconds", [60, 3_600, 604_800])
def test_an_order_comes_later(amqp_broker: RunningBroker, seconds: int) -> None:
    """Until its time nobody sees it."""
    with Shop(amqp_broker.url) as shop:
        shop.place(1, annotations=later(seconds * 1_000))
    amqp_broker.clock.advance(seconds - 30)
    assert amqp_broker.peek("orders") == []
    amqp_broker.clock.advance(31)
    assert [each.properties["message_id"] for each in amqp_broker.peek("orders")] == ["order-1"]


@pytest.mark.amqp_broker('[[queue]]\npattern = "orders"\npriorities = true\n')
@pytest.mark.parametrize("priorities", [(0, 4, 9), (9, 4, 0), (4, 9, 0)])
def test_urgent_orders_come_first(amqp_broker: RunningBroker, priorities: tuple[int, ...]) -> None:
    """In whatever order they were placed."""
    with Shop(amqp_broker.url) as shop:
        for number, priority in enumerate(priorities):
            shop.place(number, priority=priority)
    with closing(opened(amqp_broker.url)) as connection:
        orders = connection.create_receiver("orders")
        came = []
        for _ in priorities:
            came.append(orders.receive(timeout=10).priority)
            orders.accept()
    assert came == [9, 4, 0]


@pytest.mark.parametrize("kept", [1, 2, 5])
def test_the_last_prices_are_kept(amqp_broker_factory: Any, kept: int) -> None:
    """A ring drops the oldest."""
    broker = amqp_broker_factory(
        f'[[queue]]\npattern = "prices"\nring_messages = {kept}\nmessage_type = "normal"\n'
    )
    with Shop(broker.url, "prices") as shop:
        for price in range(8):
            shop.say(Message(body=price, durable=True))
    assert [each.body for each in broker.peek("prices")] == list(range(8))[-kept:]


ONCE = '[[queue]]\npattern = "orders"\nduplicate_window_ms = 600_000\n'


@pytest.mark.amqp_broker(ONCE)
@pytest.mark.parametrize("times", [2, 3, 5])
def test_an_order_that_is_sent_again_is_there_once(amqp_broker: RunningBroker, times: int) -> None:
    """Each time the shop hears that it was accepted."""
    with Shop(amqp_broker.url) as shop:
        for _ in range(times):
            shop.place(1)
        shop.place(2)
    assert [each.properties["message_id"] for each in amqp_broker.peek("orders")] == ["order-1", "order-2"]
    assert amqp_broker.entities("queue")[0]["duplicates"] == times - 1


@pytest.mark.amqp_broker(ONCE)
@pytest.mark.parametrize(("seconds", "there"), [(300, 1), (601, 2)])
def test_a_number_is_free_again(amqp_broker: RunningBroker, seconds: int, there: int) -> None:
    """After ten minutes, and not before."""
    with Shop(amqp_broker.url) as shop:
        shop.place(1)
        amqp_broker.clock.advance(seconds)
        shop.place(1)
    assert amqp_broker.depth("orders") == there


@pytest.mark.parametrize("count", [1, 7])
def test_orders_are_thrown_away(amqp_broker: RunningBroker, count: int) -> None:
    """Those of one queue only."""
    for address in ("orders", "returns"):
        with Shop(amqp_broker.url, address) as shop:
            for number in range(count):
                shop.place(number)
    assert amqp_broker.purge("orders") == count
    assert (amqp_broker.depth("orders"), amqp_broker.depth("returns")) == (0, count)


@pytest.mark.parametrize("addresses", [["orders"], ["orders", "orders.eu", "returns"]])
def test_which_queues_there_are(amqp_broker: RunningBroker, addresses: list[str]) -> None:
    """A queue is made by its first use, and gone when it is deleted."""
    for address in addresses:
        with Shop(amqp_broker.url, address) as shop:
            shop.place(1)
    assert sorted(amqp_broker.queues()) == addresses
    amqp_broker.delete("orders")
    assert sorted(amqp_broker.queues()) == addresses[1:]
