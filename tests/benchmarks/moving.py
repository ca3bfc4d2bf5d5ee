"""What it costs the store that 100,000 messages of a set become those of a queue:
`python -m tests.benchmarks.moving [--messages 100000]`.

They were stored in groups of different sizes, each of which is a run: rows of the index move, one for each
run, and no bodies. CPU is that of the process, from `apply` to the end of `commit`; the store is that on
disk, with a synced commit, and at last that in memory.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from amqp_broker.persistence import DecideEpoch, Decision, MemoryStore, Move, Post, Record, Store
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do, new_queue, node_of
from tests.benchmarks.harness import options, spent

RUNS = ((1024, 1000), (200, 100), (50, 100), (10, 100))  # (messages in a run, octets of each)


def moved(store: Store, count: int, run: int, size: int) -> tuple[float, float]:
    """Fill a set and move it with a decision: (milliseconds until it is durable, of CPU)."""
    target, source = new_queue(store), new_queue(store, "set")
    body = b"x" * size
    for first in range(0, count, run):
        end = min(first + run, count)
        do(store, Post(source, [Record(offset, body) for offset in range(first, end)]))
        if store.checkpoint_due:
            store.idle(0.0)
    while store.idle(0.0):
        pass
    with spent() as took:
        do(store, Move(source, target, 0, 1), DecideEpoch(Decision("g", "p", 0, 1, (("set", count, 0),))))
    assert node_of(store, target).message_count == count
    store.close()
    return 1000 * took.wall, 1000 * took.cpu


def main() -> None:
    """Print a line for each size of run."""
    count = options(__doc__, messages=100_000).messages
    print(f"{count:,} messages; milliseconds until durable, and of CPU")
    for run, size in RUNS:
        with TemporaryDirectory() as name:
            wall, cpu = moved(SqliteStore(Path(name)), count, run, size)
        print(f"runs of {run:>5} x {size:>5} octets: {wall:8.1f} {cpu:8.1f}", flush=True)
    wall, cpu = moved(MemoryStore(), count, 1000, 100)
    print(f"in memory:                  {wall:8.1f} {cpu:8.1f}")


if __name__ == "__main__":
    main()
