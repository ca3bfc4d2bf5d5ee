"""Bytes that wait to be written, with the bound that back-pressure looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqp_broker.links.sender_link import SenderLink

Piece = bytes | memoryview
"""Octets of the output, or a view of those of a message."""


class Output:
    """A queue of byte chunks. After `close` nothing is taken any more: `close` is the last frame (2.4.3)."""

    __slots__ = ("chunks", "size_bytes", "limit_bytes", "waiting", "wrote", "closed")

    def __init__(self, limit_bytes: int) -> None:
        self.chunks: list[Piece] = []
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self.waiting: dict[SenderLink, None] = {}
        """Links that could not send for lack of room, who waits longest first."""
        self.wrote = False
        """Something was written since the timers looked last."""
        self.closed = False

    def write(self, data: Piece) -> None:
        """Queues `data`; dropped after `close`."""
        if not self.closed:
            self.chunks.append(data)
            self.size_bytes += len(data)
            self.wrote = True

    @property
    def room_awaited(self) -> bool:
        """Whether a link waits for room, and there is some."""
        return bool(self.waiting) and self.size_bytes < self.limit_bytes

    def next_waiting(self) -> SenderLink | None:
        """The next link that waits for room, while there is some; it waits no longer."""
        if not self.room_awaited:
            return None
        link = next(iter(self.waiting))
        del self.waiting[link]
        return link

    def close(self) -> None:
        """What was written so far still leaves; nothing else does."""
        self.closed = True

    def take(self) -> list[Piece]:
        """All output that waits, in order; large payloads are not joined with what is around them."""
        chunks, self.chunks = self.chunks, []
        self.size_bytes = 0
        return chunks
