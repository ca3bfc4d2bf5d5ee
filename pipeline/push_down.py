"""Filters that Spark pushes down into a batch: on the place and the time of messages, and on their address.

    SELECT ... WHERE offset >= 500 AND enqueued_at < TIMESTAMP'2026-01-31 08:00:00Z' AND address = 'orders'

Offsets are dense and times never go back within a node, so all of these are ranges, which are the only thing
that is read then. Spark pushes filters down where its setting `spark.sql.python.filterPushdown.enabled` is
true (that of `spark_session`; Spark's own default is false).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

SETTING: Final = "spark.sql.python.filterPushdown.enabled"
MESSAGES: Final = {"offset": "offset", "enqueued_at": "time", "address": "address", "partition": "partition"}
EVENTS: Final = {"lsn": "offset", "time": "time"}
"""What of these names means what. (An event's own address and offset are of the message that it tells of.)"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class Wanted:
    """What a query wants: addresses and brokers (None: all), offsets and milliseconds from `low` on, before
    `high`."""

    addresses: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    low: int = 0
    high: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def has(self, address: str, partition: int) -> bool:
        """Whether anything there is wanted."""
        return (self.addresses is None or address in self.addresses) and (
            self.partitions is None or partition in self.partitions
        )

    def narrowed(self, low: int, high: int) -> tuple[int, int]:
        """The part of a range of offsets that is wanted."""
        return max(low, self.low), high if self.high is None else min(high, self.high)


class Pushed:
    """What a reader offers to Spark as its method pushFilters.

    Spark refuses a reader that has one of its own while the setting is off, and looks for it by the function
    behind the method: this says the one of the base, so that the same reader will do with the setting on and
    off.
    """

    __func__: Final = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, meanings: dict[str, str]) -> None:
        self._meanings = meanings
        self.wanted = Wanted()

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Takes those that it can hold exactly; the others are returned, and Spark applies them."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Filter) -> bool:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        meaning = self._meanings.get(path[0]) if len(path) == 1 else None
        if meaning is None:
            return False
        if isinstance(given, IsNotNull):
            return True  # none of them is ever null
        value: Any = getattr(given, "value", None)
        if meaning in ("offset", "time"):
            bounds = _bounds(given, value)
            if bounds is None:
                return False
            self._narrow(meaning, *bounds)
            return True
        if isinstance(given, EqualTo | EqualNullSafe):
            value = (value,)
        elif not isinstance(given, In):
            return False
        self._choose(meaning, frozenset(value))
        return True

    def _narrow(self, meaning: str, low: int | None, high: int | None) -> None:
        wanted = self.wanted
        if meaning == "offset":
            self.wanted = attrs.evolve(wanted, low=max(wanted.low, low or 0), high=_least(wanted.high, high))
            return
        since = [each for each in (wanted.since_ms, low) if each is not None]
        until_ms = _least(wanted.until_ms, high)
        self.wanted = attrs.evolve(wanted, since_ms=max(since, default=None), until_ms=until_ms)

    def _choose(self, meaning: str, values: frozenset[Any]) -> None:
        wanted = self.wanted
        if meaning == "address":
            kept = values if wanted.addresses is None else values & wanted.addresses
            self.wanted = attrs.evolve(wanted, addresses=kept)
        else:
            kept = values if wanted.partitions is None else values & wanted.partitions
            self.wanted = attrs.evolve(wanted, partitions=kept)


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _bounds(given: Filter, value: Any) -> tuple[int | None, int | None] | None:
    """From where on and before where, as whole numbers; None for a filter that is no such range."""
    if isinstance(value, datetime):
        # A time is a whole millisecond; Spark compares microseconds.
        since_epoch = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        floor = since_epoch // timedelta(milliseconds=1)
        exact = not since_epoch % timedelta(milliseconds=1)
    elif isinstance(value, int) and not isinstance(value, bool):
        floor, exact = value, True
    else:
        return None
    at_least = floor if exact else floor + 1
    if isinstance(given, GreaterThanOrEqual):
        return at_least, None
    if isinstance(given, GreaterThan):
        return floor + 1, None
    if isinstance(given, LessThan):
        return None, at_least
    if isinstance(given, LessThanOrEqual):
        return None, floor + 1
    if isinstance(given, EqualTo | EqualNullSafe):
        return (at_least, floor + 1) if exact else (0, 0)
    return None
