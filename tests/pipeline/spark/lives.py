"""Drivers of Spark as processes that are killed, and lives that they lead one after the other."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.crash.broker_process import CHECKOUT
from tests.pipeline.spark.hooks import FAULT_FILE

SECONDS_FOR_A_START: Final = 900.0


def launch(
    folder: Path, fault: Path, module: str, *arguments: str, **environment: str
) -> subprocess.Popen[bytes]:
    """Starts the module `tests.pipeline.spark.<module>` in a group of processes of its own."""
    # Who is killed does not tidy up: all that it leaves is in the folder of this life.
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    environment |= {
        FAULT_FILE: str(fault), "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}",
    }  # fmt: skip
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.pipeline.spark.{module}", *arguments],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | environment, cwd=CHECKOUT,
            start_new_session=True,
        )  # fmt: skip


def wait(process: subprocess.Popen[bytes]) -> int:
    """Until it has ended; its exit status. One that does not end is killed, with its Java."""
    try:
        return process.wait(SECONDS_FOR_A_START)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a driver and its Java, if they have not ended."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


def points_of(parser: argparse.ArgumentParser, text: str, known: Iterable[str]) -> list[str]:
    """The points between commas; an error of the command for one that there is not."""
    points = text.split(",")
    if unknown := [point for point in points if point not in known]:
        parser.error(f"unknown points {unknown}; there are {', '.join(known)}")
    return points


def lives(name: str, times: int, live: Callable[[int, Path], tuple[str, list[str]]]) -> int:
    """Lives in a folder each, of which `live` tells what it was and what was wrong: how many were bad; their
    folders are kept.
    """
    bad = 0
    for number in range(times):
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        told, faults = live(number, folder)
        verdict = "; ".join(faults) or "all is there, once and in order"
        print(f"{number + 1}/{times}  {told}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
        bad += bool(faults)
        if faults:
            print(f"  kept: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return bad
