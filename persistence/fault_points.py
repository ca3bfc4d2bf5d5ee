"""Named places where a test ends the process, or raises, to see what a crash there leaves behind.

Nothing happens unless a point is armed: by `arm` in a test, or by the environment variable
`AMQP_BROKER_FAULT_POINT=name[:n]`, which kills the process (SIGKILL) when the point is passed for the n-th
time, the first by default.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

ENVIRONMENT_VARIABLE: Final = "AMQP_BROKER_FAULT_POINT"

_PASSED: Final = {
    # After BEGIN, and when all statements of a group ran.
    "apply": "begun done",
    # Around COMMIT; what passed the second one is durable.
    "commit": "before after",
    # In one with large bodies, before its COMMIT; when a file was made for them; when what few of them are
    # left in a file are moved to SQLite, and before a file goes.
    "body_file": "made before_write before_sync after_sync before_move before_remove",
    # Where a body comes piece by piece to a file of its own: made, behind each piece, and behind each sync.
    "spool": "made written synced",
    # In a group that discharges transactions, when what its units retire, post and record as outcomes is
    # written, and around its COMMIT. Other groups do not pass them.
    "discharge": "after_retires after_posts before_record after_record before_commit after_commit",
    # In a group that puts half messages; what its units post is written before them.
    "hold": "before_halves after_halves after_bodies before_commit after_commit",
    # In one that decides some; that advances streams.
    "decide": "before_halves after_halves after_bodies before_commit after_commit",
    "advance": "before_streams after_streams before_commit after_commit",
    # In one that moves messages, where some were stored: before an epoch is decided.
    "move": "before_rows after_rows",
    "epoch": "before_record after_record before_commit after_commit",
    # In one that moves or forgets cursors.
    "cursor": "before_rows after_rows before_commit after_commit",
    # In one that keeps or forgets termini, or deliveries of theirs.
    "terminus": "before_rows after_rows before_commit after_commit",
    # In one that changes what nodes retain, or archives whole runs; and in a housekeeping unit that drops
    # archived messages, before the runs go and before its COMMIT.
    "retain": "before_rows after_rows before_commit after_commit before_drop after_drop",
    "checkpoint": "before after",
    # Housekeeping units: for outcomes, half messages and events, what was deleted, sparse segments, damage.
    "forget": "before_commit",
    "expire": "before_commit",
    "sweep": "before_commit",
    "compaction": "before_commit",
    # In a group that brings little to each of many queues, or takes something of that; and when what has
    # stayed is gathered by queue.
    "spread": "before_rows after_gone before_gather after_gather",
    "quarantine": "before_commit",
    # Making or changing the schema.
    "migration": "before step before_commit after",
    # Giving up a damaged log of commits.
    "log": "before_cut after_cut",
    # Giving room back; `step` before the COMMIT of each unit, or in the midst of a copy.
    "compact": "before step after",
    "backup": "before step before_rename after",
    # A data directory out of a backup; `copied` behind each file.
    "restore": "before copied before_rename after",
    # A new store of what can be read of a damaged one; `step` after each COMMIT.
    "salvage": "step before_rename",
}
FAULT_POINTS: Final = tuple([f"{what}.{when}" for what, times in _PASSED.items() for when in times.split()])
POINTS: Final = frozenset(FAULT_POINTS)

_armed: dict[str, tuple[int, Callable[[], None]]] = {}


def kill_process() -> None:
    """End this process as `kill -9` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(name: str, action: Callable[[], None] = kill_process, nth: int = 1) -> None:
    """Run `action` when the point is passed for the n-th time from now; it stays quiet before and after."""
    assert name in POINTS, f"no fault point {name!r}; there are {sorted(POINTS)}"
    _armed[name] = (nth, action)


def disarm() -> None:
    """Make all points quiet."""
    _armed.clear()


def fault_point(name: str) -> None:
    """Pass a named point."""
    if _armed:
        _pass_armed(name)


def _pass_armed(name: str) -> None:
    assert name in POINTS, f"fault point {name!r} is not in the list"
    entry = _armed.get(name)
    if entry is None:
        return
    left, action = entry
    if left > 1:
        _armed[name] = (left - 1, action)
        return
    del _armed[name]
    action()


def arm_from_environment(value: str | None) -> None:
    """Arm what the environment variable says: `name` or `name:n`; None or empty arms nothing."""
    if value:
        name, _, nth = value.partition(":")
        arm(name, kill_process, int(nth) if nth else 1)


arm_from_environment(os.environ.get(ENVIRONMENT_VARIABLE))
