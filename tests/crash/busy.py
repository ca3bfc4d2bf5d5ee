"""Processes that take the processors from others, for as long as something runs beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PROGRAM: Final = """
import os, sys
try:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
except PermissionError:
    pass  # then they are as nice as who started them
while os.getppid() == int(sys.argv[1]):
    sum(range(1_000_000))
"""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many compute in the meantime, with nice 0 where that is allowed. They end with this process, too,
    however it ends.
    """
    command = [sys.executable, "-c", PROGRAM, str(os.getpid())]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
