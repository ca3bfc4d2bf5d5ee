"""Consumers with a priority: who has a higher one gets messages first, as long as it has credit; those with
the same share as ever. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Ranked(Protocol):
    """A link that receives from a queue."""

    browser: bool
    demand: int
    priority: int


def by_rank(consumers: Iterable[Any], assign: Callable[[], list[Any]], more: Callable[[], bool]) -> list[Any]:
    """What `assign` gives to each priority in turn, as if nobody below wanted anything; where there is `more`
    to look at for one, those below it wait.
    """
    wishes: dict[Ranked, int] = {each: each.demand for each in consumers if not each.browser}
    for each in wishes:
        each.demand = 0
    grants: list[Any] = []
    try:
        ranks = {each.priority for each, demand in wishes.items() if demand > 0} or {0}
        for rank in sorted(ranks, reverse=True):
            level = [each for each in wishes if each.priority == rank]
            for each in level:
                each.demand = wishes[each]
            grants.extend(assign())
            for each in level:
                wishes[each] = each.demand
                each.demand = 0
            if more():
                break
    finally:
        for each, demand in wishes.items():
            each.demand = demand
    return grants
