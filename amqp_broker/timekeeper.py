"""Has the broker's time kept where nothing else is stored (`clock`)."""

from __future__ import annotations

from typing import Final

import trio

from amqp_broker.clock import BrokerClock
from amqp_broker.operations.posting import Step
from amqp_broker.operations.writer import Writer
from amqp_broker.timers import Timers

SAVE_IDLE_S: Final = 600.0  # by a commit of its own


class Timekeeper:
    """Has the time kept where nothing else is stored, and jumps noticed that no group has met."""

    def __init__(self, clock: BrokerClock, writer: Writer, timers: Timers) -> None:
        self._clock = clock
        self._writer = writer
        self._timers = timers

    def begin(self) -> None:
        """The first time after a while: the first group that stores something does so anyway."""
        self._timers.set(trio.current_time() + SAVE_IDLE_S, self)

    def wake(self) -> None:
        """Keep it now, and again after a while."""
        self._clock.look()
        self._writer.submit(Step([self._clock.verb()]))
        self.begin()
