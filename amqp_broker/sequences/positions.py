"""Where the sequenced streams stand: on disk, remembered in memory, and as the operations of a group leave
it.

    find --> changes of the group under way, the latest first         (pending)
         --> remembered positions, as they are stored                 (at most REMEMBERED_STREAMS)
         --> the store: one search of an index

Called by operations and between two commits, so that nothing overtakes: a stream's messages are judged in the
writer's order, each where the one before left its stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from amqp_broker.persistence import Stream
from amqp_broker.sequences.settings import sequences_of

if TYPE_CHECKING:
    from amqp_broker.queue import Queue

REMEMBERED_STREAMS: Final = 16_384  # of the whole broker, about 8 MiB; what is older is read from the store

Lookup = Callable[[int, str], Stream | None]
Key = tuple[int, str]


class TooManyStreams(Exception):
    """There are as many streams as there may be, in the broker or in a queue that lives in memory."""


class StreamPositions:
    """All streams of the broker; `lookup` and `count` ask the store, between two commits. There may be
    `most_stored`, and `most_local` in each queue that no store knows.
    """

    def __init__(
        self, lookup: Lookup, count: Callable[[], int], most_stored: int, most_local: int,
        remembered: int = REMEMBERED_STREAMS,
    ) -> None:  # fmt: skip
        self._lookup = lookup
        self._count = count
        self._most_stored = most_stored
        self._most_local = most_local
        self._stored: int | None = None  # with those of the group under way; None until somebody makes one
        self._most = remembered
        self._remembered: dict[Key, Stream] = {}  # the one that was not used for longest first
        self._pending: dict[Key, list[tuple[Any, Stream]]] = {}

    def __len__(self) -> int:
        """How many streams are in memory."""
        return len(self._remembered) + len(self._pending)

    def find(self, queue: Queue, name: str) -> Stream:
        """Where a stream stands; one that was never used is at (0, 0) and nobody's. Raises RowDamaged,
        TooManyStreams.
        """
        key = (queue.queue_id, name)
        pending = self._pending.get(key)
        if pending is not None:
            return pending[-1][1]
        if not queue.persistent:
            return self._find_local(queue, name)
        stream = self._remembered.pop(key, None)
        if stream is None:
            stream = self._lookup(*key) or Stream(queue.queue_id, name, "", 0, 0)
        self._remember(key, stream)
        return stream

    def _find_local(self, queue: Queue, name: str) -> Stream:
        local = sequences_of(queue).local
        stream = local.get(name)
        if stream is None:
            if len(local) >= self._most_local:
                raise TooManyStreams(
                    f"temporary queue {queue.name!r} has {len(local)} streams, as many as "
                    "limits.max_temporary_streams allows"
                )
            stream = Stream(queue.queue_id, name, "", 0, 0)
        return stream

    def _remember(self, key: Key, stream: Stream) -> None:
        self._remembered[key] = stream
        if len(self._remembered) > self._most:
            del self._remembered[next(iter(self._remembered))]

    # What operations do

    def check_room(self, more: int) -> None:
        """Whether the store may have `more` streams than the group under way leaves. Raises TooManyStreams.
        """
        if self._stored is None:
            self._stored = self._count()
        if self._stored + more > self._most_stored:
            raise TooManyStreams(f"there are {self._stored} streams, as many as limits.max_streams allows")

    def make(self, more: int) -> None:
        """The group under way makes `more` streams, or takes them away."""
        if more:
            if self._stored is None:
                self._stored = self._count()
            self._stored += more

    def change(self, operation: object, stream: Stream) -> None:
        """The operation leaves the stream so, if it is stored."""
        self._pending.setdefault((stream.queue_id, stream.stream), []).append((operation, stream))

    def undo(self, operation: object, streams: list[Stream]) -> None:
        """Nothing of the operation is stored, nor of those after it: they were undone before."""
        for stream in streams:
            self._drop(operation, stream)

    def stored(self, operation: object, queue: Queue, streams: list[Stream]) -> None:
        """The commit returned: what the operation changed holds."""
        for stream in streams:
            self._drop(operation, stream)
            if queue.persistent:
                key = (stream.queue_id, stream.stream)
                self._remembered.pop(key, None)
                self._remember(key, stream)
            elif stream.seq_id:
                sequences_of(queue).local[stream.stream] = stream
            else:
                sequences_of(queue).local.pop(stream.stream, None)

    def _drop(self, operation: object, stream: Stream) -> None:
        key = (stream.queue_id, stream.stream)
        left = [change for change in self._pending.get(key, ()) if change[0] is not operation]
        if left:
            self._pending[key] = left
        else:
            self._pending.pop(key, None)

    def count(self, queue: Queue, name: str, refusals: int, now_ms: int) -> None:
        """Count messages of a stream that were not taken; nothing is stored for that."""
        key = (queue.queue_id, name)
        stream = self._remembered.get(key) if queue.persistent else sequences_of(queue).local.get(name)
        if stream is not None and key not in self._pending:
            counted = attrs.evolve(stream, reject_count=stream.reject_count + refusals, last_access_ms=now_ms)
            self.stored(None, queue, [counted])

    def latest(self, stream: Stream) -> Stream:
        """What memory knows of a stream that was read from the store: its position there, or a later one."""
        return self._remembered.get((stream.queue_id, stream.stream), stream)
