"""How long a call takes at best, whatever else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest(call: Callable[[], object], tries: int) -> float:
    """Seconds of the fastest of so many calls."""
    best = float("inf")
    for _ in range(tries):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best
