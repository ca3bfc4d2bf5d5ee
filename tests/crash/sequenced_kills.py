"""`python -m tests.crash.sequenced_kills --kills 200 --seed N`: kill -9 of the broker under streams.

Half of the lives end at a named point before or after the COMMIT of messages and state, the others at any
moment. The senders go on in the next life as their kind does (tests/crash/sequenced_traffic.py). At the end
each queue is drained: of every stream each message is there once, and in order.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from amqp_broker.frames import Accepted
from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE
from amqp_broker.persistence.sqlite import check_directory
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.deaths import died_at_a_point
from tests.crash.sequenced_traffic import KINDS, SequencedSender
from tests.support.broker_clients import body_of
from tests.support.wire_client import WireConnection

POINTS: Final = (
    "apply.begun",
    "advance.before_streams",
    "advance.after_streams",
    "advance.before_commit",
    "commit.before",
    "commit.after",
    "advance.after_commit",
    "discharge.after_posts",
    "discharge.before_commit",
    "discharge.after_commit",
)
QUEUES: Final = ("orders", "invoices")
MOST_PASSES: Final = 12
MAX_SECONDS_OF_TRAFFIC: Final = 0.5
SECONDS_TO_REACH: Final = 30.0
JOIN_SECONDS: Final = 60.0


class Lives:
    """One data directory, and the senders that outlive its brokers."""

    def __init__(self, directory: Path, seed: int, streams: int = len(KINDS)) -> None:
        self.directory = directory
        self.complaints: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.senders = [
            SequencedSender(
                f"{KINDS[number % len(KINDS)]}-{number}",
                KINDS[number % len(KINDS)],
                QUEUES[number % len(QUEUES)],
                random.Random(f"{seed} {number}"),
            )
            for number in range(streams)
        ]

    def live(self, point: str, passes: int, seconds: float) -> None:
        """A life that ends at a pass of a point, or, without one, after some seconds."""
        environment = {ENVIRONMENT_VARIABLE: f"{point}:{passes}"} if point else {}
        with BrokerProcess(
            self.directory / "data", self.directory / "broker.log", environment=environment
        ) as broker:
            try:
                port = broker.wait_until_listening()
            except NotListening as error:
                if not died_at_a_point(broker):
                    self.complaints.append(str(error))
                return
            threads = self._start(port, threading.Event())
            deadline = time.monotonic() + (SECONDS_TO_REACH if point else seconds)
            while broker.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            if died_at_a_point(broker):
                self.deaths[point] += 1
            broker.kill()
            self._join(threads)

    def finish(self) -> list[str]:
        """The last life: everything is acknowledged, drained and looked at. All complaints."""
        with BrokerProcess(self.directory / "data", self.directory / "broker.log") as broker:
            port = broker.wait_until_listening()
            last = threading.Event()
            last.set()
            self._join(self._start(port, last))
            for sender in self.senders:
                if len(sender.outbox):
                    self.complaints.append(f"{sender.name}: {len(sender.outbox)} messages unacknowledged")
            found = [body for queue in QUEUES for body in drain(port, queue)]
            status = broker.stop()
            if status:
                self.complaints.append(f"a clean stop ended with {status}; {broker.log_tail()}")
        self.complaints += [f"checker: {words}" for words in check_directory(self.directory / "data")]
        for sender in self.senders:
            numbers = [int(number) for name, number in found if name == sender.name]
            if numbers != list(range(1, sender.put + 1)):
                self.complaints.append(f"{sender.name}: {sender.put} messages became {_shown(numbers)}")
        return self.complaints

    def _start(self, port: int, last: threading.Event) -> list[threading.Thread]:
        return [sender.start(port, last) for sender in self.senders]

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread, sender in zip(threads, self.senders, strict=True):
            thread.join(JOIN_SECONDS)
            if thread.is_alive():
                self.complaints.append(f"{sender.name} did not end")
            if sender.problem is not None:
                self.complaints.append(f"{sender.name}: {type(sender.problem).__name__}: {sender.problem}")
                sender.problem = None


def drain(port: int, queue: str) -> list[tuple[str, str]]:
    """(stream, number) of everything that a queue has, in its order."""
    found: list[tuple[str, str]] = []
    with WireConnection.connect("127.0.0.1", port, container_id=f"drain-{queue}") as connection:
        receiver = connection.begin().attach_receiver("drain", queue)
        while True:
            receiver.flow(1_000, drain=True)
            connection.pump_until(lambda: receiver.credit == 0, JOIN_SECONDS)
            if not receiver.deliveries:
                return found
            deliveries = list(receiver.deliveries)
            receiver.deliveries.clear()
            for delivery in deliveries:
                name, number = body_of(delivery).decode().split(" ")
                found.append((name, number))
            receiver.settle(deliveries, Accepted())


def _shown(numbers: list[int]) -> str:
    counts = Counter(numbers)
    twice = sorted(number for number, count in counts.items() if count > 1)[:9]
    missing = [number for number in range(1, max(numbers, default=0)) if number not in counts][:9]
    return f"{len(numbers)}: twice {twice}, missing {missing}, in order {numbers == sorted(numbers)}"


def run_kills(directory: Path, kills: int, seed: int, streams: int = len(KINDS)) -> tuple[list[str], str]:
    """The complaints after so many kills, and a line that says what happened."""
    chance = random.Random(seed)
    lives = Lives(directory, seed, streams)
    begun = time.monotonic()
    for number in range(kills):
        point = POINTS[number // 2 % len(POINTS)] if number % 2 == 0 else ""
        lives.live(point, chance.randint(1, MOST_PASSES), chance.uniform(0, MAX_SECONDS_OF_TRAFFIC))
        if lives.complaints:
            break
    complaints = lives.finish()
    put = sum(sender.put for sender in lives.senders)
    unheard = sum(sender.unheard for sender in lives.senders)
    line = (
        f"{kills} kills in {time.monotonic() - begun:.0f} s: {put:,} messages of {len(lives.senders)} "
        "streams, "
        f"{unheard} times a sender was left with some of which it had not heard, deaths at points "
        f"{dict(lives.deaths)}; {len(complaints)} complaints, seed {seed}"
    )
    return complaints, line


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.sequenced_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--streams", type=int, default=2 * len(KINDS))
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with TemporaryDirectory(prefix="sequenced-kills-") as directory:
        complaints, line = run_kills(Path(directory), options.kills, options.seed, options.streams)
    for complaint in complaints:
        print(complaint)
    print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
