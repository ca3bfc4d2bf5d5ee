"""What the writer's commits took: counted for each commit, never for a message. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

Ends = tuple[float, ...]  # said: a constant tuple that begins with a float is unset to the compiler

SECONDS: Final[Ends] = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
"""Upper ends of the buckets of how long a commit took: good disks sync in 0.1 ms, bad ones in a second."""
OPERATIONS: Final[Ends] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)
"""Upper ends of the buckets of how many operations shared a commit."""

AGES: Final[Ends] = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)
"""Upper ends of the buckets of how long messages waited, in seconds: the broker's clock has milliseconds."""


class Buckets:
    """A histogram: how many values were in each bucket, the last one above all ends, and their sum."""

    __slots__ = ("counts", "ends", "sum")

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.counts = [0] * (len(ends) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count one, `times` times."""
        self.counts[bisect_left(self.ends, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class CommitCounts:
    """Of one writer, since it began."""

    __slots__ = ("begun_at", "operations", "seconds")

    def __init__(self) -> None:
        self.seconds = Buckets(SECONDS)
        self.operations = Buckets(OPERATIONS)
        self.begun_at = 0.0
        """When the commit in progress was begun, by the monotonic clock; 0: none is."""

    def committed(self, seconds: float, operations: int) -> None:
        """A commit of so many operations took so long."""
        self.seconds.add(seconds)
        self.operations.add(operations)
        self.begun_at = 0.0
