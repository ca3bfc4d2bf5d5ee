"""The oracle: what a queue may hold in the end, given what the clients were told.

A request that puts messages into a queue is a `Promise`. Half messages, epochs of sets, streams and logs are
checked here. Who may receive a message before is in `messages`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.promises.fates import Fate

MAX_COMPLAINTS: Final = 50


@dataclass(frozen=True, slots=True)
class Promise:
    """What one request puts into a queue, if it counts: all of its rows once, side by side, in this order.

    Those of one line come in the order in which they are listed; without a line the order is free.
    """

    name: str
    rows: Sequence[str]
    fate: Fate
    line: str = ""


def check_delivered(queue: str, delivered: Sequence[str], promises: Iterable[Promise]) -> list[str]:
    """The complaints: `delivered` is everything that the queue gave, in order. No two promises share a row or
    a name.
    """
    promises = list(promises)
    owners = {row: promise.name for promise in promises for row in promise.rows}
    places: dict[str, list[int]] = defaultdict(list)
    found = []
    for place, row in enumerate(delivered):
        if row in owners:
            places[owners[row]].append(place)
        else:
            found.append(f"{queue}: {row} was delivered, and nobody sent it")
    latest: dict[str, tuple[int, str]] = {}
    for promise in promises:
        at = places.get(promise.name, [])
        rows = [delivered[place] for place in at]
        where = f"{queue}: {promise.name} is {promise.fate.value}"
        if promise.fate is Fate.ABSENT and rows:
            found.append(f"{where}, and {len(rows)} of its {len(promise.rows)} rows were delivered")
        elif (rows or promise.fate is Fate.COMMITTED) and rows != [*promise.rows]:
            found.append(f"{where}, and {_differ(rows, promise.rows)}")
        elif rows and at[-1] - at[0] >= len(rows):
            found.append(f"{where}, and others stand between its {len(rows)} rows")
        elif rows and promise.line:
            before = latest.get(promise.line, (-1, ""))
            if at[0] < before[0]:
                found.append(f"{where}, and comes before {before[1]}, which was sent earlier")
            latest[promise.line] = max(before, (at[0], promise.name))
    return shortened(found)


def _differ(rows: Sequence[str], expected: Sequence[str]) -> str:
    at = next((at for at, pair in enumerate(zip(rows, expected, strict=False)) if pair[0] != pair[1]), -1)
    first = at if at >= 0 else min(len(rows), len(expected))
    twice, missing = len(rows) - len({*rows}), len({*expected} - {*rows})
    return (
        f"{len(rows)} rows came, expected {len(expected)}: {twice} twice, {missing} missing, "
        f"first difference at {first}"
    )


def shortened(complaints: list[str]) -> list[str]:
    """A page of them, and how many are left out."""
    hidden = len(complaints) - MAX_COMPLAINTS
    return complaints[:MAX_COMPLAINTS] + ([f"and {hidden} more"] if hidden > 0 else [])
