"""The clock by which a store forgets."""

from __future__ import annotations

from amqp_broker.persistence.keep_clock import AWAY_MS, MOST_AHEAD_MS, KeepClock

HOUR_MS = 3_600_000
DAY_S = 86_400.0


def test_time_passes_as_it_is_told() -> None:
    """Between two ticks of the caller, not before the first one, and never back."""
    clock = KeepClock()
    assert [clock.tick(now) for now in (500.0, 500.5, 503.0, 502.0, 502.25)] == [0, 500, 3000, 3000, 3250]


def test_it_goes_on_where_it_was() -> None:
    """The time in which the store was closed does not count."""
    clock = KeepClock()
    clock.load(7000)
    assert [clock.tick(10.0), clock.tick(11.0)] == [7000, 8000]


def test_stamp_is_not_earlier_than_the_clock_will_be() -> None:
    """Whatever lies between the last tick, the stamp and the next tick."""
    clock = KeepClock()
    clock.stamp(1_000_000)
    clock.tick(0.0)
    wall_ms = 1_000_000
    for now, quiet_s in ((0.2, 0.0), (3600.0, 3599.0), (5 * DAY_S, 4 * DAY_S), (5 * DAY_S + 1, 0.9)):
        before = clock.stamp(wall_ms + int(quiet_s * 1000))
        wall_ms += int(quiet_s * 1000)
        assert clock.tick(now) <= before
        assert clock.tick(now) > before - 2 * AWAY_MS - 2000


def test_pause_that_ends_with_a_stamp_counts() -> None:
    """For what was there before it, by the wall clock that the stamps show."""
    clock = KeepClock()
    clock.stamp(0)
    clock.tick(0.0)
    clock.stamp(HOUR_MS)
    assert clock.tick(3600.2) == HOUR_MS + 200


def test_wall_clock_that_goes_back_or_stands_makes_it_slow() -> None:
    """It goes on by what the writer takes to come back, at most, and is right again afterwards."""
    for jump_ms in (0, -HOUR_MS, -1000 * HOUR_MS):
        clock = KeepClock()
        clock.stamp(2000 * HOUR_MS)
        clock.tick(0.0)
        clock.stamp(2000 * HOUR_MS + jump_ms)
        assert clock.tick(3600.0) == AWAY_MS
        clock.stamp(2000 * HOUR_MS + jump_ms + HOUR_MS)
        assert clock.tick(7200.0) == AWAY_MS + HOUR_MS
        assert clock.tick(10800.0) == AWAY_MS + 2 * HOUR_MS


def test_wall_clock_that_goes_forth_keeps_longer_by_a_day() -> None:
    """Not by the years of its jump; and the clock itself is not moved by it."""
    clock = KeepClock()
    clock.stamp(0)
    clock.tick(0.0)
    assert clock.stamp(10_000 * HOUR_MS) == MOST_AHEAD_MS + AWAY_MS
    assert clock.tick(1.0) == 1000
    assert clock.stamp(10_000 * HOUR_MS + 500) == 1500 + AWAY_MS


def test_first_of_several_stamps_bounds_it() -> None:
    """A later one says nothing about what was stored before it."""
    clock = KeepClock()
    clock.stamp(0)
    clock.tick(0.0)
    first = clock.stamp(1000)
    clock.stamp(HOUR_MS)
    assert clock.tick(2 * 3600.0) == first == 1000 + AWAY_MS
