"""What a scrape of the metrics costs: `python -m tests.benchmarks.scraping [--queues 10000] [--scrapes 40]`.

processor time of the broker's loop for one scrape, and of that each 15 seconds its share of one core
the longest time for which the loop had no turn for others meanwhile

`--load --rounds 12`: how fast a broker with so many queues is under full load of the C client, in turns with
and without a scrape each second; the ratio of a round is that of its two turns, which change places. A
fifteenth of what is lost is lost to one each 15 seconds. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from amqp_broker.bench.command_line import fresh_run
from amqp_broker.bench.report import combine, is_clean
from amqp_broker.bench.run import measure
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.broker import Broker
from amqp_broker.client import connect
from amqp_broker.configuration import BrokerConfig, BrokerLimits, HttpConfig, ListenerConfig
from amqp_broker.conformance.load.c_client import client_of
from amqp_broker.conformance.load.comparison import interval_of
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.testing.broker_process import running
from tests.benchmarks.console import made as make_queues

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


CONFIGURATION: Final = """
[http]
url = "http://127.0.0.1:0"
[limits]
metrics_interval_ms = 0
"""


@contextmanager
def scraped(url: str, every_s: float) -> Iterator[list[float]]:
    """While the block runs the metrics are asked for; how long each answer took."""
    took: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(every_s):
            begun = time.perf_counter()
            with urllib.request.urlopen(f"{url}/metrics") as response:
                response.read()
            took.append(time.perf_counter() - begun)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def compare(queues: int, rounds: int, messages: int, every_s: float) -> None:
    """Measure, and print it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "broker.toml").write_text(CONFIGURATION)
        client = client_of("rawload", folder)
        with running("--memory", "--config", str(folder / "broker.toml")) as broker:
            assert broker.process.stdout is not None
            http = broker.process.stdout.readline().split()[-1]
            make_queues(broker.url, queues)

            def turn() -> float:
                settings = BenchSettings(host=broker.host, port=broker.port, count=messages, run=fresh_run())
                report = combine(settings, measure(settings, client=client))
                assert is_clean(settings, report), report
                return float(report["messages_per_second"])

            turn()
            rates: dict[bool, list[float]] = {False: [], True: []}
            answers: list[float] = []
            for number in range(rounds):
                for with_scrapes in (False, True) if number % 2 else (True, False):
                    if with_scrapes:
                        with scraped(http, every_s) as took:
                            rates[True].append(turn())
                        answers += took
                    else:
                        rates[False].append(turn())
    ratios = interval_of([a / b for a, b in zip(rates[True], rates[False], strict=True)])
    lost = 1 - ratios.median
    print(
        f"{queues} queues, {rounds} rounds of {messages:,} messages: {statistics.median(rates[False]):,.0f} "
        f"a second without scrapes, with one each {every_s:g} s {ratios.median:.4f} ({ratios.low:.4f} to "
        f"{ratios.high:.4f}) of that; {100 * lost * every_s / EVERY_S:.2f} % lost to one each {EVERY_S:g} s "
        f"(at most {100 * (1 - ratios.low) * every_s / EVERY_S:.2f} %); {len(answers)} answers, "
        f"{1_000 * statistics.median(answers):.0f} ms each"
    )


def main(arguments: Sequence[str]) -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scraping")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--scrapes", type=int, default=20)
    parser.add_argument("--load", action="store_true", help="compare rates under full load instead")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--messages", type=int, default=200_000, help="of each turn")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between scrapes")
    options = parser.parse_args(arguments)
    if options.load:
        compare(options.queues, options.rounds, options.messages, options.every)
        return 0
    for load in (False, True):
        run(options.queues, options.scrapes, load)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
