"""Bytes that wait to be written, with the bound that back-pressure looks at."""

from __future__ import annotations

Piece = bytes | memoryview
"""Octets of the output, or a view of those of a message."""


class Output:
    """A queue of byte chunks. After `close` nothing is taken any more: `close` is the last frame (2.4.3)."""

    __slots__ = ("chunks", "size_bytes", "limit_bytes", "wrote", "closed")

    def __init__(self, limit_bytes: int) -> None:
        self.chunks: list[Piece] = []
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self.wrote = False
        """Something was written since the timers looked last."""
        self.closed = False

    def write(self, data: Piece) -> None:
        """Queues `data`; dropped after `close`."""
        if not self.closed:
            self.chunks.append(data)
            self.size_bytes += len(data)
            self.wrote = True

    def close(self) -> None:
        """What was written so far still leaves; nothing else does."""
        self.closed = True

    def take(self) -> list[Piece]:
        """All output that waits, in order; large payloads are not joined with what is around them."""
        chunks, self.chunks = self.chunks, []
        self.size_bytes = 0
        return chunks
