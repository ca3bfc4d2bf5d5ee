"""One table of deadlines for all connections, so that no read or write pays for a timeout of its own."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

import trio

from amqp_broker.log_setup import logger

AGAIN_S: Final = 1.0
"""After which time what met a fault of the broker is woken once more."""


class Timed(Protocol):
    """Something with deadlines."""

    def wake(self) -> None:
        """A deadline has come; a spurious call is harmless."""


Entry = list[Any]
"""[deadline, serial number, what is woken or None]: a list, so that it can be emptied in its place."""


class Timers:
    """Wakes what has a deadline. A deadline that was moved back only wakes what it is for once too often."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._count = count()
        self._set_for: dict[Timed, Entry] = {}
        self._changed = trio.Event()
        self.spares_peers = 0
        """While not 0 the clock is moved on by hand, and no connection is woken because of silence."""
        self._log = logger("timers")

    def set(self, deadline: float, timed: Timed) -> None:
        """Wake `timed` at `deadline` (trio's clock, seconds), or at an earlier deadline that it already
        has.
        """
        known = self._set_for.get(timed)
        if known is not None:
            if known[0] <= deadline:
                return
            known[2] = None
        entry = self._set_for[timed] = [deadline, next(self._count), timed]
        heappush(self._heap, entry)
        if self._heap[0][0] == deadline:
            self._changed.set()

    def forget(self, timed: Timed) -> None:
        """`timed` is gone; what is left of it until its deadline is an empty entry."""
        entry = self._set_for.pop(timed, None)
        if entry is not None:
            entry[2] = None
            if self.spares_peers and self._heap[0] is entry:
                self._changed.set()  # nothing is due then: the clock need not stop there

    async def run(self) -> None:
        """Wake forever."""
        while True:
            self._changed = trio.Event()
            while self._heap and self._heap[0][2] is None:
                heappop(self._heap)
            until = self._heap[0][0] if self._heap else float("inf")
            with trio.move_on_at(until):
                await self._changed.wait()
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                timed = heappop(self._heap)[2]
                if timed is None:
                    continue
                del self._set_for[timed]
                try:
                    timed.wake()
                except Exception:
                    self._log.exception("timer.failed", of=type(timed).__name__)
                    self.set(now + AGAIN_S, timed)
