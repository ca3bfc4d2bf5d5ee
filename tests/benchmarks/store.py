"""What the store costs: `python -m tests.benchmarks.store [DIRECTORY]`.

For batches of 1 to 1,000 messages of 100 B and 10 KiB: one group posts a batch and retires the one before it.
Printed are microseconds a message for the statements (`apply`, which holds the interpreter) and for `commit`
(which does not), commits and messages a second; then reading a backlog in pages, the restart, and memory.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from amqp_broker.persistence import CreateNode, Post, Record, Retire
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.benchmarks.harness import Spent, spent

BATCHES = (1, 10, 100, 300, 1000)
SIZES = (100, 10 * 1024)
SECONDS = 1.5  # for each row of the table
BACKLOG = 1_000_200  # a multiple of each batch size


def records(first: int, count: int, body: bytes) -> list[Record]:
    """Messages as a read from the network brings them."""
    return [Record(offset, body, enqueued_at_ms=1) for offset in range(first, first + count)]


def measure(store: SqliteStore, queue_id: int, first: int, batch: int, body: bytes) -> tuple[int, str]:
    """One row of the table, and the next offset."""
    apply_s: list[float] = []
    commit_s: list[float] = []
    previous = first
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        new = records(first, batch, body)
        retire = Retire(queue_id, previous, first - 1)
        with spent() as applying:
            store.apply([[Post(queue_id, new)], [retire]])
        with spent() as committing:
            store.commit()
        apply_s.append(applying.wall)
        commit_s.append(committing.wall)
        if store.checkpoint_due:
            store.idle(time.perf_counter())
        previous, first = first, first + batch
    elapsed = time.perf_counter() - begin
    row = (
        f"{len(body):>7} B {batch:>6} {statistics.median(apply_s) / batch * 1e6:>9.2f} "
        f"{statistics.mean(apply_s) / batch * 1e6:>9.2f} {statistics.median(commit_s) * 1e6:>10.0f} "
        f"{len(commit_s) / elapsed:>10.0f} {len(commit_s) * batch / elapsed:>12,.0f}"
    )
    store.apply([[Retire(queue_id, previous, first)]])
    store.commit()
    return first, row


def table(directory: Path) -> None:
    """Post and retire."""
    print("   body     batch  apply us/message    commit us  commits/s   messages/s")
    print("                  (median)   (mean)   (median)")
    store = SqliteStore(directory / "table")
    create = CreateNode("q", "queue")
    store.apply([[create]])
    store.commit()
    first = 0
    for size in SIZES:
        for batch in BATCHES:
            first, row = measure(store, create.queue_id, first, batch, b"x" * size)
            print(row)
    store.close()


def backlog(directory: Path, batch: int) -> None:
    """A million messages in groups of `batch`: fill, restart, read in pages and retire."""
    store = SqliteStore(directory / f"backlog{batch}", synchronous="OFF")
    create = CreateNode("q", "queue")
    store.apply([[create]])
    store.commit()
    queue_id = create.queue_id
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for first in range(0, BACKLOG, batch):
        store.apply([[Post(queue_id, records(first, batch, b"x" * 100))]])
        store.commit()
        if store.checkpoint_due:
            store.idle(0.0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    store.close()
    with spent() as restart:
        store = SqliteStore(directory / f"backlog{batch}", synchronous="OFF")
        (node,) = store.recover().nodes
    assert node.message_count == BACKLOG
    at, read, retired = 0, Spent(), Spent()
    while at < BACKLOG:
        with spent(read):
            page = store.ask(PageOf(queue_id, at, 1000, 1 << 20))
        with spent(retired):
            store.apply([[Retire(queue_id, at, page.next_offset - 1)]])
            store.commit()
        at = page.next_offset
        if store.checkpoint_due:
            store.idle(0.0)
    assert store.recover().nodes[0].message_count == 0
    store.close()
    print(
        f"backlog of {BACKLOG:,} in runs of {batch}: restart {restart.wall:.2f} s, "
        f"read {read.wall / BACKLOG * 1e6:.2f} us, retired {retired.wall / BACKLOG * 1e6:.2f} us each, "
        f"no sync; memory grew by {grown // 1024} MiB"
    )


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        table(Path(name))
        for batch in (300, 1):
            backlog(Path(name), batch)


if __name__ == "__main__":
    main()
