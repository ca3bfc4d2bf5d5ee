"""Faults of the sink and the source, for tests: a file says which one is due, and it happens once.

The file is named by the environment variable AMQP_TEST_FAULT, which Spark's processes inherit; it holds
{"point": ..., "batch": ..., "group": pid or null, "broker": pid or null}. Whoever meets the fault first takes
it, by making the file beside it that nobody can make twice.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final

FAULT_FILE: Final = "AMQP_TEST_FAULT"
TAKEN: Final = ".taken"
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
"""In the command line of each executor of a cluster."""


class PlantedFault(Exception):
    """What the fault raises where it does not kill."""


def plant(path: Path, point: str, batch: int = 0, **fields: Any) -> None:
    """Makes a fault due; one that was taken before may be taken again."""
    forget(path)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps({"point": point, "batch": batch} | fields), encoding="utf-8")
    fresh.replace(path)


def forget(path: Path) -> None:
    """No fault is due."""
    path.unlink(missing_ok=True)
    taken_file(path).unlink(missing_ok=True)


def taken_file(path: Path) -> Path:
    """The file that says that the fault happened."""
    return path.with_suffix(TAKEN)


def due(point: str, batch: int) -> dict[str, Any] | None:
    """The fault, if it is this one and nobody took it; it is taken then."""
    name = os.environ.get(FAULT_FILE)
    if name is None:
        return None
    path = Path(name)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["point"] != point or batch < found["batch"]:
            return None
        taken_file(path).touch(exist_ok=False)
    except OSError:
        return None
    return found


def happens(point: str, batch: int) -> bool:
    """The same for faults that the caller makes himself: whether it is due."""
    return due(point, batch) is not None


def kill_executor(point: str, batch: int) -> None:
    """Ends the executor that this task runs in, with all its tasks, as if its machine was gone, where that is
    due. It is the Java that an ancestor of this process is.
    """
    if not happens(point, batch):
        return
    pid = os.getppid()
    while pid > 1:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if EXECUTOR in command:
            os.kill(pid, signal.SIGKILL)
            os._exit(9)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("this task is not in an executor of its own")


def kill(point: str, batch: int) -> None:
    """Ends the driver, with its Java, or the broker, as if the power was cut, where that is due."""
    found = due(point, batch)
    if found is None:
        return
    if found.get("broker"):
        os.kill(found["broker"], signal.SIGKILL)
    else:
        os.killpg(found["group"], signal.SIGKILL)
        os._exit(9)
