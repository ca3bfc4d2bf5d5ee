"""Named places where a test ends the process, or raises, to see what a crash there leaves behind.

Nothing happens unless a point is armed: by `arm` in a test, or by the environment variable
`AMQP_BROKER_FAULT_POINT=name[:n]`, which kills the process (SIGKILL) when the point is passed for the n-th
time, the first by default. The points:

`apply.begun`, `apply.done`: after BEGIN, and when all statements of a group ran.
`commit.before`, `commit.after`: around COMMIT; what passed the second one is durable.
`discharge.after_retires`, `discharge.after_posts`, `discharge.before_record`, `discharge.after_record`,
`discharge.before_commit`, `discharge.after_commit`: in a group that discharges transactions, when what its
units retire, post and record as outcomes is written, and around its COMMIT. Other groups do not pass them.
`hold.before_halves`, `hold.after_halves`, `hold.after_bodies`, `hold.before_commit`, `hold.after_commit`: in
a group that puts half messages, what its units post is written before them. `decide.before_halves`,
`decide.after_halves`, `decide.after_bodies`, `decide.before_commit`, `decide.after_commit`: in one that
decides some. `advance.before_streams`, `advance.after_streams`, `advance.before_commit`,
`advance.after_commit`: in one that advances streams. `epoch.before_record`, `epoch.after_record`,
`epoch.before_commit`, `epoch.after_commit`: in one that decides epochs; the messages that it moves have got
their new places before (`move.before_rows`, `move.after_rows`, where some were stored).
`cursor.before_rows`, `cursor.after_rows`, `cursor.before_commit`, `cursor.after_commit`: in one that moves or
forgets cursors. `retain.before_rows`, `retain.after_rows`, `retain.before_commit`, `retain.after_commit`: in
one that changes what nodes retain, or archives whole runs. `retain.before_drop`, `retain.after_drop`: in a
housekeeping unit that drops archived messages, before the runs go and before its COMMIT.
`checkpoint.before`, `checkpoint.after`.
`forget.before_commit` (outcomes), `expire.before_commit` (half messages, events), `sweep.before_commit`,
`compaction.before_commit`, `quarantine.before_commit`: housekeeping units.
`migration.before`, `migration.step`, `migration.before_commit`, `migration.after`: making or changing the
schema. `log.before_cut`, `log.after_cut`: giving up a damaged log of commits. `compact.before`,
`compact.step`, `compact.after`: giving room back (`compact.step` before the COMMIT of each
unit, or in the midst of a copy).
`backup.before`, `backup.step`, `backup.before_rename`, `backup.after`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

ENVIRONMENT_VARIABLE: Final = "AMQP_BROKER_FAULT_POINT"

FAULT_POINTS: Final = tuple(
    """
    apply.begun apply.done commit.before commit.after discharge.after_retires discharge.after_posts
    discharge.before_record discharge.after_record discharge.before_commit discharge.after_commit
    hold.before_halves hold.after_halves hold.after_bodies hold.before_commit hold.after_commit
    decide.before_halves decide.after_halves decide.after_bodies decide.before_commit
    decide.after_commit advance.before_streams advance.after_streams advance.before_commit
    advance.after_commit move.before_rows move.after_rows epoch.before_record epoch.after_record
    epoch.before_commit epoch.after_commit cursor.before_rows cursor.after_rows cursor.before_commit
    cursor.after_commit retain.before_rows retain.after_rows retain.before_commit retain.after_commit
    retain.before_drop retain.after_drop checkpoint.before checkpoint.after forget.before_commit
    expire.before_commit sweep.before_commit compaction.before_commit quarantine.before_commit
    migration.before migration.step migration.before_commit migration.after log.before_cut log.after_cut
    compact.before compact.step compact.after backup.before backup.step backup.before_rename
    backup.after
    """.split()
)
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
