"""Virtual time: hours pass as soon as every task waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import trio
import trio.testing

AUTOJUMP_THRESHOLD_S: Final = 0.02
"""Real seconds of silence before the clock jumps.  Not zero: a commit runs in a thread, where trio sees no
task.
"""

T = TypeVar("T")


def virtual_clock(autojump_threshold_s: float = AUTOJUMP_THRESHOLD_S) -> trio.testing.MockClock:
    """A clock for `trio.run(..., clock=...)` that jumps to the next deadline when nothing else happens."""
    return trio.testing.MockClock(autojump_threshold=autojump_threshold_s)


def run_with_virtual_clock(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """`trio.run` with a virtual clock."""
    return trio.run(function, *arguments, clock=virtual_clock())
