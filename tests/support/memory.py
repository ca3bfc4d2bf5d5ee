"""Whether work leaves memory behind: a law for any machine, whatever else the process does."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

ROUNDS: Final = 15
TOGETHER: Final = 3
"""A list that grows with each piece of work gets its room for an eighth more at once: not in every round."""


def left_by_each_round(work: Callable[[], None], enough: int) -> int:
    """The fewest bytes that some equal rounds of work left in memory, on the average of three in a row.

    A leak is left by all of them. What is made once, a table that has to grow, or another thread of the
    process adds to some only. It ends with the first three that left less than `enough`.
    """
    gc.collect()
    gc.freeze()  # what the process has already need not be looked at after each round
    tracemalloc.start()  # before the first round: what was there already would leave without being counted
    try:
        held: list[int] = []
        fewest = enough
        while fewest >= enough and len(held) < ROUNDS:
            work()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
            if len(held) > TOGETHER:
                fewest = min(fewest, (held[-1] - held[-1 - TOGETHER]) // TOGETHER)
        return fewest
    finally:
        tracemalloc.stop()
