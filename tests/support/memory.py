"""Whether work leaves memory behind: a law for any machine, whatever else the process does."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

ROUNDS: Final = 12


def left_by_each_round(work: Callable[[], None], enough: int) -> int:
    """The fewest bytes that one of several equal rounds of work left in memory.

    A leak is left by every round. What is made once, a table that has to grow, or another thread of the
    process adds to some rounds only. It ends with the first round that leaves less than `enough`.
    """
    tracemalloc.start()  # before the first round: what was there already would leave without being counted
    try:
        work()
        fewest = enough
        before = _traced()
        for _ in range(ROUNDS):
            work()
            after = _traced()
            fewest, before = min(fewest, after - before), after
            if fewest < enough:
                break
        return fewest
    finally:
        tracemalloc.stop()


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
