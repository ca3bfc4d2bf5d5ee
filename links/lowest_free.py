"""Handles and channels: the lowest number that is not in use (2.5.1, 2.7.3), without a walk over all that
are.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush


class LowestFree:
    """Numbers from 0 on. Who takes one puts it into its own table; who frees one says so here."""

    __slots__ = ("_next", "_released")

    def __init__(self) -> None:
        self._next = 0
        self._released: list[int] = []

    def find(self, used: Container[int]) -> int:
        """The lowest number that is not in `used`."""
        released = self._released
        while released:
            if released[0] not in used:
                return released[0]
            heappop(released)
        while self._next in used:
            self._next += 1
        return self._next

    def release(self, number: int) -> None:
        """`number` is not in use any more."""
        if number < self._next:
            heappush(self._released, number)
