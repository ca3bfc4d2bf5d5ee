"""Incoming unsettled deliveries of a session as ranges of delivery numbers, each with its link.

A run of deliveries is one range, so that receiving and settling it costs the same for one as for five
hundred. A range from the wire costs as many steps as ranges overlap it, never its width.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqp_broker.links.receiver_link import ReceiverLink


class UnsettledRanges:
    """Disjoint ranges in growing order. Numbers are delivery-ids before they are cut to 32 bits."""

    __slots__ = ("count", "_firsts", "_lasts", "_links")

    def __init__(self) -> None:
        self.count = 0
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._links: list[ReceiverLink] = []

    def add(self, first: int, last: int, link: ReceiverLink) -> None:
        """Adds a range behind all others."""
        assert first <= last and (not self._lasts or self._lasts[-1] < first), "delivery numbers only grow"
        self.count += last - first + 1
        if self._lasts and self._lasts[-1] == first - 1 and self._links[-1] is link:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
            self._links.append(link)

    def find(self, first: int, last: int) -> list[tuple[int, int, ReceiverLink]]:
        """What of `first` to `last` is unsettled, as (first, last, link) in order."""
        start, stop = self._overlap(first, last)
        return [
            (max(self._firsts[index], first), min(self._lasts[index], last), self._links[index])
            for index in range(start, stop)
        ]

    def take(self, first: int, last: int) -> list[tuple[int, int, ReceiverLink]]:
        """`find`, and what is found is not unsettled any more."""
        start, stop = self._overlap(first, last)
        if start == stop:
            return []
        if stop - start == 1:
            here_first, here_last, link = self._firsts[start], self._lasts[start], self._links[start]
            if first <= here_first:
                if last >= here_last:
                    del self._firsts[start], self._lasts[start], self._links[start]
                    self.count -= here_last - here_first + 1
                    return [(here_first, here_last, link)]
                self._firsts[start] = last + 1
                self.count -= last - here_first + 1
                return [(here_first, last, link)]
        there = slice(start, stop)
        found = list(zip(self._firsts[there], self._lasts[there], self._links[there], strict=True))
        found[0] = (max(found[0][0], first), found[0][1], found[0][2])
        found[-1] = (found[-1][0], min(found[-1][1], last), found[-1][2])
        firsts: list[int] = []
        lasts: list[int] = []
        links: list[ReceiverLink] = []
        if self._firsts[start] < first:
            firsts.append(self._firsts[start])
            lasts.append(first - 1)
            links.append(self._links[start])
        if self._lasts[stop - 1] > last:
            firsts.append(last + 1)
            lasts.append(self._lasts[stop - 1])
            links.append(self._links[stop - 1])
        self._firsts[start:stop] = firsts
        self._lasts[start:stop] = lasts
        self._links[start:stop] = links
        for taken_first, taken_last, _ in found:
            self.count -= taken_last - taken_first + 1
        return found

    def drop_link(self, link: ReceiverLink) -> None:
        """Forgets everything of `link`."""
        keep = [index for index, owner in enumerate(self._links) if owner is not link]
        self._firsts = [self._firsts[index] for index in keep]
        self._lasts = [self._lasts[index] for index in keep]
        self._links = [self._links[index] for index in keep]
        self.count = sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def _overlap(self, first: int, last: int) -> tuple[int, int]:
        """The slice of ranges that share a number with `first` to `last`."""
        firsts = self._firsts
        count = len(firsts)
        if count and first >= firsts[-1]:  # what came last is often decided at once
            return (count - 1 if first <= self._lasts[-1] else count), count
        if count > 1 and last < firsts[1]:  # and what waits is mostly decided in its order
            return int(first > self._lasts[0]), int(last >= firsts[0])
        start = bisect_right(self._firsts, first) - 1
        if start < 0 or self._lasts[start] < first:
            start += 1
        stop = bisect_right(self._firsts, last)
        return start, max(start, stop)
