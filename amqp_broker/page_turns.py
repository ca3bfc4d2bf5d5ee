"""Whose page of a retaining node is read next, and when: readers get a share of the broker's time.

    reader --ask--> turns --one page between two commits--> reader.read_page(store) --mail--> its own task

While others have the broker store what they send, all readers together use READ_SHARE of its time; with
nothing else to do they use all of it. A reader has one page in flight, and readers take turns.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import trio

from amqp_broker.operations.writer import Writer
from amqp_broker.persistence import Store
from amqp_broker.timers import Timers

BURST_S: Final = 0.02  # what readers may use at once, and owe: a few pages
WINDOW_S: Final = 0.05  # over which the broker is found busy or not
BUSY_OPERATIONS_PER_S: Final = 100  # of others, to be stored: fewer are served in between anyway


class PageReader(Protocol):
    """Something that wants a page."""

    def read_page(self, store: Store) -> None:
        """Read it; between two commits, in no task of its own."""


class Allowance:
    """How much time readers may use: a bucket that fills at the rate of their share. `share` is above 0 and
    at most 1. Times are seconds of any clock that only goes on.
    """

    def __init__(self, share: float, now: float) -> None:
        self._share = share
        self._left_s = BURST_S
        self._at = now
        self._window_at = now
        self._window_operations = 0
        self._busy = False

    def wait_s(self, now: float, operations: int) -> float:
        """How long the next page has to wait; `operations` is how many others have had stored, since ever."""
        self._left_s = min(BURST_S, self._left_s + (now - self._at) * self._share)
        self._at = now
        passed = now - self._window_at
        if passed >= WINDOW_S:
            self._busy = operations - self._window_operations >= BUSY_OPERATIONS_PER_S * passed
            self._window_at, self._window_operations = now, operations
        elif operations - self._window_operations >= BUSY_OPERATIONS_PER_S * WINDOW_S:
            self._busy = True
        if self._left_s > 0 or not self._busy or self._share >= 1:
            return 0.0
        return -self._left_s / self._share + BURST_S / 10

    def used(self, seconds: float) -> None:
        """Readers have used so much."""
        self._left_s = max(-BURST_S, self._left_s - seconds)


class PageTurns:
    """One for each broker. `share`: the part of its time that readers get beside others."""

    def __init__(self, writer: Writer, timers: Timers, share: float) -> None:
        self._writer = writer
        self._timers = timers
        self._waiting: deque[PageReader] = deque()
        self._asked = False
        self._allowance = Allowance(share, trio.current_time())
        self.own_operations = 0
        """What readers themselves have stored: moves of cursors. It does not slow them down."""

    def ask(self, reader: PageReader) -> None:
        """Have `reader.read_page` called once, in its turn."""
        self._waiting.append(reader)
        self._go_on()

    def forget(self, reader: PageReader) -> None:
        """A reader is gone; harmless when it does not wait."""
        if reader in self._waiting:
            self._waiting.remove(reader)

    def used(self, seconds: float) -> None:
        """Readers used so much of the broker's time outside of `read_page`."""
        self._allowance.used(seconds)

    def wake(self) -> None:
        """The wait is over."""
        self._go_on()

    def _go_on(self) -> None:
        if self._asked or not self._waiting:
            return
        writer = self._writer
        wait_s = self._allowance.wait_s(trio.current_time(), writer.operations_begun - self.own_operations)
        if wait_s > 0:
            self._timers.set(trio.current_time() + wait_s, self)
        else:
            self._asked = True
            writer.read(self._turn)

    def _turn(self, store: Store) -> None:
        self._asked = False
        if self._waiting:
            begun = trio.current_time()
            try:
                self._waiting.popleft().read_page(store)
            finally:  # what one page meets is no matter of the readers behind it
                self._allowance.used(trio.current_time() - begun)
                self._go_on()
