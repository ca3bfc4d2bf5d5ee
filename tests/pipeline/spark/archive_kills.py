"""Kills (`kill -9`) the process that archives the broker's events, at named places, and starts it again.

    python -m tests.pipeline.spark.archive_kills [--points A1,K2] [--times 3] [--events 240]

One life of an archive: before each start there are more events, each start is killed at its place (see
`archive_driver`; one of three batches, another one each time) with its Java and its workers, and the next one
meets what was left. After each kill no event may count twice; at the end the archive has to be the log,
column by column, each event once. Exit status 1 where it is not, or where a kill did not happen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from amqp_broker.client import connect, message
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.event_rows import EventBatches
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.offsets import Range
from amqp_broker.pipeline.options import EVENTS, read_options
from amqp_broker.pipeline.retained_client import RangeReader, RetainedClient
from tests.pipeline.spark.frames import table_of
from tests.pipeline.spark.hooks import forget, plant, taken_file
from tests.pipeline.spark.lives import launch, lives, points_of, wait
from tests.pipeline.spark.pipeline_broker import PipelineBroker
from tests.pipeline.spark.queries import GAVE_UP, STARTS

POINTS: Final = {
    "A0": "a batch begins",
    "A1": "a batch is being written",
    "A2": "a batch is written",
    "A3": "Spark noted it as done",
    "K0": "the compaction is being written",
    "K1": "it is written, the manifest is the old one",
    "K2": "the manifest is the new one, all old folders are there",
    "K3": "some of them are gone",
}
BATCHES: Final = 3
CONFIGURATION: Final = """\
[[queue]]
pattern = "in"
events = true
"""


class ArchiveWorld:
    """A broker with events, an archive, and the drivers that are started one after the other."""

    def __init__(self, folder: Path, events: int) -> None:
        self.folder = folder
        self.layout = ArchiveLayout(folder / "archive")
        self.fault = folder / "fault.json"
        self.events = events
        self.broker = PipelineBroker(folder, CONFIGURATION)
        self.options = read_options({"amqp.url": self.broker.url, "isolation": "events"}, "source")

    def more_events(self) -> None:
        """As many as three batches."""
        with connect(self.broker.url) as connection:
            sender = connection.open_sender("in")
            sender.send_many(message(b"", message_id=f"m-{number}") for number in range(self.events))

    def start(self, point: str | None, batch: int, tries: int = STARTS) -> int:
        """Runs the driver to its end, which is its death at `point` in this batch or a later one; its exit
        status. It is started again where Spark gave up before anything ran (see `queries`).
        """
        forget(self.fault)
        size = str(-(-self.events // BATCHES))
        before = len(self.log_of_drivers)
        process = launch(
            self.folder, self.fault, "archive_driver", self.broker.url, str(self.layout.directory), size
        )
        if point is not None:
            plant(self.fault, point, batch, group=process.pid)
        status = wait(process)
        if GAVE_UP in self.log_of_drivers[before:] and not self.happened and tries > 1:
            return self.start(point, batch, tries - 1)
        return status

    @property
    def happened(self) -> bool:
        """Whether the kill that was due came."""
        return taken_file(self.fault).exists()

    @property
    def said(self) -> str:
        """The end of what the drivers said."""
        return self.log_of_drivers[-1_000:]

    @property
    def log_of_drivers(self) -> str:
        """All of it."""
        file = self.folder / "driver.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def planned(self) -> int:
        """The number of the next batch."""
        offsets = self.layout.checkpoint / "offsets"
        return max((int(path.name) + 1 for path in offsets.glob("[0-9]*")), default=0)

    def archived(self) -> pa.Table:
        """What counts in the archive, by lsn; read without Spark."""
        schema = table_of([], EVENT_COLUMNS).schema
        folders = [self.layout.epoch(number) for number in self.layout.epochs()]
        folders += [self.layout.segment(*segment) for segment in self.layout.segments()]
        levels = ds.partitioning(pa.schema([("date", pa.string()), ("type", pa.string())]), flavor="hive")
        tables = [schema.empty_table()]
        for folder in folders:
            found = ds.dataset(folder, format="parquet", partitioning=levels).to_table()
            columns = {name: found[name] for name in schema.names}
            columns["time"] = columns["time"].cast(pa.timestamp("us")).cast(schema.field("time").type)
            tables.append(pa.table(columns).cast(schema))
        return pa.concat_tables(tables).sort_by("lsn")

    def log(self) -> pa.Table:
        """The broker's own, over the wire."""
        client = RetainedClient(self.options.broker)
        node = client.describe().nodes[EVENTS]
        wanted = Range(EVENTS, node.first, node.next)
        reader = RangeReader(connection_to(self.options.broker), wanted, None, 60)
        rows = EventBatches(table_of([], EVENT_COLUMNS).schema)
        return pa.Table.from_batches([rows.batch(messages) for messages in reader.batches()])


def twice(table: pa.Table) -> list[int]:
    """Numbers of events that count more than once."""
    counted: Any = table.group_by("lsn").aggregate([("lsn", "count")])
    return [row["lsn"] for row in counted.to_pylist() if row["lsn_count"] > 1]


def differences(archived: pa.Table, log: pa.Table) -> list[str]:
    """What is wrong with an archive."""
    if again := twice(archived):
        return [f"{len(again)} events are there twice, such as {again[:3]}"]
    if missing := set(log["lsn"].to_pylist()) - set(archived["lsn"].to_pylist()):
        return [f"{len(missing)} of {len(log)} events are missing, such as {sorted(missing)[:3]}"]
    return [
        f"the column {name} is not that of the log"
        for name in log.column_names
        if not archived[name].combine_chunks().equals(log[name].combine_chunks())
    ]


def life(folder: Path, points: Sequence[str], events: int) -> list[str]:
    """One archive, from its beginning to its end; what is wrong with it."""
    faults: list[str] = []
    world = ArchiveWorld(folder, events)
    try:
        for number, point in enumerate(points):
            world.more_events()
            began = time.monotonic()
            batch = world.planned() + number % BATCHES if point.startswith("A") else 0
            world.start(point, batch)
            if not world.happened:
                faults.append(f"{point} did not happen: {world.said}")
            if again := twice(world.archived()):
                faults.append(f"after {point} events count twice, such as {again[:3]}")
            print(f"  {point}  {POINTS[point]}: killed ({time.monotonic() - began:.1f} s)", flush=True)
        world.more_events()
        status = world.start(None, 0)
        if status != 0:
            faults.append(f"the last start ended with {status}: {world.said}")
        log = world.log()
        faults += differences(world.archived(), log)
        print(f"  {len(log)} events in the log", flush=True)
        return faults
    finally:
        world.broker.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    """So many lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.archive_kills", description=__doc__)
    parser.add_argument("--points", default=",".join(POINTS), help="with commas (default: all)")
    parser.add_argument("--times", type=int, default=1, help="lives")
    parser.add_argument("--events", type=int, default=240, help="that come before each start")
    parsed = parser.parse_args(arguments)
    points = points_of(parser, parsed.points, POINTS)

    def turned(number: int, folder: Path) -> tuple[str, list[str]]:
        first = number % len(points)
        return f"{len(points)} kills", life(folder, points[first:] + points[:first], parsed.events)

    return 1 if lives("archive-kills", parsed.times, turned) else 0


if __name__ == "__main__":
    raise SystemExit(main())
