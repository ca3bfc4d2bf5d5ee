"""Many half messages due at once: `python -m tests.benchmarks.halves [--halves 100000]`.

Ten groups put them so that all are due at one moment; one connection is asked about them, with a credit of
100 in all, and leaves each unknown. Meanwhile `amqp-broker bench` sends ordinary durable messages, as it did
alone before. Exit status 1 if the memory of the broker grew by more than 64 MiB while it asked, or if the
ordinary traffic had less than half of its rate.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from amqp_broker.conformance.load.processes import Memory
from amqp_broker.frames import Accepted
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from tests.benchmarks.harness import options, sent
from tests.crash.broker_process import BrokerProcess
from tests.support.halves import checker, half, putter

GROUPS = 10
CREDIT = 10  # of each group's link: 100 in all
MOST_GROWTH_MIB = 64.0
LEAST_SHARE = 0.5
PUTS_PER_S = 800  # how fast they are put, about, on a slow machine
BENCH_MESSAGES = 40_000


def bench(port: int) -> float:
    """Durable messages a second of one pair, as `amqp-broker bench` has it."""
    return float(sent(port, "bench", BENCH_MESSAGES, durable=True)["messages_per_second"])


def put_all(port: int, count: int, due_at: float) -> None:
    """Put `count` half messages over all groups, due at one moment of the wall clock."""
    with BlockingPeer.connect("127.0.0.1", port, timeout=60) as connection:
        session = connection.begin()
        links = [putter(session, f"g{number}", "ordered") for number in range(GROUPS)]
        put = 0
        while put < count or any(len(link.settled) < count // GROUPS for link in links):
            while put < count and links[put % GROUPS].may_send:
                first_check_ms = max(1, round((due_at - time.time()) * 1000))
                named = {"half_first_check_ms": first_check_ms}
                links[put % GROUPS].send(half(f"{put}", b"x" * 100, named=named))
                put += 1
            connection.pump(60)
            print(f"\rput {put:,} of {count:,}", end="", file=sys.stderr, flush=True)
        refused = [
            each for link in links for each in link.outcomes.values() if not isinstance(each, Accepted)
        ]
        assert not refused, f"{len(refused)} puts were refused: {refused[0]!r}"
    print(file=sys.stderr)


def answer_all(port: int, count: int, answered: list[int], stop: threading.Event) -> None:
    """Be asked about every one, and leave it unknown."""
    with BlockingPeer.connect("127.0.0.1", port, timeout=60) as connection:
        session = connection.begin()
        links = [checker(session, f"g{number}", credit=CREDIT) for number in range(GROUPS)]
        while answered[0] < count and not stop.is_set():
            try:
                connection.pump(0.2)
            except ConnectionLost:
                return
            for link in links:
                if link.deliveries:
                    asked = [link.deliveries.popleft() for _ in range(len(link.deliveries))]
                    link.settle(asked, Accepted())
                    answered[0] += len(asked)
                    link.flow(CREDIT)


def main() -> int:
    """Run it, print what was found, and judge."""
    count = options(__doc__, halves=100_000).halves
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "data", Path(directory) / "log")
        try:
            port = broker.wait_until_listening()
            due_at = time.time() + 20 + count / PUTS_PER_S
            put_all(port, count, due_at)
            alone = bench(port)
            time.sleep(max(0.0, due_at - time.time()))
            answered, stop = [0], threading.Event()
            asked = threading.Thread(target=answer_all, args=(port, count, answered, stop))
            with Memory(broker.process.pid) as memory:
                asked.start()
                begun = time.monotonic()
                beside = bench(port)
                asked.join(max(0.0, begun + 30 - time.monotonic()))
            rate = answered[0] / (time.monotonic() - begun)
            stop.set()
            asked.join()
        finally:
            broker.kill()
    growth, share = memory.growth_kib / 1_024, beside / alone
    print(f"{count:,} half messages due at once; {answered[0]:,} asked and answered, {rate:,.0f} a second")
    print(f"memory: {memory.before_kib / 1_024:.1f} MiB before, at most +{growth:.1f} MiB while asking")
    print(f"ordinary durable messages: {alone:,.0f} a second alone, {beside:,.0f} beside ({share:.0%})")
    return 0 if growth <= MOST_GROWTH_MIB and share >= LEAST_SHARE and answered[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
