"""One table of deadlines, on trio's virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from amqp_broker.timers import AGAIN_S, Timers


class Sleeper:
    """Notes when it was woken."""

    def __init__(self) -> None:
        self.woken: list[float] = []

    def wake(self) -> None:
        self.woken.append(trio.current_time())


def run(scenario: object) -> None:
    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))  # type: ignore[arg-type]


def test_each_is_woken_at_its_deadline() -> None:
    """Deadlines come in their order, whatever the order in which they were set."""

    async def main() -> None:
        timers = Timers()
        late, early = Sleeper(), Sleeper()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            timers.set(start + 20, late)
            timers.set(start + 5, early)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
        assert early.woken == [start + 5] and late.woken == [start + 20]

    run(main)


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    """Only the earliest deadline of one owner counts; it is asked again when it was woken."""

    async def main() -> None:
        timers = Timers()
        sleeper = Sleeper()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            timers.set(start + 20, sleeper)
            timers.set(start + 5, sleeper)
            timers.set(start + 10, sleeper)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
        assert sleeper.woken == [start + 5]

    run(main)


def test_who_is_gone_is_not_woken() -> None:
    """A forgotten owner is left alone."""

    async def main() -> None:
        timers = Timers()
        sleeper = Sleeper()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            timers.set(trio.current_time() + 5, sleeper)
            timers.forget(sleeper)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
        assert sleeper.woken == []

    run(main)


def test_a_fault_in_one_that_is_woken_is_its_own() -> None:
    """The others are woken at their deadlines, and it is woken once more."""

    class Faulty(Sleeper):
        def wake(self) -> None:
            super().wake()
            if len(self.woken) == 1:
                raise AssertionError("planted")

    async def main() -> None:
        timers = Timers()
        faulty, other = Faulty(), Sleeper()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            timers.set(start + 5, faulty)
            timers.set(start + 5, other)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
        assert faulty.woken == [start + 5, start + 5 + AGAIN_S]
        assert other.woken == [start + 5]

    run(main)
