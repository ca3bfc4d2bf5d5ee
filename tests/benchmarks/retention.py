"""What retention costs: `python -m tests.benchmarks.retention [DIRECTORY]`.

Messages of 100 B, 900,000 in commits of 300 and 60,000 in commits of 1, in a node that does not retain, in
one that does, and in a log: microseconds of processor time a message to post and retire, and to read from the
middle as readers of what is retained do (the longest page too); the restart, finding a time, memory, and how
fast it is all dropped. No syncs.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

from amqp_broker.persistence import CreateNode, Post, Record, Retain, Retire
from amqp_broker.persistence.questions import OffsetAt, ReadResult, RetainedPageOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.benchmarks.harness import Spent, spent

COUNTS = {300: 900_000, 1: 60_000}
PAGE = 1000
DAY_MS = 86_400_000


class Case:
    """One store, filled in groups of `batch`."""

    def __init__(self, directory: Path, batch: int, retains: bool, log: bool = False) -> None:
        self.path = directory / f"{batch}{retains}{log}"
        self.log = log
        self.batch = batch
        self.count = COUNTS[batch]
        self.retains = retains
        self.open()
        create = CreateNode("q", "queue")
        self.store.apply([[create]])
        self.store.commit()
        self.queue_id = create.queue_id
        if retains:
            self.store.apply([[Retain(self.queue_id, DAY_MS, 0)]])
            self.store.commit()

    def open(self) -> float:
        """Seconds."""
        with spent() as took:
            self.store = SqliteStore(self.path, synchronous="OFF", ballast_bytes=0)
            self.store.recover()
        return took.cpu

    def fill(self) -> float:
        """Microseconds a message to post, and to retire the batch before last; a log retires at once."""
        with spent() as took:
            for first in range(0, self.count, self.batch):
                offsets = range(first, first + self.batch)
                records = [Record(offset, b"x" * 100, enqueued_at_ms=first) for offset in offsets]
                post, past = Post(self.queue_id, records), 0 if self.log else self.batch
                self.store.apply([[post, Retire(self.queue_id, first - past, first - past + self.batch - 1)]])
                self.store.commit()
                if self.store.checkpoint_due:
                    self.store.idle(0.0)
        return took.each_us(self.count)

    def read_from_the_middle(self) -> tuple[float, float]:
        """Microseconds a message, and the longest page in milliseconds."""
        at = self.count // 2
        whole, longest = Spent(), 0.0
        while at < self.count:
            with spent(whole) as took:
                page: ReadResult = self.store.ask(RetainedPageOf(self.queue_id, at, PAGE, 1 << 20))
            assert page.records[0].offset == at and not page.quarantined
            at = page.next_offset
            longest = max(longest, took.cpu)
        return whole.each_us(self.count // 2), longest * 1e3

    def find(self) -> float:
        """Microseconds to find a time."""
        with spent() as took:
            for number in range(1000):
                at_ms = self.count // 1000 * number
                assert at_ms <= self.store.ask(OffsetAt(self.queue_id, at_ms)) < at_ms + 2 * self.batch
        return took.each_us(1000)

    def drop(self) -> tuple[float, float]:
        """Seconds to drop everything, and the longest step in milliseconds."""
        self.store.idle(0.0)
        whole, longest, more = Spent(), 0.0, True
        while more:
            with spent(whole) as step:
                more = self.store.idle(2.0 * DAY_MS)
            longest = max(longest, step.cpu)
        return whole.cpu, longest * 1e3


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        for batch, count in COUNTS.items():
            plain = Case(Path(name), batch, retains=False).fill()
            case = Case(Path(name), batch, retains=True)
            log = Case(Path(name), batch, retains=True, log=True)
            print(
                f"commits of {batch}: post and retire {plain:.2f} us, retained {case.fill():.2f} us each, "
                f"in a log {log.fill():.2f} us"
            )
            log.store.close()
            case.store.close()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            restart = case.open()
            read, longest = case.read_from_the_middle()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(
                f"  {count:,} archived: restart {restart:.2f} s; read from the middle {read:.2f} us each "
                f"(longest page {longest:.1f} ms)"
            )
            print(f"  a time found in {case.find():.0f} us; memory grew by {grown // 1024} MiB")
            dropped, longest = case.drop()
            print(f"  all dropped in {dropped:.1f} s, longest step {longest:.1f} ms")
            case.store.close()


if __name__ == "__main__":
    main()
