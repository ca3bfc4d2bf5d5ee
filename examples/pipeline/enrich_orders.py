"""Orders in, invoices out, each exactly once: `python examples/pipeline/enrich_orders.py [URL]`.

A shop writes orders into its database, and a message follows if and only if the order is there (half
messages). A streaming query of Spark looks up the prices and writes an invoice for each order. On the way a
shop dies with two orders in its hands, and the query is killed in the midst of its work and started again. At
the end each committed order has exactly one invoice, in order; else the exit status is 1.

URL is a broker with the settings of broker.toml beside this file; without, one runs in this process. With a
URL a folder (`--folder`) keeps the database and the checkpoint of the query: one for each store of a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker import Resolution, connect, running_broker
from amqp_broker.client import BlockingReceiver, Half, WaitTimeout
from amqp_broker.configuration import ListenerConfig, load_configuration
from amqp_broker.pipeline.checkpoints import read_checkpoint

ORDERS, INVOICES, GROUP = "orders", "invoices", "shop"
COUNT: Final = 120
BATCH: Final = 40
PATIENCE_S: Final = 120
TABLE = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)"
PRICES = "SELECT * FROM VALUES ('boots', 129.00), ('socks', 12.50), ('laces', 4.20) AS prices(item, price)"
ITEMS = ("boots", "socks", "laces")


def say(text: str) -> None:
    """One line at once, from whatever thread."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# --- the query: a program of its own, so that it can be killed


def enrich(url: str, folder: Path) -> None:
    """From each order its invoice, until standard input ends."""
    from pyspark.sql.functions import broadcast

    from amqp_broker.pipeline.session import spark_session

    spark = spark_session("enrich-orders")
    orders = (
        spark.readStream.format("amqp")
        .option("amqp.url", url)
        .option("subscribe", ORDERS)
        .option("subscription", "enrich-orders")
        .option("includeSections", "body")
        .option("maxOffsetsPerTrigger", BATCH)  # several micro-batches, to have a midst to be killed in
        .load()
        .selectExpr(
            "offset", "from_json(CAST(body AS STRING), 'order INT, item STRING, pieces INT') AS wanted"
        )
        .select("offset", "wanted.*")
    )
    # Broadcast: each row stays in its place (a shuffle would mix them). Left: a new item loses no order.
    invoices = orders.join(broadcast(spark.sql(PRICES)), "item", "left").selectExpr(
        "to_json(struct(order, offset, item, pieces * price AS total)) AS body",
        "named_struct('message_id', concat('invoice-', order)) AS properties",
    )
    query = (
        invoices.writeStream.format("amqp")
        .option("amqp.url", url)
        .option("address", INVOICES)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )

    def stop_when_told() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop_when_told, daemon=True).start()
    query.awaitTermination()


class Query:
    """The process of the query, with its JVM."""

    def __init__(self, url: str, folder: Path) -> None:
        self.log = folder / "query.log"
        command = [sys.executable, __file__, "enrich", url, str(folder)]
        with self.log.open("wb") as log:
            # A session of its own: then driver and JVM are one group, and die of one signal.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """No goodbye: SIGKILL for all of it, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        """Let it stop, and wait for that. Raises RuntimeError when it failed."""
        self.process.communicate()
        if self.process.returncode:
            text = self.log.read_text()
            told = [line for line in text.splitlines() if line.startswith("amqp_broker.pipeline.errors.")]
            raise RuntimeError(f"the query failed: {told[-1] if told else text[-3000:]}")


# --- the shop


class Shop:
    """A shop with its database."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder / "orders.sqlite")
        self.asked: set[int] = set()
        self.answered = threading.Event()
        self.rows(TABLE)

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """One transaction."""
        with closing(sqlite3.connect(self.database, timeout=10)) as database, database:
            return database.execute(statement, values).fetchall()

    def decide(self, order: int, state: str) -> Resolution:
        """`state`, unless the order has one already: who is first decides, the shop or the checker."""
        self.rows("INSERT OR IGNORE INTO orders VALUES (?, ?)", order, state)
        [(found,)] = self.rows("SELECT state FROM orders WHERE id = ?", order)
        return Resolution.COMMIT if found == "placed" else Resolution.ROLLBACK

    def check(self, half: Half) -> Resolution:
        """What the broker asks about an order whose shop died."""
        order = int(half.half_id)
        answer = self.decide(order, "cancelled")
        say(f"order {order}: the broker asks, the answer is {answer.value}")
        self.asked.add(order)
        self.answered.set()
        return answer

    def sell(self, url: str, first: int) -> None:
        """Half message, local transaction, resolution; every tenth is out of stock."""
        with connect(url) as connection, connection.producer(GROUP) as producer:
            for order in range(first, first + COUNT):

                def local_transaction(half_id: str) -> Resolution:
                    return self.decide(int(half_id), "out of stock" if int(half_id) % 10 == 0 else "placed")

                producer.send_in_transaction(ORDERS, body_of(order), local_transaction, half_id=str(order))

    def die(self, url: str, first: int) -> None:
        """Two half messages, one order in the table, no resolution, and no more."""
        with connect(url) as connection, connection.producer(GROUP) as producer:
            for order in (first, first + 1):
                producer.send_half(ORDERS, body_of(order), half_id=str(order))
            self.decide(first, "placed")
            say(f"order {first} is in the table and not committed, order {first + 1} is in no table")
            sys.stdin.read()


def body_of(order: int) -> bytes:
    """As JSON."""
    return json.dumps({"order": order, "item": ITEMS[order % 3], "pieces": order % 4 + 1}).encode()


def kill_a_shop(url: str, folder: Path, first: int) -> None:
    """A shop in a process of its own, and its end."""
    command = [sys.executable, __file__, "die", url, str(folder), str(first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shop:
        assert shop.stdout is not None
        say(f"{shop.stdout.readline().strip()}: the shop is killed")
        shop.kill()


# --- the whole


def take(clerk: BlockingReceiver, count: int, query: Query) -> list[Any]:
    """So many invoices. Raises RuntimeError when the query ends instead, WaitTimeout."""
    invoices: list[Any] = []
    waited_s = 0
    while len(invoices) < count:
        try:
            received = clerk.receive(timeout_s=1)
        except WaitTimeout:
            waited_s += 1
            if query.process.poll() is not None:
                query.end()
            if waited_s == PATIENCE_S:
                raise
            continue
        waited_s = 0
        invoices.append(json.loads(received.body))
        clerk.accept(received)
    return invoices


def judge(placed: list[int], invoices: list[Any]) -> int:
    """Whether each order that is placed has exactly one invoice, in the order of the queue: 0, else 1."""
    found = [invoice["order"] for invoice in invoices]
    places = [invoice["offset"] for invoice in invoices]
    missing, more = len(set(placed) - set(found)), len(found) - len(set(found) & set(placed))
    order = "in order" if places == sorted(places) else "NOT in order"
    say(f"{len(placed)} orders placed, {len(found)} invoices: {missing} missing, {more} too many, {order}")
    return 0 if missing == more == 0 and order == "in order" else 1


def run(url: str, folder: Path) -> int:
    """The exit status."""
    shop, query = Shop(folder), Query(url, folder)
    [(last,)] = shop.rows("SELECT coalesce(max(id), 0) FROM orders")
    first = last + 1
    try:
        with connect(url) as connection, connection.producer(GROUP, shop.check):
            kill_a_shop(url, folder, first)
            shop.sell(url, first + 2)
            while not shop.asked >= {first, first + 1} and shop.answered.wait(PATIENCE_S):
                shop.answered.clear()
            rows = shop.rows("SELECT id FROM orders WHERE state = 'placed' AND id >= ?", first)
            placed = [order for (order,) in rows]
            kitchen = connection.open_receiver(ORDERS, credit=50)
            for _ in placed:
                kitchen.accept(kitchen.receive(timeout_s=PATIENCE_S))
            say(f"{COUNT + 2} orders, {len(placed)} of them placed: the kitchen has them, the queue is empty")
            clerk = connection.open_receiver(INVOICES, credit=100)
            invoices = take(clerk, len(placed) // 3, query)
            query.kill()
            state = read_checkpoint(folder / "checkpoint")
            assert state is not None
            say(f"{len(invoices)} invoices came; the query is killed, and started again")
            say(f"(by its checkpoint {state.planned + 1} batches were begun, {state.done + 1} were done)")
            query = Query(url, folder)
            invoices += take(clerk, len(placed) - len(invoices), query)
            query.end()
            while (received := clerk.receive_now()) is not None:
                invoices.append(json.loads(received.body))
                clerk.accept(received)
    finally:
        query.kill()
    return judge(placed, invoices)


def main() -> int:
    """With the broker and the folder that were asked for."""
    options = argparse.ArgumentParser(description="orders in, invoices out, each exactly once")
    options.add_argument("url", nargs="?", help="a broker; without one it runs here, in memory")
    options.add_argument("--folder", help="database and checkpoint (default enrich-orders, with URL)")
    chosen = options.parse_args()
    with ExitStack() as stack:
        if chosen.url:
            folder = Path(chosen.folder or "enrich-orders").resolve()
            folder.mkdir(parents=True, exist_ok=True)
            return run(chosen.url, folder)
        config = attrs.evolve(
            load_configuration(Path(__file__).with_name("broker.toml")),
            memory=True,
            listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),),
        )
        broker = stack.enter_context(running_broker(config))
        say(f"the broker listens on {broker.url}")
        return run(broker.url, Path(stack.enter_context(tempfile.TemporaryDirectory())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["enrich"]:
        enrich(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["die"]:
        Shop(Path(sys.argv[3])).die(sys.argv[2], int(sys.argv[4]))
    else:
        sys.exit(main())
