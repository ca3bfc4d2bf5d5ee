"""The time of an embedded broker: real, and moved on by whoever embeds it.

broker.clock.advance(30)     # what was due within half a minute has happened when it returns
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.clock import wall_clock_ms

if TYPE_CHECKING:
    from amqp_broker.broker import Broker


STEPS_MAX: Final = 1_000
"""Into which one advance is divided at most; things that are due within the same step happen at its end."""


class EmbeddedClock(trio.abc.Clock):
    """The clock that a broker's event loop runs by. `call` runs a function in the thread of the broker."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._ahead_s = 0.0

    def advance(self, seconds: float) -> None:
        """Time goes on by `seconds` at once, from one thing that is due to the next; returns when the broker
        has done what was due by then, and rests. The clock on the wall goes on with it. No peer counts as
        silent for it. From any thread but that of the broker. Raises ValueError: time never goes back.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"seconds: expected a number from 0 on, got {seconds!r}")
        self._call(self._advance, float(seconds))

    async def _advance(self, broker: Broker, seconds: float) -> None:
        from amqp_broker.testing.clock import rest

        await rest()  # what has just come in is older than the jump
        end, least = self._ahead_s + seconds, seconds / STEPS_MAX
        while True:
            left = end - self._ahead_s
            due = trio.lowlevel.current_statistics().seconds_to_next_deadline
            step = min(left, max(due, least))
            self._ahead_s = end if step == left else self._ahead_s + step
            broker.spare_peers(step)
            await rest()
            if step == left:
                return

    def wall_ms(self) -> int:
        """What a clock on the wall would show, in milliseconds of the Unix epoch."""
        return wall_clock_ms() + round(self._ahead_s * 1_000)

    # trio.abc.Clock

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        """Seconds since some time in the past."""
        return time.perf_counter() + self._ahead_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop may sleep in reality."""
        return deadline - self.current_time()
