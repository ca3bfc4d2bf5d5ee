"""Virtual time: hours pass as soon as every task waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, TypeVar

import trio
import trio.testing

from amqp_broker.operations.writer import CommitThread

AUTOJUMP_THRESHOLD_S: Final = 0.02
"""Real seconds of silence before the clock jumps.  Not zero: what goes over a socket takes a moment."""

COMMIT_LOOK_S: Final = 0.000_2
"""Between two looks whether a commit has ended."""

HELD: Final[set[object]] = set()
"""Who holds commits: time goes on beside a commit that a test does not let go."""

T = TypeVar("T")


class _StandsStillForCommits(trio.abc.Instrument):
    """A commit runs in a thread, where trio sees no task: while it does, no silence is long enough."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Called between the step that begins or ends a commit and the next wait."""
        here = trio.lowlevel.current_trio_token()
        commits = not HELD and any(thread.token is here for thread in CommitThread.at_work)
        threshold_s = inf if commits else AUTOJUMP_THRESHOLD_S
        if self._clock.autojump_threshold != threshold_s:
            self._clock.autojump_threshold = threshold_s


def run_with_virtual_clock(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """`trio.run` with a clock that jumps to the next deadline when nothing else happens."""
    clock = trio.testing.MockClock(autojump_threshold=AUTOJUMP_THRESHOLD_S)
    return trio.run(function, *arguments, clock=clock, instruments=[_StandsStillForCommits(clock)])


async def rest() -> None:
    """Return when no task of this event loop has anything to do, and no commit of it is in progress that
    nobody holds.
    """
    here = trio.lowlevel.current_trio_token()
    silence_s = 0.0
    while True:
        await trio.testing.wait_all_tasks_blocked(silence_s)  # real time, also where the clock stands still
        if HELD or not any(thread.token is here for thread in CommitThread.at_work):
            return
        silence_s = COMMIT_LOOK_S
