"""Kills a pipeline at named points in one life: each start recovers from a fault and meets the next one.

    python -m tests.pipeline.spark.crash_points [--points C0,C3,C5] [--times 10] [--apart] [--shards]

A broker process, and a driver process with a streaming query from two retained nodes through a
transformation into a queue, in micro-batches. A driver that is started after a kill (see `faulty_source`)
goes on until the next fault, a query that only failed is started again in its process, and a broker that was
killed comes back at its place while the driver works. The order and the batches differ from life to life;
with --apart each point has a life of its own. With --shards, and at the points that want it, the rows go to
two brokers. Exit status 1 when a row is lost, doubled or out of order, when a set is left, or when a fault
did not happen; the folder with the logs is kept then.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from amqp_broker.client import connect, message
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.set_client import SetClient
from tests.pipeline.receiving import drained
from tests.pipeline.spark.hooks import forget, plant, taken_file
from tests.pipeline.spark.lives import SECONDS_FOR_A_START, end, launch, lives, points_of
from tests.pipeline.spark.pipeline_broker import PipelineBroker

POINTS: Final = {
    "C0": "before the offset is written",
    "C1": "during staging",
    "C2": "sealed and undecided",
    "C3": "voided behind the back",
    "C4": "decided, the reply lost with the driver",
    "C5": "decided, the reply lost, then abort",
    "C6": "after Spark's commit",
    "C7": "late cursor",
    "C8": "broker killed, sealed and undecided",
    "C9": "broker killed during staging",
    "C10": "several brokers: decided, the participants not told",
    "C11": "several brokers: prepared, undecided, ruled out",
}
BROKER_POINTS: Final = ("C8", "C9")
RAISING_POINTS: Final = ("C3", "C5", "C11")
SHARD_POINTS: Final = ("C10", "C11")
SOURCES: Final = ("in.a", "in.b")
OUTPUT: Final = "out"
ROWS_OF_A_BATCH: Final = 100
BATCHES_FOR_A_POINT: Final = 3  # the one that is recovered, the one that the fault is due at, and one more
TRIES: Final = "4"
POLL_S: Final = 0.1


class World:
    """One life: a folder, a broker, and the drivers that are started one after the other. With `shards` there
    is another broker, which half of the rows go to.
    """

    def __init__(
        self, folder: Path, rows: int, batches: int, memory: bool = False, shards: bool = False
    ) -> None:
        self.folder = folder
        self.rows = rows
        self.batches = batches
        self.fault = folder / "fault.json"
        self.checkpoint = folder / "checkpoint"
        self.broker = PipelineBroker(folder, memory=memory)
        self.shard: PipelineBroker | None = None
        if shards:
            (folder / "shard").mkdir()
            self.shard = PipelineBroker(folder / "shard", memory=memory)

    def fill(self) -> None:
        """All rows of the input, half of them in each node."""
        with connect(self.broker.url) as connection:
            for number, address in enumerate(SOURCES):
                bodies = (f"{address} {row}".encode() for row in range(number, self.rows, len(SOURCES)))
                connection.open_sender(address).send_many(message(body) for body in bodies)

    def launch(self, *more: str) -> subprocess.Popen[bytes]:
        """Starts the driver; `more` are arguments."""
        return launch(
            self.folder, self.fault, "crash_driver", "--url", self.broker.url,
            "--checkpoint", str(self.checkpoint), "--subscribe", ",".join(SOURCES), "--address", OUTPUT,
            "--to", ";".join(self._urls), "--rows", str(-(-self.rows // self.batches)), *more,
            AMQP_TEST_CHECKPOINT=str(self.checkpoint),
        )  # fmt: skip

    def plant(self, point: str, batch: int, driver: int, **fields: Any) -> None:
        """Makes a fault due in the driver of this process id, or in the broker."""
        broker = self.broker.process.pid if point in BROKER_POINTS else None
        plant(self.fault, point, batch, group=driver, broker=broker, **fields)

    def revive_broker(self) -> None:
        """Starts it again if it was killed, where it was."""
        if self.broker.process.poll() is not None:
            self.broker.kill()
            self.broker = PipelineBroker(self.folder, port=self.broker.port)

    def output(self) -> list[bytes]:
        """All that arrived, in the order of each queue."""
        found: list[bytes] = []
        for url in self._urls:
            with connect(url) as connection:
                found += [received.body for received in drained(connection, OUTPUT)]
        return found

    def undecided(self) -> int:
        """How many sets of the query are left."""
        checkpoint = read_checkpoint(self.checkpoint)
        if checkpoint is None:
            return 0
        left = 0
        for url in self._urls:
            with connect(url) as connection:
                left += len(SetClient(connection, "spark").status(checkpoint.query_id).sets)
        return left

    @property
    def _urls(self) -> list[str]:
        """Of the brokers that the rows go to."""
        return [each.url for each in (self.broker, self.shard) if each is not None]

    def close(self) -> None:
        """Ends the brokers."""
        self.broker.kill()
        if self.shard is not None:
            self.shard.kill()


def judge(found: Sequence[bytes], rows: int) -> list[str]:
    """What is wrong with the output: lost, doubled, foreign or out of order in its node."""
    faults = []
    for number, address in enumerate(SOURCES):
        wanted = [f"{address} {row}".upper().encode() for row in range(number, rows, len(SOURCES))]
        mine = [body for body in found if body.startswith(address.upper().encode() + b" ")]
        if mine == wanted:
            continue
        lost = set(wanted) - set(mine)
        doubled = len(mine) - len(set(mine))
        faults.append(
            f"{address}: {len(lost)} lost, {doubled} doubled, {len(mine)} of {len(wanted)} in all"
            + ("" if lost or doubled else ", out of order")
        )
    prefixes = tuple(address.upper().encode() + b" " for address in SOURCES)
    foreign = [body for body in found if not body.startswith(prefixes)]
    return faults + ([f"{len(foreign)} that nobody sent, {foreign[0]!r}"] if foreign else [])


class Life:
    """The faults that are to come, and those that happened; the first at this batch."""

    def __init__(self, world: World, points: Sequence[str], first_batch: int) -> None:
        self.world = world
        self.due = list(points)
        self.happened: list[str] = []
        self.planted: str | None = None
        self.starts = 0
        self.faults: list[str] = []
        self._first_batch = first_batch

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
        before = len(self.happened)
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
        for point in self.happened[before:]:
            if point not in (*RAISING_POINTS, *BROKER_POINTS) and process.returncode != -9:
                self.faults.append(f"{point} was to kill a driver, which ended with {process.returncode}")
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
            batch = self._first_batch if checkpoint is None else checkpoint.planned + 1
            self.world.plant(self.planted, batch, driver)


def live(folder: Path, points: Sequence[str], shards: bool, first_batch: int) -> tuple[str, list[str]]:
    """One life: what happened in it, and what is wrong."""
    batches = BATCHES_FOR_A_POINT * len(points) + 2
    shards = shards or any(point in SHARD_POINTS for point in points)
    world = World(folder, batches * ROWS_OF_A_BATCH, batches, shards=shards)
    try:
        world.fill()
        life = Life(world, points, first_batch)
        status = life.run()
        faults = life.faults
        if status != 0:
            faults.append(f"not done after {life.starts} starts, the last ended with {status}")
        if life.due:
            faults.append(f"these did not happen: {', '.join(life.due)}")
        faults += judge(world.output(), world.rows)
        if left := world.undecided():
            faults.append(f"{left} sets are left without a decision")
        return f"{' '.join(life.happened)}: {life.starts} starts, {world.rows} rows", faults
    finally:
        world.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """So many lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.crash_points", description=__doc__)
    parser.add_argument("--points", default=",".join(POINTS), help="with commas (default: all)")
    parser.add_argument("--times", type=int, default=1, help="lives, or those of each point")
    parser.add_argument("--apart", action="store_true", help="a life of its own for each point")
    parser.add_argument("--shards", action="store_true", help="two brokers to write to, at every point")
    parsed = parser.parse_args(arguments)
    points = points_of(parser, parsed.points, POINTS)
    bad = 0
    for each in [[point] for point in points] if parsed.apart else [points]:

        def turned(number: int, folder: Path, each: list[str] = each) -> tuple[str, list[str]]:
            first = 3 * number % len(each)
            batch = number % BATCHES_FOR_A_POINT
            return live(folder, each[first:] + each[:first], parsed.shards, batch)

        bad += lives("crash-points", parsed.times, turned)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
