"""The law of memory finds a leak of one reference for each piece of work, and nothing else."""

from __future__ import annotations

from collections import deque

from tests.support.memory import left_by_each_round

COUNT = 1_000


def test_one_reference_for_each_is_a_leak() -> None:
    """The smallest one: a list that grows by what is there in any case."""
    leaked: list[None] = []

    def work() -> None:
        for _ in range(COUNT):
            leaked.append(None)

    assert left_by_each_round(work, COUNT) >= COUNT


def test_a_cache_that_is_full_some_time_is_none() -> None:
    """It grows for some rounds, and then no more; nor is it a leak what one of the rounds leaves."""
    cache: deque[bytes] = deque(maxlen=3 * COUNT)
    once: list[bytes] = []

    def work() -> None:
        if len(cache) == 2 * COUNT:
            once.append(bytes(1 << 20))
        for number in range(COUNT):
            cache.append(b"%050d" % number)

    assert left_by_each_round(work, COUNT) < COUNT
