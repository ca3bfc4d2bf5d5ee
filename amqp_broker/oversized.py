"""Available messages of a queue that were too large for a link (max-message-size, 2.7.3), out of the way of
those behind them.

    taken for a link that takes at most 100 --too large--> under 100 --> for links that take more than 100

A link looks only where nothing is known to be too large for it, so a message is looked at once for each size
that links have, and not each time they want something.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from amqp_broker.persistence import Record

OVERSIZED_MESSAGES: Final = 8_192  # as many as a window: beyond it, or the bytes, links with a bound wait
OVERSIZED_BYTES: Final = 64 << 20  # of bodies, in memory like a window: four of the largest messages


class Oversized:
    """The messages of one queue that are too large for some of its links. They stay in memory; `full` is the
    bound. Pure.
    """

    __slots__ = ("_heaps", "byte_count", "count")

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, Record]]] = {}
        self.count = 0
        self.byte_count = 0

    def full(self) -> bool:
        """Whether no more should be put here: who would have to pass something over has to wait."""
        return self.count >= OVERSIZED_MESSAGES or self.byte_count >= OVERSIZED_BYTES

    def add(self, largest: int, record: Record) -> None:
        """`record` is larger than `largest` octets."""
        heappush(self._heaps.setdefault(largest, []), (record.offset, record))
        self.count += 1
        self.byte_count += len(record.body)

    def take(self, largest: int, before: int) -> Record | None:
        """The first one that may be for a link that takes messages of `largest` octets (0 is of any size), if
        it stands before the offset `before`.
        """
        best: int | None = None
        for bound, heap in self._heaps.items():
            if (not largest or bound < largest) and heap[0][0] < before:
                best, before = bound, heap[0][0]
        if best is None:
            return None
        heap = self._heaps[best]
        record = heappop(heap)[1]
        if not heap:
            del self._heaps[best]
        self.count -= 1
        self.byte_count -= len(record.body)
        return record

    def beyond(self, largest: int) -> int:
        """How many are known to be too large for a link that takes messages of `largest` octets."""
        if not largest:
            return 0
        return sum([len(heap) for bound, heap in self._heaps.items() if bound >= largest])

    def records(self) -> list[Record]:
        """All oversized messages, in no order."""
        return [record for heap in self._heaps.values() for _, record in heap]

    def remove(self, records: list[Record]) -> None:
        """These are gone."""
        offsets = {record.offset for record in records}
        for bound in list(self._heaps) if offsets else ():
            kept = [entry for entry in self._heaps[bound] if entry[0] not in offsets]
            if kept:
                heapify(kept)
                self._heaps[bound] = kept
            else:
                del self._heaps[bound]
        self.count -= len(records)
        self.byte_count -= sum([len(record.body) for record in records])

    def clear(self) -> None:
        """Forget them."""
        self._heaps.clear()
        self.count = self.byte_count = 0
