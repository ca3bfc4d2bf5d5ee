"""`python -m tests.crash.sequenced_kills --kills 200 --seed N`: kill -9 of the broker under streams.

See tests/crash/lives.py; the named points are those before and after the COMMIT of messages and state. The
senders go on in the next life as their kind does (tests/crash/sequenced_traffic.py). At the end each queue is
drained: of every stream each message is there once, and in order.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer
from tests.crash.deaths import Death
from tests.crash.evidence import Record
from tests.crash.lives import command
from tests.crash.sequenced_traffic import KINDS, SequencedSender, StreamHistory
from tests.crash.workload import Workload
from tests.support.broker_clients import body_of, take_everything

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
QUEUES: Final = ("lines", "sheets")
STREAMS: Final = 2 * len(KINDS)


class SequencedWorkload(Workload):
    """Senders that outlive their brokers; in the end everything is acknowledged and drained."""

    name = "streams"
    points = POINTS

    def __init__(self, seed: int, streams: int = STREAMS) -> None:
        self.history = StreamHistory()
        self.complaints: list[str] = []
        self._threads: list[threading.Thread] = []
        self._found: list[tuple[str, int]] = []
        self.senders = [
            SequencedSender(
                f"{KINDS[number % len(KINDS)]}-{number}",
                KINDS[number % len(KINDS)],
                QUEUES[number % len(QUEUES)],
                random.Random(f"{seed} {number}"),
                self.history,
            )
            for number in range(streams)
        ]

    def start(self, port: int, life: int, point: str) -> None:
        """Each sender goes on as its kind does."""
        self._start(port, threading.Event())

    def _start(self, port: int, last: threading.Event) -> None:
        self._threads = [sender.start(port, last) for sender in self.senders]

    def join(self) -> None:
        """What a sender met that was not the end of its broker is a complaint."""
        for thread, sender in zip(self._threads, self.senders, strict=False):
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.complaints.append(f"{sender.name} did not end")
            if sender.problem is not None:
                self.complaints.append(f"{sender.name}: {type(sender.problem).__name__}: {sender.problem}")
                sender.problem = None

    def settle(self, port: int) -> None:
        """Nothing new is sent, and everything is taken."""
        last = threading.Event()
        last.set()
        self._start(port, last)
        self.join()
        for queue in QUEUES:
            found = drain(port, queue)
            self._found += found
            for stream, number in found:
                self.history.record(stream, "drained", queue=queue, number=number)

    def check(self, deaths: Sequence[Death]) -> list[str]:
        """Each message of each stream once, in order."""
        found = list(self.complaints)
        for sender in self.senders:
            if len(sender.outbox):
                found.append(f"{sender.name}: {len(sender.outbox)} messages unacknowledged")
            numbers = [number for name, number in self._found if name == sender.name]
            if numbers != list(range(1, sender.put + 1)):
                found.append(f"{sender.name}: {sender.put} messages became {_shown(numbers)}")
        return found

    def records(self) -> Iterable[Record]:
        """What each sender did and was told."""
        return self.history.records

    def summary(self) -> str:
        """Messages, and what was not heard of."""
        put = sum(sender.put for sender in self.senders)
        unheard = sum(sender.unheard for sender in self.senders)
        return (
            f"{put:,} messages of {len(self.senders)} streams, {unheard} times a sender was left with "
            "some of which it had not heard"
        )


def drain(port: int, queue: str) -> list[tuple[str, int]]:
    """(stream, number) of everything that a queue has, in its order."""
    with BlockingPeer.connect("127.0.0.1", port, container_id=f"drain-{queue}") as connection:
        receiver = connection.begin().attach_receiver("drain", queue)
        found = [body_of(delivery).decode().split(" ") for delivery in take_everything(receiver)]
    return [(name, int(number)) for name, number in found]


def _shown(numbers: list[int]) -> str:
    counts = Counter(numbers)
    twice = sorted(number for number, count in counts.items() if count > 1)[:9]
    missing = [number for number in range(1, max(numbers, default=0)) if number not in counts][:9]
    return f"{len(numbers)}: twice {twice}, missing {missing}, in order {numbers == sorted(numbers)}"


if __name__ == "__main__":
    raise SystemExit(command("tests.crash.sequenced_kills", __doc__, SequencedWorkload, 200))
