"""When messages of one queue expire (ttl, 3.2.1): the earliest time of each chunk of offsets."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final

CHUNK_BITS: Final = 12  # offsets that are looked at together: half a window
CROWDED_CHUNKS: Final = 1_024  # four million messages: beyond it what was consumed is forgotten
NEVER: Final = 1 << 62


class Expiries:
    """What is known of the expiries of one queue's messages. Pure; times are of the broker's clock."""

    __slots__ = ("_chunks", "_crowded", "_heap", "armed_ms", "asked", "gone", "kept", "swept_at_ms", "unread")

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._crowded = CROWDED_CHUNKS
        self.unread: deque[tuple[int, int]] = deque()
        """Offsets on disk, from and up to, that have to be read."""
        self.gone: set[int] = set()
        """Offsets that are expired; the store may not know it yet."""
        self.armed_ms = NEVER
        self.swept_at_ms = 0
        self.asked = False
        self.kept = False
        """The store knows that messages of this queue may have a ttl."""

    def note(self, offset: int, expires_at_ms: int) -> None:
        """A message expires then."""
        chunk = offset >> CHUNK_BITS
        known = self._chunks.get(chunk)
        if known is None or expires_at_ms < known:
            self._chunks[chunk] = expires_at_ms
            heappush(self._heap, (expires_at_ms, chunk))

    def crowded(self) -> bool:
        """Whether it is time to `forget_below`."""
        return len(self._heap) >= self._crowded

    def forget_below(self, offset: int) -> None:
        """Of what consumers have taken already nothing has to be known."""
        chunk = offset >> CHUNK_BITS
        self._chunks = {each: at_ms for each, at_ms in self._chunks.items() if each >= chunk}
        self._heap = [(at_ms, each) for each, at_ms in self._chunks.items()]
        heapify(self._heap)
        self._crowded = max(CROWDED_CHUNKS, 2 * len(self._heap))

    def next_ms(self) -> int:
        """When the first one is due, or NEVER."""
        heap = self._heap
        while heap and self._chunks.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def take_due(self, now_ms: int) -> tuple[int, int] | None:
        """The offsets, from and up to, of a chunk that is due; what stays in it is to be noted again."""
        if self.next_ms() > now_ms:
            return None
        chunk = heappop(self._heap)[1]
        del self._chunks[chunk]
        return chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
