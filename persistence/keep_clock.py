"""How long a store has kept something, whatever the wall clock does meanwhile.

What is kept for a time gets a stamp of this clock, which counts milliseconds while the store is open. `now`
of `idle`, which never jumps, drives it. Between two of those calls only the times in the verbs tell how late
it is, and they are of a wall clock: one that goes forth makes a stamp later, by a day at most; one that goes
back or stands makes the clock stand. Both mean keeping longer, which is never wrong. So does the time in
which a store is closed, which does not count.

    tick             stamp   stamp                        tick
     |--- ahead -------*-------*----- AWAY_MS at most -----|      what the clock goes on by, if it was stamped
"""

from __future__ import annotations

from typing import Final

KEEP_EVENTS_MS: Final = 7 * 24 * 60 * 60 * 1000
SAVE_EVERY_MS: Final = 10 * 60 * 1000  # what a crash may take back of the clock on disk
FORGET_HALVES: Final = 1024  # in one step: each may touch a page of its own, and they are 8 MiB of WAL
FORGET_ROWS: Final = 16_384  # of events: more than are logged in the second between two steps
FORGET_EVENTS: Final = 524_288  # in these rows, for the same reason: about 16 MiB, which go to the free list
AWAY_MS: Final = 60_000  # from a commit to the next `idle`: the writer is sixty times as quick
MOST_AHEAD_MS: Final = 24 * 60 * 60 * 1000


class KeepClock:
    """Milliseconds since the store was made, without the time in which it was closed."""

    __slots__ = ("_ahead_ms", "_ms", "_stamped", "_told_at", "_wall_ms")

    def __init__(self) -> None:
        self._ms = 0.0
        self._told_at: float | None = None
        self._wall_ms: float | None = None  # what the wall clock showed at the last tick, as far as known
        self._stamped: int | None = None  # the last time of the wall clock since then
        self._ahead_ms = 0.0  # of the first stamp since then

    def load(self, ms: int) -> None:
        """It goes on where the last process left it."""
        self._ms = float(ms)

    def stamp(self, at_ms: int) -> int:
        """For what is stored when the wall clock shows `at_ms`; not earlier than this clock is then."""
        if self._wall_ms is None:
            self._wall_ms = at_ms
        ahead_ms = min(max(at_ms - self._wall_ms, 0.0), MOST_AHEAD_MS)
        if self._stamped is None or ahead_ms < self._ahead_ms:
            self._ahead_ms = ahead_ms
        self._stamped = at_ms
        return int(self._ms + ahead_ms) + AWAY_MS

    def tick(self, now: float) -> int:
        """Time has passed up to `now`, in monotonic seconds; the clock from now on."""
        elapsed_ms = 0.0 if self._told_at is None else max(1000 * (now - self._told_at), 0.0)
        self._told_at = now
        if self._stamped is not None:
            elapsed_ms = min(elapsed_ms, self._ahead_ms + AWAY_MS)
            self._wall_ms, self._stamped = self._stamped, None
        elif self._wall_ms is not None:
            self._wall_ms += elapsed_ms
        self._ms += elapsed_ms
        return int(self._ms)
