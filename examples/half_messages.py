"""Orders in a database, shipments as half messages: `python examples/half_messages.py`.

A shop writes an order into its own database, and a message to the warehouse follows if and only if the order
is there: the half message is put first, the order is written, and the half message is committed or rolled
back by the state of the order. Two of the shops here are killed in between, one before its order is in the
database and one after: the broker asks (check-back), and who answers looks into the table.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from amqp_broker import Resolution, connect, running_broker
from amqp_broker.client import BlockingTransactionProducer, Half, Receipt

GROUP, SHIPMENTS = "shop", "shipments"
FIRST_CHECK_MS = 200  # 6 s unless the producer or the group says otherwise
TABLE = "CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)"


def say(text: str) -> None:
    """One line at once, from whatever thread."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Shop:
    """A shop with its orders. `stop_at` names the moment at which it waits to be killed."""

    def __init__(self, database: str, stop_at: str = "") -> None:
        self.database = database
        self.stop_at = stop_at
        self.asked: list[str] = []
        self.answered = threading.Event()

    def order(self, producer: BlockingTransactionProducer, order_id: str) -> Receipt:
        """Half message, local transaction, resolution."""

        def local_transaction(half_id: Any) -> Resolution:
            self.reach("before", order_id)
            state = self.decide(order_id, "placed" if order_id != "order-2" else "out of stock")
            self.reach("after", order_id)
            return Resolution.COMMIT if state == "placed" else Resolution.ROLLBACK

        return producer.send_in_transaction(
            SHIPMENTS, f"ship {order_id}", local_transaction, half_id=order_id,
            application_properties={"OrderId": order_id}, first_check_ms=FIRST_CHECK_MS,
        )  # fmt: skip

    def check(self, half: Half) -> Resolution:
        """The checker: what became of an order whose shop did not say."""
        order_id = half.application_properties.get("OrderId")
        if order_id is None:
            return Resolution.ROLLBACK
        try:
            state = self.decide(order_id, "cancelled")
        except sqlite3.OperationalError:  # locked: the shop is at it
            return Resolution.UNKNOWN
        say(f"{order_id}: the broker asks; the table says {state}")
        self.asked.append(order_id)
        self.answered.set()
        return Resolution.COMMIT if state == "placed" else Resolution.ROLLBACK

    def decide(self, order_id: str, state: str) -> str:
        """The state of the order: `state`, unless it has one already. Who is first decides, once: a shop that
        is only slow cannot place an order that the checker has cancelled.
        """
        with closing(sqlite3.connect(self.database, timeout=1)) as database, database:
            database.execute("INSERT OR IGNORE INTO orders VALUES (?, ?)", (order_id, state))
            found = database.execute("SELECT state FROM orders WHERE id = ?", (order_id,)).fetchone()
        return str(found[0])

    def reach(self, moment: str, order_id: str) -> None:
        """Here somebody may pull the plug."""
        if moment == self.stop_at:
            say(f"{order_id}: {moment} the commit of the database")
            sys.stdin.read()


def shop_in_a_process(url: str, database: str, order_id: str, stop_at: str) -> None:
    """A shop without a checker, which is told when to wait for its end."""
    with connect(url) as connection, connection.producer(GROUP) as producer:
        Shop(database, stop_at).order(producer, order_id)


def kill_a_shop(url: str, database: str, order_id: str, stop_at: str) -> None:
    """Runs a shop in a process, and kills it where it stops."""
    command = [sys.executable, __file__, url, database, order_id, stop_at]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shop:
        assert shop.stdin is not None and shop.stdout is not None
        say(shop.stdout.readline().strip())
        shop.kill()
    say(f"{order_id}: its shop was killed")


def main(url: str, database: str) -> None:
    """Four orders: placed, out of stock, and two whose shops die."""
    with closing(sqlite3.connect(database)) as made:
        made.execute(TABLE)
    kill_a_shop(url, database, "order-3", "after")
    kill_a_shop(url, database, "order-4", "before")
    shop = Shop(database)
    with connect(url) as connection, connection.producer(GROUP, shop.check) as producer:
        for order_id in ("order-1", "order-2"):
            receipt = shop.order(producer, order_id)
            say(f"{order_id}: {receipt.resolution.value}, and the broker knows: {receipt.told}")
        warehouse = connection.open_receiver(SHIPMENTS)
        for _ in range(2):
            shipment = warehouse.receive(timeout_s=20)
            say(f"warehouse: {shipment.body}")
            warehouse.accept(shipment)
        while len(shop.asked) < 2:
            shop.answered.wait(20)
            shop.answered.clear()
        assert warehouse.receive_now() is None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shop_in_a_process(*sys.argv[1:])
    else:
        with running_broker() as broker, tempfile.TemporaryDirectory() as directory:
            main(broker.url, str(Path(directory, "orders.sqlite")))
