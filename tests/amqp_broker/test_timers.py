"""One table of deadlines, on trio's virtual clock."""

from __future__ import annotations

import trio

from amqp_broker.testing import run_with_virtual_clock
from amqp_broker.timers import AGAIN_S, Timers
from tests.support.by_hand import Main, drives


class Sleeper:
    """Notes when it was woken, in seconds from the beginning."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.woken: list[float] = []

    def wake(self) -> None:
        self.woken.append(trio.current_time() - self.start)


class Faulty(Sleeper):
    """One that fails the first time."""

    def wake(self) -> None:
        super().wake()
        if len(self.woken) == 1:
            raise AssertionError("planted")


def with_timers(main: Main) -> None:
    """Run `main` with timers, and with what sets a deadline of a sleeper so many seconds from now."""

    async def run() -> None:
        timers, start = Timers(), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await main(timers, start)
            nursery.cancel_scope.cancel()

    run_with_virtual_clock(run)


timed = drives(with_timers, given=2)


@timed
async def test_each_is_woken_at_its_deadline(timers: Timers, start: float) -> None:
    """Deadlines come in their order, whatever the order in which they were set. Only the earliest of one
    owner counts; it is asked again when it was woken. A forgotten owner is left alone.
    """
    late, early, several, gone = (Sleeper(start) for _ in range(4))
    timers.set(start + 20, late)
    timers.set(start + 5, early)
    for seconds in (20, 5, 10):
        timers.set(start + seconds, several)
    timers.set(start + 5, gone)
    timers.forget(gone)
    await trio.sleep(30)
    assert (late.woken, early.woken, several.woken, gone.woken) == ([20], [5], [5], [])


@timed
async def test_a_fault_in_one_that_is_woken_is_its_own(timers: Timers, start: float) -> None:
    """The others are woken at their deadlines, and it is woken once more."""
    faulty, other = Faulty(start), Sleeper(start)
    timers.set(start + 5, faulty)
    timers.set(start + 5, other)
    await trio.sleep(30)
    assert (faulty.woken, other.woken) == ([5, 5 + AGAIN_S], [5])
