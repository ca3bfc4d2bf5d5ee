"""All crash points in the life of one pipeline: each start recovers from a fault and meets the next one.

    python -m tests.pipeline.spark.crash_chain [--points C0,C3,C5] [--times 10]

The same faults as `crash_points`, at half the cost and less: a driver that is started after a kill goes on
until the next fault, a query that only failed is started again in its process, and a broker that was killed
comes back at its place while the driver works. Another order in each chain. At the end every row has to be
there, once and in order, and no set may be left. A line for each chain, and one for each point; exit status 1
when anything is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqp_broker.pipeline.checkpoints import read_checkpoint
from tests.pipeline.spark.crash_points import POINTS, SECONDS_FOR_A_START, SHARD_POINTS, World, end, judge
from tests.pipeline.spark.hooks import forget, taken_file

ROWS_OF_A_BATCH: Final = 100
BATCHES_FOR_A_POINT: Final = 3  # the one that is recovered, the one that the fault is due at, and one more
TRIES: Final = "4"
POLL_S: Final = 0.1


class Chain:
    """One life: the faults that are to come, and those that happened."""

    def __init__(self, world: World, points: Sequence[str]) -> None:
        self.world = world
        self.due = list(points)
        self.happened: list[str] = []
        self.planted: str | None = None
        self.starts = 0

    def run(self) -> int:
        """Starts drivers until one is done; its exit status, not 0 when there were too many."""
        status = 1
        most = 2 * len(self.due) + 4
        while status != 0 and self.starts < most:
            self.world.revive_broker()
            status = self._one_driver()
        return status

    def _one_driver(self) -> int:
        self.starts += 1
        process = self.world.launch("--tries", TRIES)
        deadline = time.monotonic() + SECONDS_FOR_A_START
        try:
            while process.poll() is None and time.monotonic() < deadline:
                self._go_on(process.pid)
                self.world.revive_broker()
                time.sleep(POLL_S)
        finally:
            end(process)
        self._note()
        if self.planted is not None:  # for a driver that is gone
            forget(self.world.fault)
            self.due.insert(0, self.planted)
            self.planted = None
        return process.returncode

    def _note(self) -> None:
        if self.planted is not None and taken_file(self.world.fault).exists():
            self.happened.append(self.planted)
            self.planted = None

    def _go_on(self, driver: int) -> None:
        """Plants the next fault, when the last one happened and the query went on after it."""
        self._note()
        if self.planted is None and self.due:
            checkpoint = read_checkpoint(self.world.checkpoint)
            self.planted = self.due.pop(0)
            self.world.plant(self.planted, 0 if checkpoint is None else checkpoint.planned + 1, driver)


def run(folder: Path, points: Sequence[str]) -> tuple[Chain, list[str]]:
    """One chain; what is wrong."""
    batches = BATCHES_FOR_A_POINT * len(points) + 2
    shards = any(point in SHARD_POINTS for point in points)
    world = World(folder, batches * ROWS_OF_A_BATCH, batches=batches, shards=shards)
    try:
        world.fill()
        chain = Chain(world, points)
        status = chain.run()
        faults = (
            [] if status == 0 else [f"not done after {chain.starts} starts, the last ended with {status}"]
        )
        if chain.due:
            faults.append(f"these did not happen: {', '.join(chain.due)}")
        faults += judge(world.output(), world.rows)
        if left := world.undecided():
            faults.append(f"{left} sets are left without a decision")
        return chain, faults
    finally:
        world.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """So many chains."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.crash_chain", description=__doc__)
    parser.add_argument("--points", default=",".join(POINTS), help="with commas (default: all)")
    parser.add_argument("--times", type=int, default=1, help="chains")
    parsed = parser.parse_args(arguments)
    points = parsed.points.split(",")
    if unknown := [point for point in points if point not in POINTS]:
        parser.error(f"unknown points {unknown}; there are {', '.join(POINTS)}")
    good: Counter[str] = Counter()
    bad = 0
    for number in range(parsed.times):
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="crash-chain-"))
        first = 3 * number % len(points)
        chain, faults = run(folder, points[first:] + points[:first])
        verdict = "; ".join(faults) or f"{chain.world.rows} rows, each once and in order"
        seconds = time.monotonic() - began
        print(
            f"{number + 1}/{parsed.times}  {' '.join(chain.happened)}: {chain.starts} starts, {verdict} "
            f"({seconds:.0f} s)",
            flush=True,
        )
        if faults:
            bad += 1
            print(f"  kept: {folder}", flush=True)
        else:
            good.update(chain.happened)
            shutil.rmtree(folder, ignore_errors=True)
    for point in points:
        print(f"{point}  {POINTS[point]}: {good[point]} of {parsed.times} good")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
