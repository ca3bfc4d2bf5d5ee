"""Filters as ranges, without Spark: what is taken is exact, everything else is given back."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from amqp_broker.pipeline.push_down import EVENTS, MESSAGES, Pushed, Wanted

AT = datetime(2026, 1, 31, 8, tzinfo=UTC)
AT_MS = 1_769_846_400_000
MICRO = timedelta(microseconds=1)
OFFSET, TIME, ADDRESS, PARTITION = ("offset",), ("enqueued_at",), ("address",), ("partition",)


def wanted(*filters: Filter) -> Wanted:
    """What is left to read, where all of them are taken."""
    pushed = Pushed(MESSAGES)
    assert list(pushed(filters)) == []
    return pushed.wanted


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        (GreaterThan(OFFSET, 5), 6, None), (GreaterThanOrEqual(OFFSET, 5), 5, None),
        (LessThan(OFFSET, 5), 0, 5), (LessThanOrEqual(OFFSET, 5), 0, 6),
        (EqualTo(OFFSET, 5), 5, 6), (EqualNullSafe(OFFSET, 5), 5, 6),
    ],
)  # fmt: skip
def test_an_offset_is_a_range(given: Filter, low: int, high: int | None) -> None:
    """By each sign."""
    assert wanted(given) == Wanted(low=low, high=high)


@pytest.mark.parametrize(
    ("given", "since_ms", "until_ms"),
    [
        (GreaterThan(TIME, AT), AT_MS + 1, None), (GreaterThanOrEqual(TIME, AT), AT_MS, None),
        (LessThan(TIME, AT), None, AT_MS), (LessThanOrEqual(TIME, AT), None, AT_MS + 1),
        (EqualTo(TIME, AT), AT_MS, AT_MS + 1),
        # Between two milliseconds there is no message.
        (GreaterThan(TIME, AT + MICRO), AT_MS + 1, None),
        (GreaterThanOrEqual(TIME, AT + MICRO), AT_MS + 1, None),
        (LessThan(TIME, AT + MICRO), None, AT_MS + 1), (LessThanOrEqual(TIME, AT + MICRO), None, AT_MS + 1),
        (EqualTo(TIME, AT + MICRO), 0, 0),
        (LessThan(TIME, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)), None, 0),
    ],
)  # fmt: skip
def test_a_time_is_a_range_of_milliseconds(given: Filter, since_ms: int | None, until_ms: int | None) -> None:
    """Spark's times have microseconds."""
    assert wanted(given) == Wanted(since_ms=since_ms, until_ms=until_ms)


def test_several_filters_hold_together() -> None:
    """All of them."""
    found = wanted(
        IsNotNull(OFFSET), GreaterThan(OFFSET, 5), GreaterThan(OFFSET, 3), LessThan(OFFSET, 9),
        LessThan(OFFSET, 8),
        GreaterThan(TIME, AT), GreaterThan(TIME, AT - MICRO), In(ADDRESS, ("a", "b")), EqualTo(ADDRESS, "b"),
        In(PARTITION, (0, 1)), EqualTo(PARTITION, 1),
    )  # fmt: skip
    assert found == Wanted(frozenset("b"), frozenset({1}), 6, 8, AT_MS + 1)
    assert found.has("b", 1) and not found.has("a", 1) and not found.has("b", 0)
    assert found.narrowed(0, 100) == (6, 8) and found.narrowed(7, 7) == (7, 7)
    assert wanted(EqualTo(ADDRESS, "a"), EqualTo(ADDRESS, "b")).addresses == frozenset()


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(OFFSET, 5)), In(OFFSET, (5, 7)), IsNull(OFFSET), StringStartsWith(ADDRESS, "a"),
        GreaterThan(ADDRESS, "a"), EqualTo(("body",), b"x"), EqualTo(("properties", "subject"), "x"),
        IsNotNull(("properties",)), EqualTo(OFFSET, True),
    ],
)  # fmt: skip
def test_what_is_no_range_is_given_back(given: Filter) -> None:
    """Spark applies it, and everything is read."""
    pushed = Pushed(MESSAGES)
    assert list(pushed([given])) == [given] and pushed.wanted == Wanted()


def test_events_have_their_number_and_their_time() -> None:
    """Their address and offset are of the message that they tell of, and no place to read at."""
    pushed = Pushed(EVENTS)
    strange: list[Filter] = [EqualTo(ADDRESS, "a"), EqualTo(OFFSET, 5)]
    assert list(pushed([GreaterThan(("lsn",), 7), *strange])) == strange
    assert pushed.wanted == Wanted(low=8)


def test_the_reader_is_one_for_both_settings() -> None:
    """Spark looks whether the function is that of the base; the workers get the reader with its ranges."""
    pushed: Any = Pushed(MESSAGES)
    assert pushed.__func__ is DataSourceReader.pushFilters
    pushed([EqualTo(OFFSET, 5)])
    assert pickle.loads(pickle.dumps(pushed)).wanted == Wanted(low=5, high=6)
