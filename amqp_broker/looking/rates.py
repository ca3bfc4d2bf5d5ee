"""By how much counts grow a second between two looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Row = dict[str, Any]

PER_SECOND: Final = "/s"
COUNTED: Final = (
    "arrived", "sent", "accepted", "received", "posted", "copied", "unrouted", "returned",
)  # fmt: skip
"""Counts since the broker started; of these a table also has how many there were a second."""


def grown(before: Any, now: Any) -> float | None:
    """By how much; None where that is not known: the first time, and where the broker started anew."""
    if not isinstance(before, int | float) or not isinstance(now, int | float) or now < before:
        return None
    return now - before


def add_rates(rows: Sequence[Row], former: Iterable[Mapping[str, Any]], seconds: float) -> None:
    """Give each row the rates of its counts (`sent/s`), since its row of `seconds` ago; None where it had
    none.
    """
    known = {row["identity"]: row for row in former}
    counted = [name for name in COUNTED if rows and name in rows[0]]
    for row in rows:
        old = known.get(row["identity"])
        for name in counted:
            more = None if old is None else grown(old.get(name), row[name])
            row[name + PER_SECOND] = None if more is None or seconds <= 0 else more / seconds
