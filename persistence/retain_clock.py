"""What time it is for retention: that of the wall clock, as far as a store is told.

The times of what is published tell it, and `now` of `idle`, which never jumps, drives it on between them. A
wall clock that goes back makes nothing younger; one that goes forth makes what was published before older, as
in every log. A store that was closed learns how late it is with the first message, and keeps longer until
then.
"""

from __future__ import annotations

from typing import Final

SWEEP_RETAINED: Final = 256  # runs that are dropped in one step


class RetainClock:
    """Milliseconds of the Unix epoch, never less than before."""

    __slots__ = ("_ms", "_told_at")

    def __init__(self) -> None:
        self._ms = 0.0
        self._told_at: float | None = None

    def tick(self, now: float, latest_ms: int) -> int:
        """Time has passed up to `now`, in monotonic seconds, and something was published at `latest_ms`."""
        if self._told_at is not None:
            self._ms += max(1000 * (now - self._told_at), 0.0)
        self._told_at = now
        self._ms = max(self._ms, latest_ms)
        return int(self._ms)
