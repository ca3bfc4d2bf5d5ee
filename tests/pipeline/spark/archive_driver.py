"""`amqp-broker pipeline archive --compact` as a process that is killed at named places (see `hooks`).

A0  a batch begins            K0  the compaction is being written
A1  a batch is being written  K1  it is written, and the manifest is the old one
A2  a batch is written        K2  the manifest is the new one, and all old folders are there
A3  Spark noted it as done    K3  some of them are gone
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from amqp_broker.pipeline import archive, command_line, folders
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.folders import LocalPath
from tests.pipeline.spark.class_archive import short_life
from tests.pipeline.spark.faulty_source import Killer
from tests.pipeline.spark.hooks import FAULT_FILE, kill

POLL_S = 0.001
FILES = 16
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


def planted() -> str:
    """The point that is due, if any."""
    try:
        return str(json.loads(Path(os.environ[FAULT_FILE]).read_text())["point"])
    except OSError:
        return ""


def has_files(folder: Path) -> bool:
    """Whether one is there now; folders in it come and go meanwhile."""
    try:
        return any(folder.rglob("*.parquet"))
    except FileNotFoundError:
        return False


def watch(folder: Path, point: str, number: int) -> None:
    """From a thread: kills as soon as there is a file in what is being written."""

    def looking() -> None:
        while not has_files(folder / "_temporary"):
            time.sleep(POLL_S)
        kill(point, number)

    threading.Thread(target=looking, daemon=True).start()


def install() -> None:
    """Puts the places in."""
    write_epoch, start, segment = archive.write_epoch, archive.archive, ArchiveLayout.segment
    keep_segments, watched = ArchiveLayout.keep_segments, itertools.count()

    def writing(events: Any, number: int, layout: ArchiveLayout[LocalPath]) -> None:
        kill("A0", number)
        if planted() == "A1":
            watch(layout.epoch(number), "A1", number)
            events = events.repartition(FILES)  # so that some are there and some are not
        write_epoch(events, number, layout)
        kill("A2", number)

    def started(spark: Any, *arguments: Any, **more: Any) -> Any:
        spark.streams.addListener(Killer("A3"))
        return start(spark, *arguments, **more)

    def writes(layout: ArchiveLayout[LocalPath], first: int, last: int) -> LocalPath:
        found = segment(layout, first, last)
        if planted() == "K0" and next(watched) == 0:
            watch(found, "K0", 0)
        return found

    def keeping(layout: ArchiveLayout[LocalPath], segments: list[tuple[int, int]]) -> None:
        kill("K1", 0)
        keep_segments(layout, segments)

    def replaced(new: Path, old: Path) -> None:
        os.replace(new, old)
        kill("K2", 0)

    def removed(folder: Path) -> None:
        shutil.rmtree(folder)
        kill("K3", 0)

    places: list[tuple[Any, str, Any]] = [
        (archive, "write_epoch", writing), (archive, "archive", started),
        (ArchiveLayout, "segment", writes), (ArchiveLayout, "keep_segments", keeping),
        (folders, "os", SimpleNamespace(replace=replaced)),
        (folders, "shutil", SimpleNamespace(rmtree=removed)),
    ]  # fmt: skip
    for owner, name, place in places:
        setattr(owner, name, place)


def main() -> int:
    """URL, folder, events in a batch."""
    url, folder, events = sys.argv[1:]
    install()
    archive.EVENTS_PER_BATCH = int(events)  # type: ignore[misc]
    settings = SETTINGS | {"spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {short_life()}"}
    command_line.AUDIT_SETTINGS |= settings  # type: ignore[misc]
    return command_line.run(["archive", url, folder, "--compact", "--quiet"])


if __name__ == "__main__":
    raise SystemExit(main())
