"""What is seen of a broker during a soak: its process, its store, what lives in it, and how long it takes."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Final

from amqp_broker.client import connect
from amqp_broker.conformance.load.processes import resident_kib
from amqp_broker.management.command import Asker
from tests.soak.ground import Ground
from tests.soak.verdict import RULES

PROBES_A_SECOND: Final = 5
KINDS: Final = ("connection", "session", "link", "transaction", "subscription", "half", "set")
"""Types of `$management` whose entities end with their clients, or a little later."""


def live(asker: Asker) -> dict[str, int]:
    """How many there are of each kind; of queues only those that are temporary."""
    found = {kind: len(asker.all(kind, "identity")[1]) for kind in KINDS}
    names, rows = asker.all("queue", "temporary")
    found["temporary queue"] = sum(bool(row[names.index("temporary")]) for row in rows)
    return found


class Probe(threading.Thread):
    """A small message to a queue of its own and back, some times a second."""

    def __init__(self, url: str) -> None:
        super().__init__(name="probe", daemon=True)
        self.url = url
        self.problem: Exception | None = None
        self._took: list[float] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Until `end`."""
        try:
            with connect(self.url, container_id="probe") as client:
                sender, receiver = client.open_sender("probe"), client.open_receiver("probe")
                while not self._over.wait(1 / PROBES_A_SECOND):
                    begun = time.perf_counter()
                    sender.send(b"probe")
                    receiver.accept(receiver.receive(60))
                    self._took.append(1_000 * (time.perf_counter() - begun))
        except Exception as error:
            self.problem = error

    def taken(self) -> list[float]:
        """Milliseconds of each round since the last call."""
        took, self._took = self._took, []
        return took

    def end(self) -> None:
        """No more of them."""
        self._over.set()
        self.join()


class Sampler:
    """A row of figures whenever it is asked for one."""

    def __init__(self, ground: Ground, asker: Asker, probe: Probe) -> None:
        self.times: list[float] = []
        self.figures: dict[str, list[float | None]] = {rule.figure: [] for rule in RULES}
        self._ground = ground
        self._asker = asker
        self._probe = probe
        self._process = Path(f"/proc/{ground.process.pid}")

    def sample(self) -> None:
        """One more row."""
        at = time.monotonic()
        row: dict[str, float | None] = {**self._of_process(), "store": self._store(), **self._inside()}
        took = sorted(self._probe.taken())
        row["latency p50"] = statistics.median(took) if took else None
        row["latency p99"] = took[min(len(took) - 1, len(took) * 99 // 100)] if took else None
        self.times.append(at)
        for name, values in self.figures.items():
            values.append(row[name])

    def now(self) -> dict[str, float]:
        """What is looked at when all have gone."""
        return {"descriptors": self._of_process()["descriptors"], "messages": self._inside()["messages"]}

    def last(self) -> dict[str, float | None]:
        """The newest row."""
        return {name: values[-1] for name, values in self.figures.items()}

    def _of_process(self) -> dict[str, float]:
        lines = (self._process / "status").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines)
        return {
            "memory": resident_kib(self._ground.process.pid) * 1_024.0,
            "threads": float(told["Threads"]),
            "descriptors": float(len(list((self._process / "fd").iterdir()))),
        }

    def _store(self) -> float:
        """All files of the store: the database, its write-ahead log, and those with large bodies."""
        size = 0
        for path in (self._ground.directory / "data").iterdir():
            try:
                size += path.stat().st_size
            except FileNotFoundError:
                continue  # one with bodies that nobody wants any more
        return float(size)

    def _inside(self) -> dict[str, float]:
        found = live(self._asker)
        broker = self._asker.ask("READ", "broker", identity="self")
        return {
            "queues": broker["queues"], "messages": broker["messages"], "links": found["link"],
            "transactions": found["transaction"], "subscriptions": found["subscription"],
            "halves": found["half"],
        }  # fmt: skip
