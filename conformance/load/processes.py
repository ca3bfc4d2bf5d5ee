"""What /proc says about processes (Linux), and what the disk does."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, Self

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def machine_seconds() -> float:
    """Busy time of all cores so far, without waiting for disks."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) / TICKS_PER_SECOND


def resident_kib(pid: int) -> int:
    """The memory of a process that is really there (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has gone")


class Memory:
    """The most memory that a process had while it was watched, sampled ten times a second."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.before_kib = self.most_kib = resident_kib(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def growth_kib(self) -> int:
        """By how much it grew at most."""
        return self.most_kib - self.before_kib

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.most_kib = max(self.most_kib, resident_kib(self.pid))


def sync_ns(folder: Path) -> int:
    """Nanoseconds in which a block of 4 KiB is overwritten and synced below the folder: the best of some
    attempts of 250 blocks, as `artemis create` measures it.
    """
    block, blocks = bytes(4_096), 250
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(block * blocks)
        os.fsync(file.fileno())
        for _ in range(5):
            begun = time.monotonic_ns()
            for number in range(blocks):
                os.pwrite(file.fileno(), block, number * len(block))
                os.fdatasync(file.fileno())
            taken.append(time.monotonic_ns() - begun)
    return min(taken) // blocks


def wait_for_quiet(limit_s: float = 60.0) -> None:
    """Wait for a second in which nothing else runs; other users of a machine come in bursts."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        busy = machine_seconds()
        time.sleep(0.7)
        if machine_seconds() - busy < 0.07 * (os.cpu_count() or 1):
            return
