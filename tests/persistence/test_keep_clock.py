"""The clock by which a store forgets."""

from __future__ import annotations

from amqp_broker.clock import SAVE_EVERY_MS
from amqp_broker.persistence.keep_clock import AWAY_MS, KeepClock

DAY_S = 86_400.0


def test_time_passes_as_it_is_told() -> None:
    """Time passes between two ticks of the caller, not before the first one, and never back."""
    clock = KeepClock()
    assert [clock.tick(now) for now in (500.0, 500.5, 503.0, 502.0, 502.25)] == [0, 500, 3000, 3000, 3250]


def test_it_goes_on_where_it_was() -> None:
    """The time in which the store was closed does not count."""
    clock = KeepClock()
    clock.load(7000)
    assert [clock.tick(10.0), clock.tick(11.0)] == [7000, 8000]


def test_it_goes_on_from_the_time_that_it_was_told() -> None:
    """The time since the known one counts. After a crash that takes time back the clock waits."""
    clock = KeepClock()
    clock.load(7000, 10.0)
    assert [clock.tick(now) for now in (11.0, 12.0)] == [8000, 9000]
    clock.load(7000, 10.0)
    assert [clock.tick(now) for now in (9.0, 10.0)] == [7000, 8000]


def test_stamp_is_not_earlier_than_the_clock_is_then() -> None:
    """A stamp is not early while the clock gets the time as often as it asks for."""
    clock = KeepClock()
    for now in (0.0, 0.9, 5 * DAY_S, 5 * DAY_S + 1):
        clock.tick(now)
        stamp = clock.stamp()
        assert clock.tick(now + AWAY_MS / 1000) <= stamp < 1000 * now + 2 * AWAY_MS


def test_the_broker_tells_it_as_often_as_it_wants() -> None:
    """The broker's interval fits the one that the clock asks for."""
    assert SAVE_EVERY_MS <= AWAY_MS
