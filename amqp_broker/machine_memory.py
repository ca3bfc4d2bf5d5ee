"""How much memory the process may use: that of the machine, or what its control groups leave it of that."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from amqp_broker.configuration_limits import MESSAGES_IN_MEMORY

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig

UNKNOWN_BYTES = 1 << 30  # where neither the machine nor a control group says anything


def memory_bytes(config: BrokerConfig) -> int:
    """The budget: as configured, or half of what there is, but enough for messages of the largest size."""
    limits = config.limits
    if limits.memory_bytes:
        return limits.memory_bytes
    return max(machine_memory_bytes() // 2, MESSAGES_IN_MEMORY * limits.max_message_size_bytes)


def machine_memory_bytes(root: Path = Path("/")) -> int:
    """The least of the machine's memory and the limits of the control groups (both versions) that the process
    is in, from its own one up to the outermost. `root` is where the system's files are.
    """
    found = [UNKNOWN_BYTES]
    machine = _physical_bytes()
    if machine is not None:
        found = [machine]
    return min([*found, *_group_limits(root)])


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _group_limits(root: Path) -> list[int]:
    limits: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, group = parts
        if not controllers:
            directory, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            directory, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath(group)
        for each in (path, *path.parents):
            text = _read(directory / str(each).lstrip("/") / name).strip()
            if text.isdecimal() and int(text) > 0:
                limits.append(int(text))
    return limits


def _read(path: Path) -> str:
    """A small file of the system, or nothing."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
