"""The broker's time: it counts what has elapsed, and notes what the clock on the wall showed."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.clock import JUMP_MS, NOTES, SAVE_EVERY_MS, BrokerClock
from amqp_broker.persistence import KeepTime

NOON_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clocks:
    """That on the wall, and one that nobody can set."""

    def __init__(self) -> None:
        self.wall_ms = NOON_MS
        self.elapsed_s = 12.5
        self.told: list[tuple[str, int]] = []

    def pass_time(self, ms: int) -> None:
        """On both of them."""
        self.wall_ms += ms
        self.elapsed_s += ms / 1_000

    def clock(self, kept: KeepTime | None = None) -> BrokerClock:
        """The broker's, which goes on where another broker's was."""
        found = BrokerClock(lambda: self.wall_ms, lambda: self.elapsed_s)
        found._log = self  # type: ignore[assignment]
        if kept is not None:
            found.resume(kept.now_ms, kept.notes)
        return found

    def warning(self, event: str, *, by_ms: int) -> None:
        """The log."""
        self.told.append((event, by_ms))

    def info(self, event: str, **fields: Any) -> None:
        """Nothing to look at."""


@pytest.fixture
def clocks() -> Clocks:
    """At noon."""
    return Clocks()


def test_time_is_what_has_elapsed(clocks: Clocks) -> None:
    """From what the clock on the wall showed at the beginning, wherever that is set."""
    clock = clocks.clock()
    assert clock.now_ms() == NOON_MS
    for by_ms in (DAY_MS, -3 * DAY_MS, -NOON_MS):
        before = clock.now_ms()
        clocks.wall_ms += by_ms
        assert clock.now_ms() == before
        clocks.pass_time(250)
        clock.look()
        assert clock.now_ms() == before + 250


def test_a_jump_is_logged_once(clocks: Clocks) -> None:
    """By how much, with a sign; what is less than a jump is how clocks run."""
    clock = clocks.clock()
    clocks.wall_ms += JUMP_MS - 1
    clock.look()
    assert clocks.told == []
    clocks.wall_ms += DAY_MS
    clock.look()
    clock.look()
    clocks.pass_time(HOUR_MS)
    clock.look()
    clocks.wall_ms -= 2 * DAY_MS
    clock.look()
    assert clocks.told == [("clock.jumped", DAY_MS + JUMP_MS - 1), ("clock.jumped", -2 * DAY_MS)]


def test_people_are_told_what_the_wall_showed(clocks: Clocks) -> None:
    """At any time, and find by it the first time at which it showed that, or later."""
    clock = clocks.clock()
    clocks.pass_time(HOUR_MS)
    clocks.wall_ms += DAY_MS
    clock.look()
    clocks.pass_time(HOUR_MS)
    clocks.wall_ms -= DAY_MS
    clock.look()
    clocks.pass_time(HOUR_MS)
    times = {
        NOON_MS: NOON_MS,
        NOON_MS + HOUR_MS - 1: NOON_MS + HOUR_MS - 1,
        NOON_MS + HOUR_MS: NOON_MS + DAY_MS + HOUR_MS,
        NOON_MS + 2 * HOUR_MS - 1: NOON_MS + DAY_MS + 2 * HOUR_MS - 1,
        NOON_MS + 2 * HOUR_MS: NOON_MS + 2 * HOUR_MS,
        NOON_MS + 9 * HOUR_MS: NOON_MS + 9 * HOUR_MS,
    }
    assert {at_ms: clock.shown(at_ms) for at_ms in times} == times
    assert clock.shown(NOON_MS - DAY_MS) == NOON_MS - DAY_MS, "before the first note"
    found = {
        NOON_MS - DAY_MS: NOON_MS - DAY_MS,
        NOON_MS + HOUR_MS - 1: NOON_MS + HOUR_MS - 1,
        NOON_MS + HOUR_MS: NOON_MS + HOUR_MS,
        NOON_MS + 2 * HOUR_MS: NOON_MS + HOUR_MS,
        NOON_MS + DAY_MS + HOUR_MS + 1: NOON_MS + HOUR_MS + 1,
        NOON_MS + 3 * DAY_MS: NOON_MS + 3 * DAY_MS,
    }
    assert {shown_ms: clock.time_of(shown_ms) for shown_ms in found} == found


def test_it_goes_on_where_it_stopped(clocks: Clocks) -> None:
    """While no broker runs nothing elapses; what the clock on the wall showed before is remembered."""
    first = clocks.clock()
    clocks.pass_time(HOUR_MS)
    kept = first.verb()
    clocks.pass_time(DAY_MS)
    second = clocks.clock(kept)
    again_ms = NOON_MS + HOUR_MS
    assert second.now_ms() == again_ms
    assert (second.shown(again_ms), second.shown(again_ms + 1)) == (again_ms, clocks.wall_ms + 1)
    clocks.pass_time(HOUR_MS)
    assert (second.now_ms(), second.shown(second.now_ms())) == (again_ms + HOUR_MS, clocks.wall_ms)
    assert clocks.told == []
    clocks.wall_ms -= 9 * DAY_MS
    third = clocks.clock(second.verb())
    assert third.now_ms() == again_ms + HOUR_MS
    assert clocks.told == [("clock.went_back", 9 * DAY_MS)]
    clocks.pass_time(1)
    assert third.shown(third.now_ms()) == clocks.wall_ms
    assert third.shown(NOON_MS) == NOON_MS


def test_damaged_notes_are_no_reason_not_to_start(clocks: Clocks) -> None:
    """The time itself goes on; times before are told by what the wall shows now."""
    for notes in ("", "1:2:3", "x:1", "1800000000000:x"):
        clock = clocks.clock()
        clock.resume(NOON_MS - HOUR_MS, notes)
        assert clock.now_ms() == NOON_MS - HOUR_MS
        assert clock.shown(NOON_MS - 2 * HOUR_MS) == NOON_MS - HOUR_MS


def test_notes_are_bounded(clocks: Clocks) -> None:
    """The oldest ones go: times before are told by the next one that is left."""
    clock = clocks.clock()
    for _ in range(NOTES + 9):
        clocks.pass_time(1_000)
        clocks.wall_ms += DAY_MS
        clock.look()
    assert len(clock._notes) == NOTES
    assert clock.shown(NOON_MS) == NOON_MS + 10 * DAY_MS
    assert clock.shown(clock.now_ms()) == clocks.wall_ms
    assert len(clock.verb().notes) < 8_192


def test_it_is_kept_with_what_is_stored_once_a_second(clocks: Clocks) -> None:
    """At once in a new store and after a jump, else when a second is over."""
    clock = clocks.clock()
    assert clock.to_be_kept() is not None
    clocks.pass_time(SAVE_EVERY_MS - 1)
    assert clock.to_be_kept() is None
    clocks.pass_time(1)
    assert clock.to_be_kept() == KeepTime(NOON_MS + SAVE_EVERY_MS, f"{NOON_MS}:0")
    clocks.pass_time(SAVE_EVERY_MS - 1)
    assert clock.to_be_kept() is None
    clocks.wall_ms += DAY_MS
    assert clock.to_be_kept() is not None
