"""A shop's day in a few seconds: orders in every way that this broker takes them, and their consumers.

Some orders come in the order of a stream, some as half messages of which a few are forgotten by their shop
and asked about; a consumer accepts, gives back, and rejects now and then.
"""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Final, Self

from amqp_broker import Resolution, connect
from amqp_broker.client import Half, OutgoingMessage, ReceivedMessage, WaitTimeout, message
from amqp_broker.frames import Error as WireError
from amqp_broker.frames import Modified, Rejected, Released
from amqp_broker.pipeline.history_file import HistoryWriter

ORDERS: Final = "orders"
INVOICES: Final = "invoices"
GROUP: Final = "shop"
CONFIGURATION: Final = """\
[[queue]]
pattern = "orders"
retention_ms = 86400000
events = true

[[queue]]
pattern = "invoices"
retention_ms = 86400000
events = true
"""
"""What a broker needs to be watched: queues that keep what was consumed, and that log events."""

FORGOTTEN_EVERY: Final = 40
ROLLED_BACK_EVERY: Final = 7
PATIENCE_S: Final = 120.0


class Shop:
    """Sends orders, and is asked about those that it forgets for as long as it is open."""

    def __init__(self, url: str, history: HistoryWriter) -> None:
        self._connection = connect(url)
        self._history = history
        self._forgotten: set[str] = set()
        self._producer = self._connection.producer(GROUP, self._check)

    def __enter__(self) -> Self:
        self._producer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._producer.close()
        finally:
            self._connection.close()

    def send(self, count: int, first: int = 1) -> int:
        """Send `count` orders, numbered from `first` on: four of five in the order of a stream, the others as
        half messages. Returns how many of them become available, sooner or later.
        """
        streamed = range(first, first + count - count // 5)
        halves = range(streamed.stop, first + count)
        self._connection.open_sender(ORDERS).send_many(self._streamed(number, first) for number in streamed)
        for number in streamed:
            self._note("accepted", number)
        for number in halves:
            self._send_half(f"order-{number}", number)
        return count - sum(_is_rolled_back(number) for number in halves)

    def _streamed(self, number: int, first: int) -> OutgoingMessage:
        """The sequence is named by its first order."""
        before = number - first
        place = {"seq_stream": "till 1", "seq_id": first, "seq_no": before + 1, "seq_prev": before}
        self._note("sent", number, producer="till 1", number=number)
        return message(_body(number), message_id=f"order-{number}", application_properties=place)

    def _send_half(self, half_id: str, number: int) -> None:
        """What is rolled back counts as refused, and what was forgotten has no answer."""
        forgets = number % FORGOTTEN_EVERY == 0
        if forgets:
            self._forgotten.add(half_id)
        self._note("sent", number)
        first_check_ms = 300 if forgets else 6_000  # a shop that is only slow is not asked at once
        self._producer.send_half(ORDERS, _body(number), half_id=half_id, first_check_ms=first_check_ms)
        self._history.record("half_accepted", group=GROUP, half_id=half_id)
        if _is_rolled_back(number):
            self._producer.rollback(half_id, "out of stock")
            self._history.record("resolve_accepted", group=GROUP, half_id=half_id, word="rollback")
            self._note("refused", number)
        elif not forgets:
            self._producer.commit(half_id)
            self._history.record("resolve_accepted", group=GROUP, half_id=half_id, word="commit")
            self._note("accepted", number)

    def _note(self, kind: str, order: int, **fields: Any) -> None:
        self._history.record(kind, address=ORDERS, message_id=f"order-{order}", link="shop/out", **fields)

    def _check(self, half: Half) -> Resolution:
        """What became of an order: the shop looks into its books."""
        return Resolution.COMMIT if str(half.half_id) in self._forgotten else Resolution.UNKNOWN


def _body(number: int) -> bytes:
    return json.dumps({"order": number, "pairs": number % 4 + 1}).encode()


def _is_rolled_back(number: int) -> bool:
    return number % ROLLED_BACK_EVERY == 0 and number % FORGOTTEN_EVERY != 0


class Consumer(threading.Thread):
    """Takes everything from an address until it is told to stop; `done` counts what it was the end of, and
    `bodies` are theirs, each once.
    """

    def __init__(self, url: str, address: str, history: HistoryWriter | None = None) -> None:
        super().__init__(name=f"consumer of {address}", daemon=True)
        self.done = 0
        self.bodies: set[str] = set()
        self.error: Exception | None = None
        self._url = url
        self._address = address
        self._history = history
        self._enough = threading.Event()
        self._moved = threading.Condition()

    def run(self) -> None:
        """Receive and settle."""
        try:
            with connect(self._url) as connection:
                receiver = connection.open_receiver(self._address, credit=100)
                seen = 0
                while not self._enough.is_set():
                    try:
                        received = receiver.receive(timeout_s=0.2)
                    except WaitTimeout:
                        continue
                    seen += 1
                    if self._settle(receiver, received, seen):
                        with self._moved:
                            self.bodies.add(repr(received.body))
                            self.done += 1
                            self._moved.notify_all()
        except Exception as error:
            with self._moved:
                self.error = error
                self._moved.notify_all()

    def _settle(self, receiver: Any, received: ReceivedMessage, seen: int) -> bool:
        """Every 30th comes again, every 97th is refused; whether this was its end."""
        again = (received.header.delivery_count or 0) > 0
        self._note("received", received)
        if seen % 30 == 0 and not again:
            self._note("released", received)
            receiver.settle(received, Modified(delivery_failed=True) if seen % 60 == 0 else Released())
            return False
        self._note("accept_sent", received)
        if seen % 97 == 0:
            error = WireError(condition="amqp:precondition-failed", description="no such customer")
            receiver.settle(received, Rejected(error=error))
        else:
            receiver.accept(received)
        return True

    def _note(self, kind: str, received: ReceivedMessage) -> None:
        if self._history is not None:
            self._history.record(
                kind, address=self._address, message_id=str(received.properties.message_id),
                link=f"{self._address}/in",
            )  # fmt: skip

    def wait_for(self, count: int) -> None:
        """Until this many have come to their end. Raises what went wrong, TimeoutError when for PATIENCE_S
        nothing came.
        """
        before = -1
        with self._moved:
            while self.done < count and before < self.done and self.error is None:
                before = self.done
                self._moved.wait_for(lambda: self.done >= count or self.error is not None, PATIENCE_S)
        if self.error is not None:
            raise self.error
        if self.done < count:
            raise TimeoutError(
                f"{self._address}: {self.done} of {count} came, then nothing for {PATIENCE_S:.0f} s"
            )

    def end(self) -> None:
        """No more."""
        self._enough.set()
        self.join()
