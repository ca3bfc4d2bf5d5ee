"""Sequenced streams, over lives of brokers that end before and after the COMMIT of messages and state, too.

The senders go on in the next life as their kind does (tests/crash/sequenced_traffic.py). At the end each
queue is drained: of every stream each message is there once, and in order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.crash.deaths import Death, points_of
from tests.crash.evidence import Record
from tests.crash.history import Notes
from tests.crash.sequenced_traffic import KINDS, SequencedClient, SequencedSender
from tests.crash.workload import Workload, drain
from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate

QUEUES: Final = ("lines", "sheets")
STREAMS: Final = 2 * len(KINDS)


class Sequences(Workload):
    """Senders that outlive their brokers; in the end everything is acknowledged and drained."""

    name = "streams"
    points = (
        *points_of("advance", "commit"),
        "apply.begun",
        "discharge.after_posts",
        "discharge.before_commit",
        "discharge.after_commit",
    )

    def __init__(self, seed: int, streams: int = STREAMS) -> None:
        super().__init__()
        self.history = Notes()
        self._delivered: dict[str, list[str]] = {}
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

    def made_clients(self, port: int, life: int, end: str) -> list[SequencedClient]:
        """Each sender goes on."""
        return self._made_clients(port, threading.Event())

    def _made_clients(self, port: int, last: threading.Event) -> list[SequencedClient]:
        return [SequencedClient(sender, port, last) for sender in self.senders]

    def recorded(self) -> int:
        """What was sent and told."""
        return len(self.history.records)

    def settle(self, port: int, life: int) -> None:
        """Nothing new is sent, and everything is taken."""
        last = threading.Event()
        last.set()
        self.run(self._made_clients(port, last))
        self.join()
        for queue in QUEUES:
            rows = self._delivered[queue] = drain(port, queue)
            for row in rows:
                stream, number = row.split(" ")
                self.history.record(stream, "drained", queue=queue, number=int(number))

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """Each message of each stream once, in order."""
        left = [sender for sender in self.senders if len(sender.outbox)]
        found = [f"{sender.name}: {len(sender.outbox)} messages unacknowledged" for sender in left]
        for queue, rows in self._delivered.items():
            promises = [
                Promise(row, [row], Fate.COMMITTED, line=sender.name)
                for sender in self.senders
                if sender.queue == queue
                for row in (f"{sender.name} {number}" for number in range(1, sender.put + 1))
            ]
            found += check_delivered(queue, rows, promises)
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
