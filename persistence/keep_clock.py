"""How long a store has kept something, by a clock that stands while the store is closed.

What is kept for a time gets a stamp of it. It goes on as it is told, by `KeepTime` and by `now` of `idle`,
which are of a clock that never jumps; times in other verbs do not touch it. It is told at least once in
AWAY_MS while something is stored, so a stamp is that much later: keeping longer is never wrong.

Where it stood is kept beside the time that it was told then, so that it goes on from there when the store is
opened again. A crash takes back what it has gone on since.
"""

from __future__ import annotations

from typing import Final

KEEP_EVENTS_MS: Final = 7 * 24 * 60 * 60 * 1000
SAVE_EVERY_MS: Final = 10 * 60 * 1000  # what a crash may take back of the clock on disk
FORGET_HALVES: Final = 1024  # in one step: each may touch a page of its own, and they are 8 MiB of WAL
FORGET_ROWS: Final = 16_384  # of events: more than are logged in the second between two steps
FORGET_EVENTS: Final = 524_288  # in these rows, for the same reason: about 16 MiB, which go to the free list
AWAY_MS: Final = 1_000  # between two times that it is told, while something is stored


class KeepClock:
    """Milliseconds since the store was made, without the time in which it was closed."""

    __slots__ = ("_ms", "_told_at")

    def __init__(self) -> None:
        self._ms = 0.0
        self._told_at: float | None = None

    def load(self, ms: int, told_at: float | None = None) -> None:
        """Go on where the last process left the clock: at `ms` when it was told the time `told_at`, if that
        is known.
        """
        self._ms = float(ms)
        self._told_at = told_at

    def stamp(self) -> int:
        """The stamp of what is stored now: not earlier than this clock is then."""
        return int(self._ms) + AWAY_MS

    def tick(self, now: float) -> int:
        """Time has passed up to `now`, in seconds; the clock from now on."""
        if self._told_at is not None:
            self._ms += max(1000 * (now - self._told_at), 0.0)
        self._told_at = now
        return int(self._ms)
