"""Two million messages audited: `python -m tests.benchmarks.pipeline_audit [--messages 2000000]`.

A truthful stretch of a day's traffic is written once with Python and repeated by Spark, with other numbers,
names and times, until there are so many messages; then `amqp-broker pipeline report` audits it. Prints how
long that took by the clock, the processor time and the greatest memory of all its processes together, the
same with 2 and with 10 million. Exit status 1 if it took a minute or more for each two million (making the
archive does not count, starting Spark does), if something was found, or if the report is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs

from amqp_broker.pipeline.archive import write_epoch
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.compact import compact
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.folders import LocalPath
from amqp_broker.pipeline.session import spark_session
from tests.benchmarks.harness import options, spent
from tests.pipeline.truthful_day import TICK, World, clock, decide, half, numbered, rows

MOST_S_OF_A_MILLION = 30.0
LOOK_EVERY_S = 1.0
BLOCK = 20_000
BATCHES = 10
PLACES = ("orders", "parcels", "invoices", "letters")
NAMED = ("message_id", "half_id")


def stretch(messages: int) -> World:
    """Traffic of so many messages, all of which are consumed; one of twenty is a half message."""
    world = World("day", clock())
    waiting: list[tuple[str, int]] = []
    for number in range(messages):
        place = PLACES[number * number % 7 % 4]
        if number % 20 == 0:
            half(world, f"h{number}")
            decide(world, f"h{number}")
            continue
        stream: dict[str, Any] = {"seq_stream": "till", "seq_id": 1} if place == "orders" else {}
        offset = world.put(place, **stream)
        if stream:
            world.events[-1]["seq_no"] = offset + 1
        waiting.append((place, offset))
        if len(waiting) > 50 + number % 37:
            for place, offset in waiting:
                world.consume(place, offset)
            waiting.clear()
    for place, offset in waiting:
        world.consume(place, offset)
    return world


def make_archive(spark: Any, layout: ArchiveLayout[LocalPath], messages: int) -> None:
    """The stretch, again and again, in batches as the stream writes them; then compacted."""
    import pyarrow
    import pyarrow.parquet

    from tests.pipeline.spark.frames import table_of

    world = stretch(BLOCK)
    events = numbered([world])
    layout.directory.mkdir(parents=True, exist_ok=True)
    block = layout.directory / "block.parquet"
    pyarrow.parquet.write_table(table_of(rows(events), EVENT_COLUMNS), block)
    repeated = spark.read.parquet(str(block)).crossJoin(
        spark.range(-(-messages // BLOCK)).withColumnRenamed("id", "n")
    )
    steps = dict.fromkeys((*PLACES, "paid"), 0)
    for event in events:
        if event["type"] in ("put", "publish"):
            steps[event["address"].split(".")[1]] += 1
    by_address = " ".join(f"WHEN 'day.{place}' THEN {count}" for place, count in steps.items())
    shift = f"n * CASE address {by_address} ELSE 0 END"
    length_s = (TICK * (len(events) + 1)) / timedelta(seconds=1)
    columns = []
    for name, _ in EVENT_COLUMNS:
        if name == "lsn":
            columns.append(f"lsn + n * {len(events)} AS lsn")
        elif name in ("offset", "seq_no"):
            columns.append(f"`{name}` + {shift} AS `{name}`")
        elif name == "time":
            columns.append(
                f"timestamp_micros(unix_micros(time) + CAST(n * {length_s} * 1e6 AS BIGINT)) AS time"
            )
        elif name in NAMED:
            columns.append(f"concat(`{name}`, '-', n) AS `{name}`")
        else:
            columns.append(f"`{name}`")
    count = -(-messages // BLOCK)
    for batch in range(BATCHES):
        mine = repeated.where(f"n * {BATCHES} div {count} = {batch}")
        write_epoch(mine.selectExpr(*columns), batch, layout)
    block.unlink()
    compact(spark, layout)


@attrs.define
class Used:
    """What a command and all that it started took; of the processor in seconds, of memory at its most."""

    status: int = 0
    processor_s: float = 0.0
    memory_mib: float = 0.0


def run_measured(command: list[str]) -> Used:
    """Runs it in a session of its own, by which what it started is known, and looks at all of them now and
    then. A page that several of them share is counted once.
    """
    used = Used()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while process.poll() is None:
            _look(process.pid, used)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY_S)
    finally:
        process.kill()
    used.status = process.wait()
    return used


def _look(session: int, used: Used) -> None:
    ticks, pages_kib = 0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) != session:
                continue
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, stat[11:15]))  # of itself, and of what it waited for
            told = dict(line.split(":") for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
            pages_kib += int(told["Pss"].split()[0])
        except OSError:
            pass  # it is gone
    used.processor_s = max(used.processor_s, ticks / os.sysconf("SC_CLK_TCK"))
    used.memory_mib = max(used.memory_mib, pages_kib / 1_024)


def main() -> int:
    """Make it, audit it, and judge."""
    chosen = options(__doc__, messages=2_000_000, archive="", cores=2)
    with tempfile.TemporaryDirectory() as directory:
        layout = ArchiveLayout(chosen.archive or Path(directory, "archive"))
        if not layout.segments():
            with spent() as making:
                spark = spark_session("archive", settings={"spark.driver.memory": "1g"})
                make_archive(spark, layout, chosen.messages)
                spark.stop()
            print(f"archive of {chosen.messages:,} messages made in {making.wall:.1f} s")
        report = Path(directory, "report.html")
        command = [sys.executable, "-m", "amqp_broker", "pipeline", "report", str(layout.directory)]
        with spent() as auditing:
            used = run_measured([*command, "--out", str(report), "--drained", "--cores", str(chosen.cores)])
        took = auditing.wall
        there = report.exists() and report.stat().st_size
        octets = layout.octets()
    millions = chosen.messages / 1_000_000
    print(f"audited in {took:.1f} s, {chosen.messages / took:,.0f} messages a second from the command on")
    print(f"{used.processor_s:.0f} s of processor time, at most {used.memory_mib:,.0f} MiB of memory")
    print(f"the archive has {octets / 2**20:,.0f} MiB, the report {there:,} octets")
    return 0 if used.status == 0 and there and took < MOST_S_OF_A_MILLION * millions else 1


if __name__ == "__main__":
    raise SystemExit(main())
