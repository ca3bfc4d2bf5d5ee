"""Payments: a row of our books and a message, both or neither; news for all; and the same with unittest."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any

import pytest

from amqp_broker import Resolution, RunningBroker, message, open_client, running_broker
from amqp_broker.client import HalfConflict
from amqp_broker.frames import Source
from amqp_broker.testing import BrokerTestCase, ScriptedFaults

from .shop import Order, place


class Books:
    """The table of payments, and what is said of it to who asks."""

    def __init__(self, writes: bool = True) -> None:
        self.rows: list[str] = []
        self._writes = writes

    async def book(self, half_id: Any) -> Resolution:
        """The local transaction."""
        if self._writes:
            self.rows.append(half_id)
        return Resolution.COMMIT if self._writes else Resolution.ROLLBACK

    async def book_and_die(self, half_id: Any) -> Resolution:
        """Nobody knows how it ended."""
        await self.book(half_id)
        return Resolution.UNKNOWN

    async def check(self, half: Any) -> Resolution:
        """Whether the row is there."""
        return Resolution.COMMIT if half.half_id in self.rows else Resolution.ROLLBACK


@pytest.mark.anyio
@pytest.mark.parametrize("amount", [1, 90, 2**40])
async def test_a_payment_is_booked(broker: RunningBroker, amount: int) -> None:
    """The message comes with the row."""
    books = Books()
    async with open_client(broker.url) as client, client.producer("payments", books.check) as producer:
        receipt = await producer.send_in_transaction("ledger", amount, books.book, half_id="payment-1")
    assert (receipt.resolution, receipt.told, books.rows) == (Resolution.COMMIT, True, ["payment-1"])
    assert [each.body for each in broker.peek("ledger")] == [amount]


@pytest.mark.anyio
async def test_a_payment_is_not_booked(broker: RunningBroker) -> None:
    """No row, no message."""
    books = Books(writes=False)
    async with open_client(broker.url) as client, client.producer("payments", books.check) as producer:
        await producer.send_in_transaction("ledger", 90, books.book)
    assert (broker.depth("ledger"), broker.entities("half")) == (0, [])


@pytest.mark.anyio
@pytest.mark.parametrize("writes", [True, False])
async def test_the_broker_asks_about_a_payment(broker: RunningBroker, writes: bool) -> None:
    """After some seconds without a word the books decide."""
    books = Books(writes)
    async with open_client(broker.url) as client, client.producer("payments", books.check) as producer:
        await producer.send_in_transaction("ledger", 90, books.book_and_die, half_id="payment-1")
        assert broker.depth("ledger") == 0
        broker.clock.advance(10)
        await broker.until(lambda: not broker.entities("half"))
    assert broker.depth("ledger") == len(books.rows)


@pytest.mark.anyio
async def test_a_payment_is_decided_once(broker: RunningBroker) -> None:
    """Who comes later is told how."""
    async with open_client(broker.url) as client, client.producer("payments") as producer:
        half_id = await producer.send_half("ledger", 90, half_id="payment-1")
        await producer.rollback(half_id)
        with pytest.raises(HalfConflict) as caught:
            await producer.commit(half_id)
    assert caught.value.state == "rolled-back"


@pytest.mark.anyio
@pytest.mark.parametrize("readers", [0, 1, 3])
async def test_news_are_for_all(readers: int) -> None:
    """Whoever subscribes before they are sent has them."""
    async with (
        running_broker('[[queue]]\npattern = "news"\nkind = "topic"\n') as broker,
        open_client(broker.url) as client,
    ):
        links = [await client.open_receiver("news") for _ in range(readers)]
        await (await client.open_sender("news")).send("a sale")
        came = await asyncio.gather(*(asyncio.wait_for(each.receive(), 10) for each in links))
    assert [each.body for each in came] == ["a sale"] * readers


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pattern", "wanted"), [("news.*", ["eu"]), ("news.#", ["eu", "eu.north"]), ("news.us", [])]
)
async def test_news_of_a_region(pattern: str, wanted: list[str]) -> None:
    """A pattern says of which; what came while nobody looked waits."""
    kept = Source(address=pattern, durable=2, expiry_policy="never", capabilities=("topic",))
    async with running_broker('[[queue]]\npattern = "news.**"\nkind = "topic"\n') as broker:
        async with open_client(broker.url, container_id="reader") as client:
            await client.open_receiver(pattern, source=kept, name="news")
        async with open_client(broker.url) as client:
            for region in ("eu", "eu.north"):
                await (await client.open_sender(f"news.{region}")).send(region)
        async with open_client(broker.url, container_id="reader") as client:
            reader = await client.open_receiver(pattern, source=kept, name="news")
            came = []
            while received := await reader.receive_now():
                came.append(received.body)
                reader.accept(received)
    assert came == wanted


class TestWithUnittest(BrokerTestCase, unittest.IsolatedAsyncioTestCase):
    """The same broker, without fixtures."""

    async def test_an_order_is_there(self) -> None:
        """Once."""
        async with open_client(self.broker.url) as client:
            await place(client, Order(1))
        self.assertEqual(self.broker.depth("orders"), 1)

    async def test_orders_are_thrown_away(self) -> None:
        """All that nobody holds."""
        async with open_client(self.broker.url) as client:
            await place(client, Order(1), Order(2))
            orders = await client.open_receiver("orders", credit=1)
            await asyncio.wait_for(orders.receive(), 10)
            self.assertEqual(self.broker.purge("orders"), 1)
        self.assertEqual(self.broker.depth("orders"), 1)

    async def test_which_queues_there_are(self) -> None:
        """A queue is made by its first use."""
        async with open_client(self.broker.url) as client:
            for address in ("orders", "returns"):
                await place(client, Order(1), address=address)
        self.assertEqual(sorted(self.broker.queues()), ["orders", "returns"])

    async def test_who_is_connected(self) -> None:
        """By the name that the program gave itself."""
        async with open_client(self.broker.url, container_id="anna"):
            connected = self.broker.entities("connection")
        self.assertEqual([each["container_id"] for each in connected], ["anna"])

    async def test_what_a_customer_said(self) -> None:
        """Frame by frame."""
        async with open_client(self.broker.url, container_id="anna") as client:
            await place(client, Order(1))
        frames = self.broker.trace.of("anna")
        said = [type(each.performative).__name__ for each in frames if each.sender == "C"]
        self.assertEqual(said.count("Transfer"), 1)
        self.assertIn("Detach", said)

    async def test_two_brokers(self) -> None:
        """They know nothing of each other."""
        async with running_broker(faults=ScriptedFaults()) as other, open_client(other.url) as client:
            await place(client, Order(1))
            self.assertEqual((self.broker.queues(), other.queues()), ([], ["orders"]))

    async def test_an_order_comes_later(self) -> None:
        """Until its time nobody sees it."""
        async with open_client(self.broker.url) as client:
            await place(client, Order(1), message_annotations={"x-opt-delivery-delay": 60_000})
        self.assertEqual(self.broker.peek("orders"), [])
        self.broker.clock.advance(61)
        self.assertEqual(len(self.broker.peek("orders")), 1)

    async def test_the_dead_are_sent_back(self) -> None:
        """By hand."""
        async with open_client(self.broker.url) as client:
            await (await client.open_sender("orders")).send(message("shoes"))
            orders = await client.open_receiver("orders")
            orders.reject(await asyncio.wait_for(orders.receive(), 10))
            await self.broker.until(lambda: self.broker.depth("dead-letters") == 1)
            self.broker.ask("REDRIVE", "queue", "dead-letters")
            again = await asyncio.wait_for(orders.receive(), 10)
        self.assertEqual(again.body, "shoes")
