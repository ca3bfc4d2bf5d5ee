"""Questions and answers, and many programs beside each other on one broker."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker import RunningBroker, connect, message
from amqp_broker.client import ReceivedMessage, plain_value
from amqp_broker.testing.pytest_plugin import Namespace

from .conftest import Start
from .test_invoicing import PRICES, order


def asked(broker: RunningBroker, address: str, body: Any, **fields: Any) -> ReceivedMessage:
    """What the program answers."""
    with connect(broker.url) as client:
        answers = client.open_receiver(None)
        client.open_sender(address).send(message(body, reply_to=answers.address, **fields))
        answer = answers.receive(timeout_s=10)
        answers.accept(answer)
        return answer


@pytest.mark.parametrize(("item", "price"), [("shoes", 90), ("hat", 25), ("nothing", -1)])
def test_a_price_is_asked_for(amqp_broker: RunningBroker, start: Start, item: str, price: int) -> None:
    """The queue for the answer goes with its link."""
    start(amqp_broker, prices=PRICES)
    assert plain_value(asked(amqp_broker, "prices", item).body) == price
    amqp_broker.wait_until(lambda: "temporary." not in str(amqp_broker.queues()))


@pytest.mark.parametrize("customers", [1, 2, 5])
def test_many_ask_at_once(amqp_broker: RunningBroker, start: Start, customers: int) -> None:
    """Each has the answer to its own question."""
    start(amqp_broker, prices={str(number): number for number in range(customers)})
    clients = [connect(amqp_broker.url) for _ in range(customers)]
    links = [client.open_receiver(None) for client in clients]
    for number, (client, link) in enumerate(zip(clients, links, strict=True)):
        client.open_sender("prices").send(message(str(number), reply_to=link.address))
    assert [plain_value(link.receive(timeout_s=10).body) for link in links] == list(range(customers))
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "body",
    ["shoes", "schön 靴", "", {"item": "hat", "sizes": [1, 2]}, ["one", 2, None], -5, 2**40, 1.5, True, {}],
)
def test_what_is_said_comes_back(amqp_broker: RunningBroker, start: Start, body: Any) -> None:
    """The same value, though Node has seen it."""
    start(amqp_broker)
    assert plain_value(asked(amqp_broker, "echo", body).body) == body


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", "urgent"), ("correlation_id", "basket-7"), ("correlation_id", 7),
        ("group_id", "customer-3"), ("content_type", "text/plain"),
    ],
)  # fmt: skip
def test_what_is_said_of_it_comes_back(
    amqp_broker: RunningBroker, start: Start, field: str, value: Any
) -> None:
    """Field by field."""
    start(amqp_broker)
    answer = asked(amqp_broker, "echo", "shoes", **{field: value})
    assert getattr(answer.properties, field) == value


@pytest.mark.parametrize("told", [{"colour": "red"}, {"size": 42, "new": True}, {"weight": 1.5}])
def test_its_own_properties_come_back(
    amqp_broker: RunningBroker, start: Start, told: dict[str, Any]
) -> None:
    """Whatever an application calls them."""
    start(amqp_broker)
    answer = asked(amqp_broker, "echo", "shoes", application_properties=told)
    assert plain_value(answer.application_properties) == told


@pytest.mark.parametrize("readers", [0, 1, 3])
def test_invoices_for_all(amqp_broker_factory: Any, start: Start, readers: int) -> None:
    """Where they are a topic, each reader has one."""
    broker = amqp_broker_factory('[[queue]]\npattern = "invoices"\nkind = "topic"\n')
    start(broker, prices=PRICES)
    with connect(broker.url) as client:
        links = [client.open_receiver("invoices") for _ in range(readers)]
        client.open_sender("orders").send(order(1))
        came = [each.receive(timeout_s=10).properties.correlation_id for each in links]
    assert came == ["order-1"] * readers


@pytest.mark.amqp_broker('[[queue]]\npattern = "orders"\npriorities = true\n')
@pytest.mark.parametrize("priorities", [(0, 4, 9), (9, 4, 0), (4, 9, 0)])
def test_urgent_orders_come_first(
    amqp_broker: RunningBroker, start: Start, priorities: tuple[int, ...]
) -> None:
    """In whatever order they were placed."""
    with connect(amqp_broker.url) as client:
        sender = client.open_sender("orders")
        for priority in priorities:
            sender.send(order(priority, priority=priority))
    program = start(amqp_broker, prices=PRICES)
    amqp_broker.wait_until(lambda: program.invoiced == ["order-9", "order-4", "order-0"])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_beside_others(amqp_namespace: Namespace, start: Start, count: int) -> None:
    """A broker for all tests, and addresses for each."""
    program = start(amqp_namespace.broker, prices=PRICES, prefix=amqp_namespace.address(""))
    orders, there = amqp_namespace.address("orders"), amqp_namespace.address("invoices")
    with connect(amqp_namespace.url) as client:
        client.open_sender(orders).send_many(order(number) for number in range(count))
    amqp_namespace.broker.wait_until(lambda: len(program.invoiced) == count)
    invoices = amqp_namespace.broker.peek(there)
    assert [each.properties["correlation_id"] for each in invoices] == program.invoiced


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_refused_beside_others(amqp_namespace: Namespace, start: Start, nth: int) -> None:
    """A fault for these addresses only."""
    broker, orders = amqp_namespace.broker, amqp_namespace.address("orders")
    broker.faults.message(nth, address=amqp_namespace.address("invoices")).reject()
    program = start(broker, prices=PRICES, prefix=amqp_namespace.address(""))
    with connect(amqp_namespace.url) as client:
        client.open_sender(orders).send_many(order(number) for number in range(3))
    broker.wait_until(lambda: len(program.invoiced) == 3)
    broker.wait_until(lambda: broker.depth(orders) == 0)


@pytest.mark.parametrize("programs", [1, 2, 3])
def test_who_is_connected(amqp_broker: RunningBroker, start: Start, programs: int) -> None:
    """Each with its links, and gone when it is stopped."""
    started = [start(amqp_broker) for _ in range(programs)]
    assert len(amqp_broker.entities("connection")) == len(started)
    assert {each["links"] for each in amqp_broker.entities("connection")} == {5}


@pytest.mark.parametrize("count", [1, 4])
def test_what_the_program_said(amqp_broker: RunningBroker, start: Start, count: int) -> None:
    """A transfer for each invoice, a disposition for each order."""
    start(amqp_broker, prices=PRICES, name="books")
    with connect(amqp_broker.url, container_id="shop") as client:
        client.open_sender("orders").send_many(order(number) for number in range(count))
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 0)
    said = [type(each.performative).__name__ for each in amqp_broker.trace.of("books") if each.sender == "C"]
    assert said.count("Transfer") == count
    assert said.count("Attach") == 5
