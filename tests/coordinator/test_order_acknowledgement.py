"""The Order Ack Send Timer by a clock that the test moves."""

from __future__ import annotations

from amqp_broker.coordinator.sequences import OrderTimer


def test_without_a_debounce_everything_is_sent_at_once() -> None:
    """The default."""
    timer = OrderTimer(0, 100)
    assert timer.arrived(1.0) and timer.deadline is None


def test_each_arrival_restarts_the_timer() -> None:
    """Until nothing comes for the debounce."""
    timer = OrderTimer(10, 1_000)
    timer.sent(0.0)
    for now in (0.1, 0.105, 0.11):
        assert not timer.arrived(now)
        assert timer.deadline == now + 0.01


def test_it_is_never_later_than_the_maximum_after_the_last_one_sent() -> None:
    """A steady stream is answered every max_delay."""
    timer = OrderTimer(60, 100)
    timer.sent(0.0)
    assert not timer.arrived(0.03) and timer.deadline == 0.03 + 0.06
    assert not timer.arrived(0.08) and timer.deadline == 0.1
    assert timer.arrived(0.1)
    timer.sent(0.1)
    assert timer.deadline is None


def test_after_a_long_silence_the_first_arrival_starts_it_and_the_next_leave_it() -> None:
    """The source restarts an active timer only when the last one was sent a short while ago."""
    timer = OrderTimer(10, 100)
    assert not timer.arrived(50.0) and timer.deadline == 50.0 + 0.01
    assert not timer.arrived(50.005) and timer.deadline == 50.0 + 0.01


def test_the_first_arrival_waits_no_longer_than_the_maximum() -> None:
    """A debounce above the maximum, or one that would end after it, is cut: nothing is told too late."""
    timer = OrderTimer(10_000, 100)
    assert not timer.arrived(50.0) and timer.deadline == 50.0 + 0.1
    assert not timer.arrived(50.09) and timer.deadline == 50.0 + 0.1
    assert timer.arrived(50.1)
    timer = OrderTimer(60, 100)
    timer.sent(1.0)
    assert not timer.arrived(1.05) and timer.deadline == 1.0 + 0.1
