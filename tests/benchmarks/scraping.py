"""What a scrape of the metrics costs: `python -m tests.benchmarks.scraping [--queues 10000] [--scrapes 40]`.

processor time of the broker's loop for one scrape, and of that each 15 seconds its share of one core
the longest time for which the loop had no turn for others meanwhile
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence

import trio

from amqp_broker.broker import Broker
from amqp_broker.client import connect
from amqp_broker.configuration import BrokerConfig, BrokerLimits, HttpConfig, ListenerConfig
from amqp_broker.embedding import RunningBroker, running_broker

EVERY_S = 15.0  # what Prometheus does unless it is told otherwise


def made(broker: RunningBroker, count: int) -> None:
    """So many queues, with a message in each tenth."""

    async def make(inner: Broker) -> None:
        for number in range(count):
            await inner.nodes.queues.create(f"queue.{number}")

    broker.call(make)
    with connect(broker.url) as client:
        for number in range(0, count, 10):
            sender = client.open_sender(f"queue.{number}")
            sender.send(b"x")
            sender.close()


def run(queues: int, scrapes: int, load: bool) -> None:
    """Measure, and print it."""
    config = BrokerConfig(
        memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),),
        http=HttpConfig(url="http://127.0.0.1:0"), limits=BrokerLimits(metrics_interval_ms=0),
    )  # fmt: skip
    with running_broker(config) as broker:
        made(broker, queues)
        url = broker.call(lambda inner: inner.http_url)
        stop = threading.Event()
        loaders = [threading.Thread(target=_load, args=(broker.url, stop)) for _ in range(2 if load else 0)]
        for loader in loaders:
            loader.start()
        worked, gaps = [], []
        for _ in range(scrapes):
            gap = threading.Thread(target=lambda: gaps.append(broker.call(_longest_gap)))
            gap.start()
            time.sleep(0.05)
            with urllib.request.urlopen(f"{url}/metrics") as response:
                size = len(response.read())
            gap.join()
            worked.append(broker.call(lambda inner: _worked_s(url)))
            time.sleep(0.1)
        stop.set()
        for loader in loaders:
            loader.join()
    seconds = statistics.median(worked)
    print(
        f"{queues} queues, {'under load' if load else 'at rest'}: {size} octets, "
        f"{1_000 * seconds:.1f} ms of the loop (median of {scrapes}), "
        f"{100 * seconds / EVERY_S:.2f} % of a core each {EVERY_S:.0f} s; "
        f"longest gap of the loop {1_000 * statistics.median(gaps):.1f} ms"
    )


async def _worked_s(url: str) -> float:
    """What the last scrape took, as the next one tells it."""

    def ask() -> float:
        with urllib.request.urlopen(f"{url}/metrics") as response:
            for line in response.read().decode().splitlines():
                if line.startswith("amqp_scrape_seconds "):
                    return float(line.split()[1])
        raise AssertionError("it is told")

    return await trio.to_thread.run_sync(ask)


async def _longest_gap(_: Broker) -> float:
    """For how long this task waited for its turn, at most, within a third of a second."""
    longest, end = 0.0, trio.current_time() + 0.35
    before = time.perf_counter()
    while trio.current_time() < end:
        await trio.sleep(0.0005)
        now = time.perf_counter()
        longest, before = max(longest, now - before - 0.0005), now
    return longest


def _load(url: str, stop: threading.Event) -> None:
    with connect(url) as client:
        sender = client.open_sender("queue.1")
        while not stop.is_set():
            sender.send_many([b"x" * 100] * 500)


def main(arguments: Sequence[str]) -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scraping")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--scrapes", type=int, default=20)
    options = parser.parse_args(arguments)
    for load in (False, True):
        run(options.queues, options.scrapes, load)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
