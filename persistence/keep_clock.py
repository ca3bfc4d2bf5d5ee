"""How long a store has kept something, whatever the wall clock does meanwhile.

What is kept for a time gets a stamp of this clock, which counts milliseconds while the store is open. The
time of the caller (`now` of `idle`) drives it; between two of its calls the clock of this process does, and
tells the most that what was stamped there can have aged. The time in which a store is closed does not count:
keeping longer is never wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

KEEP_EVENTS_MS: Final = 7 * 24 * 60 * 60 * 1000
SAVE_EVERY_MS: Final = 10 * 60 * 1000  # what a crash may take back of the clock on disk
FORGET_ROWS: Final = 1024  # halves or events forgotten in one step, each one page of the log at most


class KeepClock:
    """Milliseconds since the store was made, without the time in which it was closed."""

    __slots__ = ("_ms", "_own", "_read_at", "_stamped", "_told_at")

    def __init__(self, own: Callable[[], float] = time.monotonic) -> None:
        self._own = own
        self._read_at = own()
        self._ms = 0.0
        self._told_at: float | None = None
        self._stamped = False

    def load(self, ms: int) -> None:
        """It goes on where the last process left it."""
        self._ms = float(ms)

    def stamp(self) -> int:
        """For what is stored now."""
        self._stamped = True
        return int(self._ms + 1000 * (self._own() - self._read_at))

    def tick(self, now: float) -> int:
        """Time has passed up to `now`, in monotonic seconds of the caller; the clock from now on."""
        read_at = self._own()
        own = read_at - self._read_at
        elapsed = own if self._told_at is None else max(now - self._told_at, 0.0)
        self._ms += 1000 * (min(elapsed, own) if self._stamped else elapsed)
        self._read_at, self._told_at, self._stamped = read_at, now, False
        return int(self._ms)
