"""The program under test: a shop places orders, a warehouse packs them, a bill is written for each.

What a user of python-qpid-proton would write: its blocking connection, and for transactions its reactor.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from proton import Condition, Delivery, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException

TIMEOUT_S = 20
NOT_TAKEN = [Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]


def opened(url: str, name: str | None = None) -> Any:
    """A connection; whoever opens it closes it."""
    options: dict[str, Any] = {"container_id": name} if name else {}
    return BlockingConnection(url, timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS", **options)


class Refused(Exception):
    """The broker does not take an order."""


class Shop:
    """Places orders. One that is released or modified is tried `tries` times in all."""

    def __init__(self, url: str, address: str = "orders", backup: str | None = None, tries: int = 1) -> None:
        self._tries = tries
        self._connection = opened(url)
        try:
            self.address = address
            self._sender = self._connection.create_sender(address)
        except LinkDetached:
            if backup is None:
                raise
            self.address = backup
            self._sender = self._connection.create_sender(backup)

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def place(self, number: int, item: str = "shoes", quantity: int = 1, **fields: Any) -> None:
        """One order; Refused where nobody takes it."""
        self.say(Message(
            id=f"order-{number}", subject=item, body={"item": item, "quantity": quantity}, durable=True,
            properties={"item": item, "quantity": quantity}, **fields,
        ))  # fmt: skip

    def say(self, message: Message, timeout_s: float = TIMEOUT_S) -> None:
        """Anything."""
        for left in reversed(range(self._tries)):
            try:
                delivery = self._sender.send(message, timeout=timeout_s, error_states=NOT_TAKEN)
            except SendException as error:
                if error.state == Delivery.REJECTED or not left:
                    raise Refused(str(error.state)) from error
            else:
                assert delivery.remote_state == Delivery.ACCEPTED
                return


def later(milliseconds: int) -> dict[Any, int]:
    """The annotation of an order that comes later."""
    return {symbol("x-opt-delivery-delay"): milliseconds}


class Warehouse:
    """Packs what is ordered as long as there is some; an order that comes twice it packs once."""

    def __init__(self, url: str, stock: dict[str, int], address: str = "orders", selector: str = "") -> None:
        self.stock = stock
        self.packed: list[str] = []
        self._connection = opened(url)
        options = Selector(selector) if selector else None
        self._orders = self._connection.create_receiver(address, options=options)

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def take(self) -> Message:
        """The next order, about which something has to be said."""
        order: Message = self._orders.receive(timeout=TIMEOUT_S)
        return order

    def work(self, count: int) -> None:
        """That many deliveries."""
        for _ in range(count):
            self._handle(self.take())

    def _handle(self, order: Message) -> None:
        body = order.body
        if not isinstance(body, dict) or not isinstance(body.get("item"), str) or body.get("quantity", 0) < 1:
            delivery = self._orders.fetcher.unsettled[0]
            delivery.local.condition = Condition("shop:no-order", "an order has an item and a quantity")
            self._orders.settle(Delivery.REJECTED)
        elif order.id in self.packed:
            self._orders.accept()
        elif self.stock.get(body["item"], 0) < body["quantity"]:
            self._orders.fetcher.unsettled[0].local.failed = True
            self._orders.settle(Delivery.MODIFIED)
        else:
            self.stock[body["item"]] -= body["quantity"]
            self.packed.append(str(order.id))
            self._orders.accept()


class Quotes:
    """Says prices to whoever asks, in a thread of its own, until it is told that the shop closes."""

    def __init__(self, url: str, prices: dict[str, int]) -> None:
        self._url = url
        self._prices = prices
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Quotes:
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        closing = opened(self._url)
        closing.create_sender("quotes").send(Message(body="closed"))
        closing.close()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        connection = opened(self._url)
        questions, answers = connection.create_receiver("quotes"), connection.create_sender(None)
        self._ready.set()
        while (question := questions.receive(timeout=TIMEOUT_S)).reply_to:
            price = self._prices.get(question.body, -1)
            asked = question.correlation_id
            answers.send(Message(address=question.reply_to, correlation_id=asked, body=price))
            questions.accept()
        questions.accept()
        connection.close()


class Billing(MessagingHandler, TransactionHandler):
    """Takes `count` orders and writes a bill for each, both in one transaction; some it gives back."""

    def __init__(self, url: str, count: int, gives_back: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._left = count
        self._gives_back = gives_back

    def run(self) -> None:
        """Returns when all of them are done."""
        Container(self).run()

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS", reconnect=False)
        self._orders = event.container.create_receiver(self._connection, "orders")
        self._bills = event.container.create_sender(self._connection, "bills")
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._orders.flow(1)

    def on_message(self, event: Any) -> None:
        self._transaction.send(self._bills, Message(body=f"bill of {event.message.id}", durable=True))
        self._transaction.accept(event.delivery)
        if self._gives_back:
            self._transaction.abort()
        else:
            self._transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self._next()

    def on_transaction_aborted(self, event: Any) -> None:
        self._next()

    def _next(self) -> None:
        self._left -= 1
        if self._left:
            self._container.declare_transaction(self._connection, handler=self)
        else:
            self._connection.close()
