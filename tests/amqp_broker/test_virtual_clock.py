"""`run_with_virtual_clock`: hours pass in a silence, and a commit is none."""

from __future__ import annotations

import time

import trio

from amqp_broker.operations.writer import CommitThread
from amqp_broker.testing import run_with_virtual_clock
from amqp_broker.testing.clock import AUTOJUMP_THRESHOLD_S, HELD

SLOW_S = 5 * AUTOJUMP_THRESHOLD_S  # as on a busy machine
HOUR_S = 3600.0


async def hours_beside(call_s: float) -> float:
    """How far the clock goes while a commit takes `call_s`, beside somebody who waits for an hour."""
    thread = CommitThread()
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, HOUR_S)
        await thread.run(lambda: time.sleep(call_s))
        passed_s = trio.current_time() - began_s
        nursery.cancel_scope.cancel()
    thread.stop()
    assert not CommitThread.at_work
    return passed_s / HOUR_S


def test_time_stands_still_while_a_commit_runs() -> None:
    """What has an hour does not lose it to a slow disk."""
    assert run_with_virtual_clock(hours_beside, SLOW_S) == 0


def test_time_goes_on_beside_a_commit_that_is_held() -> None:
    """It is the test that holds it, and then waits for what comes of that."""
    HELD.add(test_time_goes_on_beside_a_commit_that_is_held)
    try:
        assert run_with_virtual_clock(hours_beside, SLOW_S) == 1
    finally:
        HELD.clear()


def test_time_goes_on_behind_a_commit_and_beside_that_of_another_loop() -> None:
    """An embedded broker is in a thread of its own."""

    async def both() -> float:
        began_s = trio.current_time()
        thread = CommitThread()
        async with trio.open_nursery() as nursery:
            await thread.run(lambda: None)
            thread.token = None  # type: ignore[assignment]
            CommitThread.at_work.add(thread)
            nursery.start_soon(trio.sleep, HOUR_S)
        CommitThread.at_work.discard(thread)
        thread.stop()
        return trio.current_time() - began_s

    assert run_with_virtual_clock(both) == HOUR_S
