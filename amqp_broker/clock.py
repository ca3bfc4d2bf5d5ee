"""What time it is. A clock is a witness, not a judge.

The broker's time counts what has elapsed: it goes on with the clock that nobody can set, and stands while no
broker runs. All that is stored, kept for a time or due at a time is by it, in milliseconds: ttl, deadlines,
locks, retention, tombstones. So no jump of the clock on the wall makes anything early or late.

    clock on the wall   12:00 ... 12:10 | set: 13:00 ... 13:20 | off for a night | 08:00 ...
    broker's time       12:00 ... 12:10 |      12:10 ... 12:30 |                 | 12:30 ...
    notes (ahead by)          0         |      00:50           |                 | 19:30

What the clock on the wall showed is noted whenever the two part: when the broker starts again, and when
somebody sets it. By these notes people are told times (`shown`), and what they ask for is found (`time_of`);
they decide nothing.

The store keeps the broker's time with what it commits, once a second at most. A crash takes back so much of
it, or `timekeeper.SAVE_IDLE_S` where nothing was stored: that makes things late, never early.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import trio

from amqp_broker.log_setup import logger
from amqp_broker.persistence import KeepTime

JUMP_MS: Final = 1_000  # less than that is how clocks run
SAVE_EVERY_MS: Final = 1_000  # with a commit that there is anyway; not above AWAY_MS of the store
NOTES: Final = 256  # starts and jumps that are noted, 7 KB; what was before them is told as what came next


def wall_clock_ms() -> int:
    """Milliseconds of the Unix epoch."""
    return time.time_ns() // 1_000_000


class BrokerClock:
    """The time of one broker, which begins with what the clock on the wall shows when a store is made."""

    def __init__(
        self, wall_ms: Callable[[], int] = wall_clock_ms, elapsed_s: Callable[[], float] = trio.current_time
    ) -> None:
        self._wall_ms = wall_ms
        self._elapsed_s = elapsed_s
        self._began_s = elapsed_s()
        self._began_ms = wall_ms()
        self._notes: list[tuple[int, int]] = [(self._began_ms, 0)]
        self._kept_ms = 0
        self._log = logger("clock")

    def resume(self, now_ms: int, notes: str) -> None:
        """Go on where the store says that the last broker has stopped."""
        self._began_s, self._began_ms = self._elapsed_s(), now_ms
        self._notes = _read(notes) or [(now_ms, self._wall_ms() - now_ms)]
        self._kept_ms = now_ms
        ahead_ms = self._wall_ms() - now_ms
        away_ms = ahead_ms - self._notes[-1][1]
        if away_ms:
            self._note(now_ms + 1, ahead_ms)  # what has that time already was before
        if away_ms <= -JUMP_MS:
            self._log.warning("clock.went_back", by_ms=-away_ms)
        else:
            self._log.info("clock.resumed", away_ms=away_ms)

    def now_ms(self) -> int:
        """The broker's time. It only goes on."""
        return self._began_ms + round(1_000 * (self._elapsed_s() - self._began_s))

    # The clock on the wall

    def look(self) -> None:
        """Note what the clock on the wall shows, if it was set since the last look."""
        now_ms = self.now_ms()
        ahead_ms = self._wall_ms() - now_ms
        by_ms = ahead_ms - self._notes[-1][1]
        if not -JUMP_MS < by_ms < JUMP_MS:
            self._note(now_ms, ahead_ms)
            self._log.warning("clock.jumped", by_ms=by_ms)

    def _note(self, now_ms: int, ahead_ms: int) -> None:
        if self._notes[-1][0] >= now_ms:  # nothing happened in between
            self._notes.pop()
        self._notes.append((now_ms, ahead_ms))
        del self._notes[:-NOTES]
        self._kept_ms = 0

    def shown(self, at_ms: int) -> int:
        """What the clock on the wall showed at a time of ours, or will show."""
        since_ms, ahead_ms = self._notes[-1]
        if at_ms < since_ms:
            ahead_ms = self._notes[max(bisect_right(self._notes, (at_ms, _LATE)) - 1, 0)][1]
        return at_ms + ahead_ms

    def time_of(self, shown_ms: int) -> int:
        """The first time of ours when the clock on the wall showed `shown_ms` or later."""
        notes = self._notes
        for at, (since_ms, ahead_ms) in enumerate(notes):
            found = shown_ms - ahead_ms if at == 0 else max(since_ms, shown_ms - ahead_ms)
            if at + 1 == len(notes) or found < notes[at + 1][0]:
                return found
        raise AssertionError("there is always a last note")

    # What the store keeps

    def to_be_kept(self) -> KeepTime | None:
        """What the group that is made now keeps besides, if it is time for that. If that comes to nothing
        a later one does it.
        """
        self.look()
        now_ms = self.now_ms()
        if now_ms < self._kept_ms + SAVE_EVERY_MS:
            return None
        self._kept_ms = now_ms
        return self.verb()

    def verb(self) -> KeepTime:
        """The broker's time and its notes, as the store keeps them."""
        notes = " ".join([f"{since_ms}:{ahead_ms}" for since_ms, ahead_ms in self._notes])
        return KeepTime(self.now_ms(), notes)


_LATE: Final = 1 << 62  # as far ahead as no clock is


def _read(notes: str) -> list[tuple[int, int]]:
    """Nothing if they are damaged."""
    found: list[tuple[int, int]] = []
    try:
        for note in notes.split():
            since_ms, ahead_ms = note.split(":")
            found.append((int(since_ms), int(ahead_ms)))
    except ValueError:
        return []
    return found
