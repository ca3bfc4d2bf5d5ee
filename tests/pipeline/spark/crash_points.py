"""Kills a pipeline at named points, starts it again until it is done, and wants every row, once and in order.

    python -m tests.pipeline.spark.crash_points [--points C0,C3,C5] [--times 10] [--rows 1200] [--shards]

A broker process, and a driver process with a streaming query from two retained nodes through a
transformation into a queue, in micro-batches. Each run has one fault (see `faulty_source`), at a batch that
differs from run to run. With --shards, and at the points that want it, the rows go to two brokers. Exit
status 1 when a row is lost, doubled or out of order, or when the fault did not happen; the folder with the
logs is kept then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.client import connect, message
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.set_client import SetClient
from tests.crash.broker_process import CHECKOUT
from tests.pipeline.receiving import drained
from tests.pipeline.spark.hooks import FAULT_FILE, plant, taken_file
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
BATCHES: Final = 4
STARTS_MAX: Final = 6
SECONDS_FOR_A_START: Final = 900.0


@attrs.frozen
class Finding:
    """What came out of one run."""

    point: str
    batch: int
    starts: int
    rows: int
    seconds: float
    faults: tuple[str, ...]


class World:
    """One run: a folder, a broker, and the drivers that are started one after the other. With `shards` there
    is another broker, which half of the rows go to.
    """

    def __init__(
        self, folder: Path, rows: int, memory: bool = False, batches: int = BATCHES, shards: bool = False
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
        """Starts the driver, in a group of processes of its own; `more` are arguments."""
        environment = dict(os.environ)
        environment[FAULT_FILE] = str(self.fault)
        environment["AMQP_TEST_CHECKPOINT"] = str(self.checkpoint)
        environment["PYTHONPATH"] = str(CHECKOUT)
        # Who is killed does not tidy up: all that it leaves is in the folder of this run.
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        environment["TMPDIR"] = environment["SPARK_LOCAL_DIRS"] = str(scratch)
        environment["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={scratch}"
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "tests.pipeline.spark.crash_driver", "--url", self.broker.url,
                    "--checkpoint", str(self.checkpoint), "--subscribe", ",".join(SOURCES),
                    "--address", OUTPUT, "--to", ";".join(self._urls),
                    "--rows", str(-(-self.rows // self.batches)), *more,
                ],  # fmt: skip
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=CHECKOUT,
                start_new_session=True,
            )  # fmt: skip

    def plant(self, point: str, batch: int, driver: int, **fields: Any) -> None:
        """Makes a fault due in the driver of this process id, or in the broker."""
        broker = self.broker.process.pid if point in BROKER_POINTS else None
        plant(self.fault, point, batch, group=driver, broker=broker, **fields)

    def start_driver(self, point: str | None, batch: int, *more: str, **fields: Any) -> int:
        """Runs the driver to its end, with a fault or without; its exit status. `more` are arguments of the
        driver, `fields` of the fault.
        """
        process = self.launch(*more)
        if point is not None:
            self.plant(point, batch, process.pid, **fields)
        try:
            return process.wait(SECONDS_FOR_A_START)
        finally:
            end(process)

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


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a driver and its Java, if they have not ended."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


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


def run(world: World, point: str, batch: int) -> Finding:
    """One fault, and everything after it."""
    began = time.monotonic()
    world.fill()
    faults = []
    statuses: list[int] = []
    while len(statuses) < STARTS_MAX and (not statuses or statuses[-1] != 0):
        world.revive_broker()
        # A driver may fail by itself before it comes to the fault: Spark gives its workers seconds to start.
        due = None if taken_file(world.fault).exists() else point
        statuses.append(world.start_driver(due, batch))
    if not taken_file(world.fault).exists():
        faults.append(f"the fault did not happen, the drivers ended with {statuses}")
    if point not in RAISING_POINTS and point not in BROKER_POINTS and -9 not in statuses:
        faults.append(f"expected that a driver is killed, but they ended with {statuses}")
    if statuses[-1] != 0:
        faults.append(f"not done after {len(statuses)} starts, which ended with {statuses}")
    found = world.output()
    faults += judge(found, world.rows)
    if left := world.undecided():
        faults.append(f"{left} sets are left without a decision")
    return Finding(point, batch, len(statuses), len(found), time.monotonic() - began, tuple(faults))


def try_point(point: str, number: int, rows: int, keep: bool, memory: bool, shards: bool = False) -> Finding:
    """One run in a fresh folder, which is kept when something is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="crash-points-"))
    shards = shards or point in SHARD_POINTS
    world = World(folder, rows, memory and point not in BROKER_POINTS, shards=shards)
    try:
        finding = run(world, point, batch_of(point, number))
    finally:
        world.close()
    if finding.faults or keep:
        print(f"  kept: {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return finding


def batch_of(point: str, number: int) -> int:
    """At which batch the fault is due in the run of this number, from 0."""
    if point == "C6":  # after the last one the driver may end before the listener hears of it
        return (number + 1) % (BATCHES - 1)
    if point == "C7":  # a batch is told to the source when the next one is planned
        return 1 + number % (BATCHES - 1)
    return (number + 1) % BATCHES


def tell(finding: Finding, number: int, times: int, rows: int) -> None:
    """One line."""
    verdict = "; ".join(finding.faults) or "each once and in order"
    print(
        f"{finding.point} {number}/{times}  {POINTS[finding.point]}, batch {finding.batch}: "
        f"{finding.starts} starts, {finding.rows} of {rows} rows, {verdict} ({finding.seconds:.1f} s)",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """All points, so many times each."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.crash_points", description=__doc__)
    parser.add_argument("--points", default=",".join(POINTS), help="with commas (default: all)")
    parser.add_argument("--times", type=int, default=1, help="runs of each point")
    parser.add_argument("--rows", type=int, default=1_200)
    parser.add_argument("--keep", action="store_true", help="keep the folders of good runs, too")
    parser.add_argument(
        "--memory", action="store_true", help="a broker without a disk, where it is not killed"
    )
    parser.add_argument("--shards", action="store_true", help="two brokers to write to, at every point")
    parsed = parser.parse_args(arguments)
    points = parsed.points.split(",")
    if unknown := [point for point in points if point not in POINTS]:
        parser.error(f"unknown points {unknown}; there are {', '.join(POINTS)}")
    failed = 0
    began = time.monotonic()
    for number in range(parsed.times):
        for point in points:
            finding = try_point(point, number, parsed.rows, parsed.keep, parsed.memory, parsed.shards)
            tell(finding, number + 1, parsed.times, parsed.rows)
            failed += bool(finding.faults)
    runs = parsed.times * len(points)
    print(f"{runs - failed} of {runs} runs good, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
