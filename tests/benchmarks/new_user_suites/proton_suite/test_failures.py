"""The shop when something goes wrong: refusals, broken connections, a full disk."""

from __future__ import annotations

import pytest
from proton import ConnectionException, Delivery, Message, ProtonException, Timeout
from proton.utils import LinkDetached

from amqp_broker import RunningBroker
from amqp_broker.frames import Transfer

from .warehouse import Refused, Shop, Warehouse


@pytest.mark.parametrize("nth", range(1, 7))
def test_one_of_six_orders_is_refused(amqp_broker: RunningBroker, nth: int) -> None:
    """The shop learns which, and the others are there."""
    amqp_broker.faults.message(nth, address="orders").reject("amqp:not-allowed", "sold out")
    refused = []
    with Shop(amqp_broker.url) as shop:
        for number in range(1, 7):
            try:
                shop.place(number)
            except Refused:
                refused.append(number)
    assert refused == [nth]
    assert [each.description for each in amqp_broker.refused] == ["sold out"]
    assert amqp_broker.depth("orders") == 5


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_the_shop_tries_again(amqp_broker: RunningBroker, failures: int) -> None:
    """What is released comes with the next try, once."""
    amqp_broker.faults.message(count=failures).release()
    with Shop(amqp_broker.url, tries=4) as shop:
        shop.place(1)
    assert amqp_broker.depth("orders") == 1


@pytest.mark.parametrize("tries", [1, 3])
def test_the_shop_gives_up(amqp_broker: RunningBroker, tries: int) -> None:
    """After as many tries as it was told."""
    amqp_broker.faults.message(count=tries).modify()
    with Shop(amqp_broker.url, tries=tries) as shop:
        with pytest.raises(Refused, match=str(int(Delivery.MODIFIED))):
            shop.place(1)
    assert amqp_broker.depth("orders") == 0


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_order_that_comes_twice_is_packed_once(amqp_broker: RunningBroker, nth: int) -> None:
    """The network has said one of three twice."""
    amqp_broker.faults.message(nth).duplicate()
    with Shop(amqp_broker.url) as shop:
        for number in range(3):
            shop.place(number)
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 4)
    with Warehouse(amqp_broker.url, {"shoes": 9}) as warehouse:
        warehouse.work(4)
    assert (sorted(warehouse.packed), warehouse.stock) == (["order-0", "order-1", "order-2"], {"shoes": 6})


def placed_over_a_broken_connection(broker: RunningBroker) -> None:
    """The shop hears nothing of its order, and places it once more."""
    with pytest.raises((ConnectionException, ProtonException)):
        Shop(broker.url).place(1)
    with Shop(broker.url) as again:
        again.place(1)


def test_an_order_whose_outcome_is_lost_comes_twice(amqp_broker: RunningBroker) -> None:
    """Unless somebody looks at its number."""
    amqp_broker.faults.message().reset_after_commit()
    placed_over_a_broken_connection(amqp_broker)
    assert amqp_broker.depth("orders") == 2


@pytest.mark.amqp_broker('[[queue]]\npattern = "orders"\nduplicate_window_ms = 60_000\n')
def test_an_order_whose_outcome_is_lost_comes_once(amqp_broker: RunningBroker) -> None:
    """The broker looks at its number."""
    amqp_broker.faults.message().reset_after_commit()
    placed_over_a_broken_connection(amqp_broker)
    assert amqp_broker.depth("orders") == 1


def test_an_order_that_never_arrived_comes_once(amqp_broker: RunningBroker) -> None:
    """The connection broke before the broker saw it."""
    amqp_broker.faults.reset_at(Transfer, 1)
    placed_over_a_broken_connection(amqp_broker)
    assert amqp_broker.depth("orders") == 1


@pytest.mark.parametrize(
    "condition",
    ["amqp:unauthorized-access", "amqp:not-found", "amqp:resource-limit-exceeded", "amqp:internal-error"],
)
def test_the_shop_has_another_address(amqp_broker: RunningBroker, condition: str) -> None:
    """Where the first one is refused, for whatever reason."""
    amqp_broker.faults.attach(address="orders").refuse(condition, "not today")
    with Shop(amqp_broker.url, backup="orders.later") as shop:
        shop.place(1)
        assert shop.address == "orders.later"
    assert amqp_broker.queues() == ["orders.later"]
    assert [(each.what, each.condition) for each in amqp_broker.refused] == [("link", condition)]


def test_the_shop_without_another_address_ends(amqp_broker: RunningBroker) -> None:
    """It says so to its caller."""
    amqp_broker.faults.attach(address="orders").refuse("amqp:unauthorized-access", "not today")
    with pytest.raises(LinkDetached, match="not today"):
        Shop(amqp_broker.url)


@pytest.mark.parametrize("before", [0, 2])
def test_the_broker_goes_away(amqp_broker: RunningBroker, before: int) -> None:
    """What was placed before is there, and a new connection goes on."""
    shop = Shop(amqp_broker.url)
    for number in range(before):
        shop.place(number)
    amqp_broker.faults.reset_connections()
    with pytest.raises((ConnectionException, ProtonException)):
        shop.place(before)
    with Shop(amqp_broker.url) as again:
        again.place(before)
    assert amqp_broker.depth("orders") == before + 1


def test_the_disk_is_full(amqp_broker: RunningBroker) -> None:
    """An order is refused, the next one is taken."""
    amqp_broker.declare("orders")
    amqp_broker.faults.refuse_commit(1)
    with Shop(amqp_broker.url) as shop:
        with pytest.raises(Refused):
            shop.place(1)
        shop.place(2)
    assert [each.properties["message_id"] for each in amqp_broker.peek("orders")] == ["order-2"]


def test_nobody_may_send(amqp_broker: RunningBroker) -> None:
    """Without credit an order waits, and the shop loses its patience."""
    amqp_broker.faults.grant_no_credit()
    shop = Shop(amqp_broker.url)
    with pytest.raises(Timeout):
        shop.say(Message(body="shoes"), timeout_s=0.1)
    assert "Transfer" not in str(amqp_broker.trace)


@pytest.mark.parametrize("count", [1, 3])
def test_what_the_shop_said(amqp_broker: RunningBroker, count: int) -> None:
    """A transfer for each order, and an end."""
    with Shop(amqp_broker.url) as shop:
        for number in range(count):
            shop.place(number)
    said = [type(each).__name__ for each in amqp_broker.trace.performatives("C")]
    assert said[:4] == ["SaslInit", "Open", "Begin", "Attach"]
    assert said.count("Transfer") == count
    assert "Close" in said
