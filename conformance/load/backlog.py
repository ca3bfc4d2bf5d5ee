"""A backlog of millions lives on disk: `python -m amqp_broker.conformance.load.backlog [--count 2000000]`.

Sends durable messages to a queue that nobody reads, then reads them all. It passes when the broker's memory
grew by less than 128 MiB at every moment and every message came once and in order; the exit status is 1
otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.processes import BrokerProcess, resident_kib, running

LIMIT_KIB: Final = 128 * 1_024
WARM_UP: Final = 20_000


class Memory:
    """The most memory that a process had while it was watched, sampled ten times a second."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.most_kib = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.most_kib = max(self.most_kib, resident_kib(self.pid))


def settings(broker: BrokerProcess, count: int, address: str) -> BenchSettings:
    """Durable messages of 100 B."""
    run = random.getrandbits(40)
    return BenchSettings(
        host=broker.host, port=broker.port, address=address, count=count, durable=True, run=run, timeout_s=60
    )


def send(sender: Sender) -> float:
    """Send everything and wait for every outcome; messages a second."""
    begun = time.monotonic()
    while not sender.finished:
        before = sender.settled
        sender.turn()
        if not sender.finished:
            sender.wait(60)
        if sender.settled == before and time.monotonic() - begun > 3_600:
            raise RuntimeError(f"no progress after {sender.settled} outcomes")
    sender.wire.close()
    return sender.settled / (time.monotonic() - begun)


def receive(receiver: Receiver, timeout_s: float = 60) -> float:
    """Receive until everything is there or nothing comes any more; messages a second."""
    begun = moved = time.monotonic()
    while not receiver.finished and time.monotonic() - moved < timeout_s:
        before = receiver.ledger.received
        receiver.turn()
        if receiver.ledger.received != before:
            moved = time.monotonic()
        if not receiver.finished:
            receiver.wait(1)
    receiver.wire.close()
    return receiver.ledger.received / (time.monotonic() - begun)


def main(argv: list[str]) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2_000_000)
    parser.add_argument("--tree", type=Path, help="a compiled copy to run the broker from")
    options = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory() as folder,
        running("--data", f"{folder}/data", tree=options.tree) as broker,
    ):
        warm = settings(broker, WARM_UP, "warm-up")
        send(Sender(warm, 0))
        receive(Receiver(warm, 0))
        before, memory = resident_kib(broker.pid), Memory(broker.pid)
        what = settings(broker, options.count, "backlog")
        with memory.watched():
            sending = send(Sender(what, 0))
            growth = memory.most_kib - before
            print(f"{options.count:,} messages accepted, {sending:,.0f}/s; memory {growth:+,} KiB")
            receiver = Receiver(what, 0)
            receiving = receive(receiver)
        ledger, growth = receiver.ledger, memory.most_kib - before
        print(f"{ledger.received:,} messages received, {receiving:,.0f}/s; memory at most {growth:+,} KiB")
    wrong = ledger.lost + ledger.duplicates + ledger.foreign + ledger.out_of_order
    print(f"lost {ledger.lost}, duplicates {ledger.duplicates}, out of order {ledger.out_of_order}")
    passed = wrong == 0 and growth < LIMIT_KIB
    print("passed" if passed else f"FAILED: expected everything in order within {LIMIT_KIB:,} KiB")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
