"""Bytes that wait to be written, with the bound that back-pressure looks at."""

from __future__ import annotations

from typing import Final

JOIN_BYTES: Final = 65_536
"""Chunks of at least this size are handed on as they are; smaller ones are joined to one write."""


class Output:
    """A queue of byte chunks. After `close` nothing is taken any more: `close` is the last frame (2.4.3)."""

    __slots__ = ("chunks", "size_bytes", "limit_bytes", "wrote", "closed")

    def __init__(self, limit_bytes: int) -> None:
        self.chunks: list[bytes] = []
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self.wrote = False
        """Something was written since the timers looked last."""
        self.closed = False

    def write(self, data: bytes) -> None:
        """Queues `data`; dropped after `close`."""
        if not self.closed:
            self.chunks.append(data)
            self.size_bytes += len(data)
            self.wrote = True

    def close(self) -> None:
        """What was written so far still leaves; nothing else does."""
        self.closed = True

    def take(self) -> list[bytes]:
        """All output that waits, joined into few pieces."""
        chunks = self.chunks
        if not chunks:
            return []
        self.chunks = []
        total = self.size_bytes
        self.size_bytes = 0
        if len(chunks) == 1:
            return chunks
        if total <= self.limit_bytes + JOIN_BYTES:
            return [b"".join(chunks)]
        return _join_small(chunks)


def _join_small(chunks: list[bytes]) -> list[bytes]:
    joined: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        if len(chunk) >= JOIN_BYTES:
            if waiting:
                joined.append(b"".join(waiting))
                waiting = []
                size = 0
            joined.append(chunk)
            continue
        waiting.append(chunk)
        size += len(chunk)
        if size >= JOIN_BYTES:
            joined.append(b"".join(waiting))
            waiting = []
            size = 0
    if waiting:
        joined.append(b"".join(waiting))
    return joined
