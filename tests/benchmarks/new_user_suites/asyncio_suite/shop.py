"""The program under test, of asyncio: customers place orders and ask for prices, a service fulfils them.

What a user of `amqp_broker.client` would write; nothing in it knows that it is tested.
"""

from __future__ import annotations

import asyncio
from typing import Any

import attrs

from amqp_broker import message, open_client
from amqp_broker.client import Client, ConnectFailed, Gone, MessageRefused, OutcomeUnknown, ReceivedMessage
from amqp_broker.frames import Rejected

TIMEOUT_S = 20


class NotPlaced(Exception):
    """An order that nobody has taken."""


class OutOfStock(Exception):
    """An order that may be fulfilled later."""


class NoOrder(Exception):
    """A message that never will be."""


@attrs.frozen
class Order:
    """What somebody wants."""

    number: int
    item: str = "shoes"
    quantity: int = 1

    def message(self, **fields: Any) -> Any:
        """As it is sent."""
        return message(
            {"item": self.item, "quantity": self.quantity},
            application_properties={"item": self.item, "quantity": self.quantity},
            message_id=f"order-{self.number}", subject=self.item, **fields,
        )  # fmt: skip

    @classmethod
    def of(cls, received: ReceivedMessage) -> Order:
        """Out of what came. Raises NoOrder."""
        try:
            number = int(str(received.properties.message_id).removeprefix("order-"))
            order = cls(number, received.body["item"], received.body["quantity"])
        except (TypeError, KeyError, ValueError) as error:
            raise NoOrder(f"an order has a number, an item and a quantity: {error!r}") from error
        if not isinstance(order.quantity, int) or order.quantity < 1:
            raise NoOrder("an order is for at least one")
        return order


async def place(client: Client, *orders: Order, address: str = "orders", **fields: Any) -> None:
    """One after the other; each is accepted when this returns."""
    sender = await client.open_sender(address)
    for order in orders:
        await sender.send(order.message(**fields))
    sender.close()


async def place_reliably(url: str, order: Order, tries: int = 4) -> int:
    """Whatever happens to the connection; with which try it went. Raises NotPlaced."""
    for attempt in range(1, tries + 1):
        try:
            async with open_client(url) as client:
                await place(client, order)
                return attempt
        except MessageRefused as refused:
            if isinstance(refused.outcome, Rejected):
                raise NotPlaced(str(refused)) from refused
        except (OutcomeUnknown, Gone, ConnectFailed):
            continue
    raise NotPlaced(f"{tries} tries")


async def price_of(client: Client, item: str) -> int:
    """Asked of the service; the answer comes to a queue of our own."""
    answers = await client.open_receiver(None)
    questions = await client.open_sender("prices")
    await questions.send(message(item, reply_to=answers.address, correlation_id=item))
    answer = await asyncio.wait_for(answers.receive(), TIMEOUT_S)
    answers.accept(answer)
    answers.close()
    assert answer.properties.correlation_id == item
    return int(answer.body)


class Service:
    """Fulfils orders and says prices until it is cancelled; it comes back when its connection is lost."""

    def __init__(
        self, url: str, stock: dict[str, int], prices: dict[str, int] | None = None, name: str = "service"
    ) -> None:
        self.stock = stock
        self.fulfilled: list[int] = []
        self.connections = 0
        self._prices = prices or {}
        self._url = url
        self._name = name

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                async with open_client(self._url, container_id=self._name) as client:
                    self.connections += 1
                    await asyncio.gather(self._fulfil(client), self._answer(client))
            except (Gone, ConnectFailed):
                continue

    async def _fulfil(self, client: Client) -> None:
        orders, parcels = await client.open_receiver("orders", credit=5), await client.open_sender("parcels")
        async for received in orders:
            try:
                order = Order.of(received)
                if order.number not in self.fulfilled:
                    self._take(order)
                    await parcels.send(message(order.item, correlation_id=f"order-{order.number}"))
                    self.fulfilled.append(order.number)
            except NoOrder as error:
                orders.reject(received, "shop:no-order", str(error))
            except OutOfStock:
                orders.modify(received)
            else:
                orders.accept(received)

    def _take(self, order: Order) -> None:
        if self.stock.get(order.item, 0) < order.quantity:
            raise OutOfStock(order.item)
        self.stock[order.item] -= order.quantity

    async def _answer(self, client: Client) -> None:
        questions, answers = await client.open_receiver("prices"), await client.open_sender(None)
        async for question in questions:
            fields = question.properties
            price = self._prices.get(question.body, -1)
            await answers.send(message(price, to=fields.reply_to, correlation_id=fields.correlation_id))
            questions.accept(question)
