"""The time of an embedded broker: real, and moved on by whoever embeds it.

broker.clock.advance(30)     # what was due within half a minute has happened when it returns

    real time    ---------|......advance......|---------     however long the broker takes for it, it
    this clock   ---------|------ 30 s -------|---------     adds 30 s, and no more
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.clock import wall_clock_ms

if TYPE_CHECKING:
    from amqp_broker.broker import Broker


STEPS_MAX: Final = 1_000
"""Into which one advance is divided at most; things that are due within the same step happen at its end."""

ROUNDING_S: Final = 0.000_001
"""How much later than its time a thing happens, so that no rounding makes it a moment too early for it."""


class EmbeddedClock(trio.abc.Clock):
    """The clock that a broker's event loop runs by. `call` runs a function in the thread of the broker."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._ahead_s = 0.0
        self._advances = 0
        self._stands_at_s: float | None = None  # while it is moved on; by the real clock
        self._stood_s = 0.0  # so long until now

    def advance(self, seconds: float) -> None:
        """Time goes on by `seconds` at once, from one thing that is due to the next; returns when the broker
        has done what was due by then, and rests. Real time does not count meanwhile: it is `seconds` exactly,
        and then time goes on by itself again. The clock on the wall goes on with it. No peer counts as
        silent for it. From any thread but that of the broker. Raises ValueError: time never goes back.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"seconds: expected a number from 0 on, got {seconds!r}")
        self._call(self._advance, float(seconds))

    async def _advance(self, broker: Broker, seconds: float) -> None:
        from amqp_broker.testing.clock import rest

        with self._standing():
            with broker.spares_peers() as spare:
                await rest()  # what has just come in is older than the jump
                left, least = seconds, seconds / STEPS_MAX
                while True:
                    due = trio.lowlevel.current_statistics().seconds_to_next_deadline
                    step = min(left, max(due + ROUNDING_S, least))
                    self._ahead_s += step
                    left -= step
                    spare(step)
                    await rest()
                    if not left:
                        break
            await rest()  # with the deadlines of the connections, as they are now

    @contextmanager
    def _standing(self) -> Iterator[None]:
        """Real time does not count inside the block. Several threads may move time on at once."""
        self._advances += 1
        if self._stands_at_s is None:
            self._stands_at_s = time.perf_counter()
        try:
            yield
        finally:
            self._advances -= 1
            if not self._advances:
                self._stood_s += time.perf_counter() - self._stands_at_s
                self._stands_at_s = None

    def _not_counted_s(self) -> float:
        """How much of the real time until now does not count."""
        stands_at_s = self._stands_at_s
        now = 0.0 if stands_at_s is None else time.perf_counter() - stands_at_s
        return self._stood_s + now

    def wall_ms(self) -> int:
        """What a clock on the wall would show, in milliseconds of the Unix epoch."""
        return wall_clock_ms() + round((self._ahead_s - self._not_counted_s()) * 1_000)

    # trio.abc.Clock

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        """Seconds since some time in the past."""
        stands_at_s = self._stands_at_s
        real_s = time.perf_counter() if stands_at_s is None else stands_at_s
        return real_s - self._stood_s + self._ahead_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop may sleep in reality: for ever, as long as time stands still before it."""
        left_s = deadline - self.current_time()
        return left_s if left_s <= 0 or self._stands_at_s is None else inf
