"""Orders and invoices: each once, again where it failed, a dead letter in the end."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker import Resolution, RunningBroker, connect, message
from amqp_broker.client import plain_value

from .conftest import Program, Start

PRICES = {"shoes": 90, "hat": 25}


def order(number: int, item: str = "shoes", quantity: int = 1, **fields: Any) -> Any:
    """As a shop sends it."""
    return message(
        {"item": item, "quantity": quantity}, message_id=f"order-{number}",
        application_properties={"item": item, "quantity": quantity}, **fields,
    )  # fmt: skip


def place(broker: RunningBroker, *orders: Any) -> None:
    """One after the other."""
    with connect(broker.url) as shop:
        sender = shop.open_sender("orders")
        for each in orders:
            sender.send(each)


def invoices(broker: RunningBroker) -> list[str]:
    """Which orders have one."""
    return [each.properties["correlation_id"] for each in broker.peek("invoices")]


def wait_until_connected(broker: RunningBroker, program: Program, times: int) -> None:
    """So often since its start."""
    broker.wait_until(lambda: program.connections == times)


def is_done(broker: RunningBroker) -> None:
    """Soon no order is left."""
    broker.wait_until(lambda: broker.depth("orders") == 0)


@pytest.mark.parametrize("count", [1, 2, 5, 10, 20])
def test_an_invoice_for_each_order(amqp_broker: RunningBroker, start: Start, count: int) -> None:
    """In the order in which they came."""
    program = start(amqp_broker, prices=PRICES)
    place(amqp_broker, *map(order, range(count)))
    is_done(amqp_broker)
    assert invoices(amqp_broker) == program.invoiced == [f"order-{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("item", "quantity", "total"), [("shoes", 1, 90), ("shoes", 3, 270), ("hat", 1_000, 25_000)]
)
def test_what_an_invoice_says(
    amqp_broker: RunningBroker, start: Start, item: str, quantity: int, total: int
) -> None:
    """The price of one, as often as it is ordered."""
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, order(1, item, quantity))
    is_done(amqp_broker)
    invoice = amqp_broker.peek("invoices")[0]
    assert (plain_value(invoice.body), invoice.durable) == ({"item": item, "total": total}, True)


@pytest.mark.parametrize("deliveries", [1, 2, 3, 5])
def test_what_has_no_price_is_tried(amqp_broker_factory: Any, start: Start, deliveries: int) -> None:
    """Some times, and then it is a dead letter with their number."""
    broker = amqp_broker_factory(f'[[queue]]\npattern = "orders"\nmax_deliveries = {deliveries}\n')
    start(broker, prices=PRICES)
    place(broker, order(1, "gold"))
    broker.wait_until(lambda: broker.depth("dead-letters") == 1)
    dead = broker.peek("dead-letters")[0].message_annotations
    assert dead["x-opt-dead-letter-reason"] == "max-deliveries"
    assert dead["x-opt-dead-letter-count"] == deliveries


@pytest.mark.parametrize(
    "wrong",
    [
        message("shoes"), message({"item": "shoes", "quantity": 1}), message([1], message_id="order-1"),
        message({"item": 7, "quantity": 1}, message_id="order-1"), message(b"shoes", message_id="order-1"),
        message({"item": "shoes", "quantity": 0}, message_id="order-1"),
    ],
)  # fmt: skip
def test_what_is_no_order_is_a_dead_letter(amqp_broker: RunningBroker, start: Start, wrong: Any) -> None:
    """It says why, and the next order has its invoice."""
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, wrong, order(2))
    is_done(amqp_broker)
    dead = amqp_broker.peek("dead-letters")[0].message_annotations
    assert "shop:no-order" in dead["x-opt-dead-letter-description"]
    assert invoices(amqp_broker) == ["order-2"]


@pytest.mark.parametrize("times", [2, 3, 5])
def test_an_order_that_comes_again(amqp_broker: RunningBroker, start: Start, times: int) -> None:
    """The program knows its number, and there is one invoice."""
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, *[order(1)] * times)
    is_done(amqp_broker)
    assert invoices(amqp_broker) == ["order-1"]


@pytest.mark.parametrize("nth", [1, 2])
def test_an_order_that_the_network_says_twice(amqp_broker: RunningBroker, start: Start, nth: int) -> None:
    """It has one invoice, too."""
    amqp_broker.faults.message(nth, address="orders").duplicate()
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, order(1), order(2))
    is_done(amqp_broker)
    assert invoices(amqp_broker) == ["order-1", "order-2"]


@pytest.mark.parametrize(("decided", "wanted"), [(Resolution.COMMIT, ["order-1"]), (Resolution.ROLLBACK, [])])
def test_an_order_with_a_row_of_the_shop(
    amqp_broker: RunningBroker, start: Start, decided: Resolution, wanted: list[str]
) -> None:
    """There is an invoice where the shop has committed."""
    start(amqp_broker, prices=PRICES)
    with connect(amqp_broker.url) as shop, shop.producer("shop") as producer:
        body = {"item": "shoes", "quantity": 1}
        producer.send_in_transaction("orders", body, lambda half_id: decided, message_id="order-1")
        assert amqp_broker.entities("half") == []
        amqp_broker.wait_until(lambda: amqp_broker.depth("invoices") == len(wanted))
    is_done(amqp_broker)
    assert invoices(amqp_broker) == wanted


@pytest.mark.parametrize("verb", ["reject", "release", "modify"])
@pytest.mark.parametrize("times", [1, 3])
def test_an_invoice_is_not_taken(amqp_broker: RunningBroker, start: Start, verb: str, times: int) -> None:
    """Its order is tried again, until it is."""
    getattr(amqp_broker.faults.message(count=times, address="invoices"), verb)()
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, order(1))
    is_done(amqp_broker)
    assert invoices(amqp_broker) == ["order-1"]
    sent = [each for each in amqp_broker.trace.performatives("C") if type(each).__name__ == "Transfer"]
    assert len(sent) == 1 + times + 1


@pytest.mark.parametrize("breaks", [1, 2, 3])
def test_the_program_comes_back(amqp_broker: RunningBroker, start: Start, breaks: int) -> None:
    """After each lost connection it goes on."""
    program = start(amqp_broker, prices=PRICES)
    for number in range(breaks):
        place(amqp_broker, order(number))
        is_done(amqp_broker)
        amqp_broker.faults.reset_connections()
        wait_until_connected(amqp_broker, program, 2 + number)
    assert invoices(amqp_broker) == [f"order-{number}" for number in range(breaks)]


@pytest.mark.parametrize("nth", [1, 2])
def test_an_invoice_whose_outcome_is_lost(amqp_broker: RunningBroker, start: Start, nth: int) -> None:
    """Nobody knows whether it is there: so there are two."""
    amqp_broker.faults.message(nth, address="invoices").reset_after_commit()
    start(amqp_broker, prices=PRICES)
    place(amqp_broker, order(1), order(2))
    is_done(amqp_broker)
    assert sorted(invoices(amqp_broker)) == sorted(["order-1", "order-2", f"order-{nth}"])


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("item = 'shoes'", [0, 2]), ("item <> 'shoes'", [1]), ("quantity BETWEEN 2 AND 3", [1, 2]),
        ("item LIKE 's%' AND quantity > 1", [2]), ("item IN ('hat', 'scarf')", [1]),
        ("missing IS NULL AND NOT quantity = 1", [1, 2]),
    ],
)  # fmt: skip
def test_some_orders_are_looked_for(
    amqp_broker: RunningBroker, start: Start, selector: str, wanted: list[int]
) -> None:
    """The others stay."""
    start(amqp_broker, prices=PRICES, selector=selector)
    items = enumerate(("shoes", "hat", "shoes"))
    place(amqp_broker, *(order(number, item, number + 1) for number, item in items))
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 3 - len(wanted))
    assert invoices(amqp_broker) == [f"order-{number}" for number in wanted]


@pytest.mark.parametrize("count", [2, 4, 10])
def test_two_programs_share(amqp_broker: RunningBroker, start: Start, count: int) -> None:
    """Each order is one's."""
    one, other = start(amqp_broker, prices=PRICES), start(amqp_broker, prices=PRICES)
    place(amqp_broker, *map(order, range(count)))
    is_done(amqp_broker)
    assert len(one.invoiced) == len(other.invoiced) == count // 2
    assert sorted(one.invoiced + other.invoiced) == sorted(f"order-{number}" for number in range(count))


@pytest.mark.parametrize("seconds", [60, 3_600, 86_400])
def test_an_old_order_has_no_invoice(amqp_broker: RunningBroker, start: Start, seconds: int) -> None:
    """It expired before the program was there."""
    place(amqp_broker, order(1, ttl_ms=seconds * 1_000), order(2))
    amqp_broker.clock.advance(seconds + 1)
    start(amqp_broker, prices=PRICES)
    is_done(amqp_broker)
    assert invoices(amqp_broker) == ["order-2"]


@pytest.mark.parametrize("seconds", [60, 3_600, 86_400])
def test_an_order_for_later(amqp_broker: RunningBroker, start: Start, seconds: int) -> None:
    """Its invoice is written when its time has come."""
    program = start(amqp_broker, prices=PRICES)
    place(amqp_broker, order(1, message_annotations={"x-opt-delivery-delay": seconds * 1_000}), order(2))
    amqp_broker.wait_until(lambda: program.invoiced == ["order-2"])
    amqp_broker.clock.advance(seconds)
    amqp_broker.wait_until(lambda: program.invoiced == ["order-2", "order-1"])


@pytest.mark.parametrize("seconds", [60, 600])
def test_an_order_waits_for_its_price(amqp_broker_factory: Any, start: Start, seconds: int) -> None:
    """What failed is tried again after a while."""
    broker = amqp_broker_factory(f'[[queue]]\npattern = "orders"\nredelivery_delay_ms = {seconds * 1_000}\n')
    program = start(broker, prices=PRICES)
    place(broker, order(1, "gold"))
    broker.wait_until(lambda: "Modified" in str(broker.trace))
    program.learn(gold=2_000)
    broker.clock.advance(seconds + 1)
    is_done(broker)
    assert plain_value(broker.peek("invoices")[0].body) == {"item": "gold", "total": 2_000}


@pytest.mark.parametrize("address", ["orders", "invoices", "prices"])
def test_a_link_is_refused(amqp_broker: RunningBroker, start: Start, address: str) -> None:
    """The program says so."""
    amqp_broker.faults.attach(address=address).refuse("amqp:unauthorized-access", "not today")
    program = start(amqp_broker, wait=False)
    amqp_broker.wait_until(lambda: program.errors == ["amqp:unauthorized-access"])
    assert [each.address for each in amqp_broker.refused] == [address]
