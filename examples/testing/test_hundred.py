"""A hundred tests, each with a broker of its own and a client that is never closed: seconds, with all ends.

python -m pytest -n 2 examples/testing/test_hundred.py
"""

from __future__ import annotations

import asyncio

import pytest

from amqp_broker import RunningBroker, connect, message, running_broker
from amqp_broker.testing import BrokerTestCase
from amqp_broker.testing.pytest_plugin import Namespace


@pytest.mark.parametrize("number", range(40))
def test_sent_and_received(amqp_broker: RunningBroker, number: int) -> None:
    """One message goes through."""
    shop = connect(amqp_broker.url)
    shop.open_sender("orders").send(f"order {number}")
    orders = shop.open_receiver("orders")
    received = orders.receive(timeout_s=20)
    orders.accept(received)
    assert received.body == f"order {number}"
    amqp_broker.wait_until(lambda: amqp_broker.depth("orders") == 0)


@pytest.mark.parametrize("hours", range(1, 21))
def test_expired(amqp_broker: RunningBroker, hours: int) -> None:
    """Hours pass at once."""
    connect(amqp_broker.url).open_sender("orders").send(message("stale", ttl_ms=hours * 3_600_000))
    amqp_broker.clock.advance(hours * 3_600 - 60)
    assert amqp_broker.depth("orders") == 1
    amqp_broker.clock.advance(61)
    assert amqp_broker.depth("orders") == 0


@pytest.mark.parametrize("nth", range(1, 11))
def test_refused(amqp_broker: RunningBroker, nth: int) -> None:
    """The one that was chosen."""
    amqp_broker.faults.message(nth).reject("amqp:not-allowed", "sold out")
    orders = connect(amqp_broker.url).open_sender("orders")
    refused = []
    for number in range(1, 11):
        try:
            orders.send(str(number))
        except Exception:
            refused.append(number)
    assert refused == [nth]
    assert [each.body for each in amqp_broker.peek("orders")] == [str(at) for at in range(1, 11) if at != nth]


@pytest.mark.parametrize("number", range(20))
def test_beside_others(amqp_namespace: Namespace, number: int) -> None:
    """A broker for all, and names for each."""
    orders = amqp_namespace.address("orders")
    connect(amqp_namespace.url).open_sender(orders).send(f"order {number}")
    assert [each.body for each in amqp_namespace.broker.peek(orders)] == [f"order {number}"]


@pytest.mark.parametrize("number", range(9))
def test_asyncio(number: int) -> None:
    """Beside an event loop, which goes on."""

    async def main() -> None:
        async with running_broker() as broker:
            shop = await asyncio.to_thread(connect, broker.url)
            await asyncio.to_thread(shop.open_sender("orders").send, f"order {number}")
            await broker.until(lambda: broker.depth("orders") == 1)

    asyncio.run(main())


class TestWithUnittest(BrokerTestCase):
    """The hundredth."""

    def test_declared(self) -> None:
        """A queue is there."""
        self.broker.declare("orders")
        self.assertEqual(self.broker.queues(), ["orders"])
