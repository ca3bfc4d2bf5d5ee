"""Build the preloaded library, run a process under it, and read its log.

One record of the log, little endian, followed by `length` bytes (the letters stand in record_writes.c and
`Call`)::

    0        4        8                16               24               32
    +--------+--------+----------------+----------------+----------------+
    | letter | length |     inode      |     offset     |     result     |
    +--------+--------+----------------+----------------+----------------+
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("record_writes.c")
CHECKOUT: Final = Path(__file__).resolve().parents[2]
_RECORD: Final = struct.Struct("<IIQqq")
MEMORY_DIRECTORY: Final = Path("/dev/shm")


class NoCompiler(Exception):
    """There is no C compiler, and without one durability cannot be proved."""


class NotRecorded(Exception):
    """The process changed the directory by a call that the recorder cannot follow."""


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call.

    Letters: C created a file, O opened one, W wrote, T set the size, S synced, U removed, R renamed, D made a
    directory, M wrote a marker, X did something that cannot be followed.
    """

    letter: str
    inode: int
    offset: int
    result: int
    data: bytes

    @property
    def path(self) -> str:
        """The path below the recorded directory, of a call that names one."""
        return os.fsdecode(self.data)


def scratch_directory(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary directory in memory where the system has one: a simulated disk needs no real one."""
    inside = MEMORY_DIRECTORY if os.access(MEMORY_DIRECTORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix=prefix, dir=inside)


def build_library(directory: Path) -> Path:
    """Compile the preloaded library into `directory`; raises NoCompiler, never passes over it in silence."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler(
            "the power-loss tests compile tests/power_loss/record_writes.c and found neither gcc nor cc: "
            "install a C compiler (Debian: apt-get install gcc libc6-dev) or name one in CC"
        )
    library = directory / "record_writes.so"
    command = [
        compiler,
        "-O2",
        "-Wall",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise NoCompiler(f"{' '.join(command)} ended with {built.returncode}: {built.stderr.strip()}")
    return library


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call fails: the `at`-th of those whose letter stands in `kinds` (record_writes.c), and how."""

    at: int
    kinds: str
    errno: int
    sticky: bool = False
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recorded process ended."""

    status: int
    output: str
    errors: str
    failed_call: str | None
    """What the injected fault hit, as "number call"; None for a run that it did not reach."""


def run_recorded(
    library: Path,
    arguments: Sequence[str],
    root: Path,
    *,
    log: Path | None = None,
    markers: Path | None = None,
    fault: Fault | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    show_errors: bool = False,
) -> Outcome:
    """Run `python ARGUMENTS` with every change below `root` recorded into `log`, and `fault` injected.

    With `show_errors` its standard error (progress) goes straight to ours.
    """
    report = root.with_name(root.name + ".fault")
    report.unlink(missing_ok=True)
    environ = dict(os.environ) | dict(environment or {})
    environ |= {"LD_PRELOAD": str(library), "RECORD_ROOT": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    if log is not None:
        environ["RECORD_LOG"] = str(log)
    if markers is not None:
        environ["RECORD_MARKERS"] = str(markers)
    if fault is not None:
        environ |= {
            "FAULT_AT": str(fault.at),
            "FAULT_KINDS": fault.kinds,
            "FAULT_ERRNO": str(fault.errno),
            "FAULT_STICKY": str(int(fault.sticky)),
            "FAULT_TORN": str(int(fault.torn)),
            "FAULT_REPORT": str(report),
        }
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=None if show_errors else subprocess.PIPE,
        text=True,
        timeout=timeout,
        cwd=CHECKOUT,
        check=False,
    )
    failed = report.read_text().strip() if report.exists() else None
    return Outcome(done.returncode, done.stdout, done.stderr or "", failed)


def read_log(log: Path) -> Iterator[Call]:
    """The calls of a log, in order; raises NotRecorded where the recorder met a call it cannot follow."""
    data = log.read_bytes()
    position = 0
    while position < len(data):
        letter, length, inode, offset, result = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        call = Call(chr(letter), inode, offset, result, data[position : position + length])
        position += length
        if call.letter == "X":
            raise NotRecorded(f"the process used {call.data.decode()} below the recorded directory")
        yield call
