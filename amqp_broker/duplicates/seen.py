"""The message-ids that were posted to one queue within its window, in the order of their posting. Pure.

    look up --> known, and not older than the window: a duplicate
            +-> remembered at the end; what is older, or beyond the bound, is forgotten at the front

What a posting changed is a step, which is undone while its group is not committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from uuid import UUID

from amqp_broker.frames import Ulong
from amqp_broker.frames.message_peek import peek_message_id
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES

KEY_OCTETS: Final = 64  # of an id that is kept as it is: a longer one by its digest
DIGEST_OCTETS: Final = 32
FORGOTTEN_AT_ONCE: Final = 1_024  # by one posting, beside as many as it brings: some milliseconds
ENTRY_BYTES: Final = 220  # in memory beside the id: an object, its time, a place in a dictionary and in a row
VOLATILE: Final = -1  # the offset of an id that only memory has


class Seen:
    """One id, when its message was posted, and its offset in the store."""

    __slots__ = ("at_ms", "key", "offset")

    def __init__(self, key: bytes, at_ms: int, offset: int) -> None:
        self.key = key
        self.at_ms = at_ms
        self.offset = offset


class Change:
    """What one posting did: ids that it brought, and ids that it made the window forget."""

    __slots__ = ("forgotten", "log", "remembered")

    def __init__(self) -> None:
        self.remembered: list[Seen] = []
        self.forgotten: list[Seen] = []
        self.log: list[tuple[bool, Seen, Seen | None]] = []
        """Both in their order: whether it came, and what its key named before it."""


class Window:
    """At most `most` ids, each for `window_ms`."""

    __slots__ = ("_by_key", "_in_order", "most", "window_ms")

    def __init__(self, window_ms: int, most: int) -> None:
        self.window_ms = window_ms
        self.most = most
        self._by_key: dict[bytes, Seen] = {}
        self._in_order: deque[Seen] = deque()

    def __len__(self) -> int:
        return len(self._in_order)

    def knows(self, key: bytes, now_ms: int) -> bool:
        """Whether a message with this id was posted within the window."""
        found = self._by_key.get(key)
        return found is not None and now_ms - found.at_ms < self.window_ms

    def remember(self, seen: Seen, change: Change) -> None:
        """A message is posted that is no duplicate. At the bound the oldest is forgotten for it."""
        change.remembered.append(seen)
        change.log.append((True, seen, self._by_key.get(seen.key)))
        self._by_key[seen.key] = seen
        self._in_order.append(seen)
        if len(self._in_order) > self.most:
            self._forget_oldest(change)

    def forget_old(self, now_ms: int, change: Change) -> None:
        """Some of what is older than the window."""
        in_order = self._in_order
        since_ms = now_ms - self.window_ms
        for _ in range(FORGOTTEN_AT_ONCE + len(change.remembered)):
            if not in_order or in_order[0].at_ms > since_ms:
                return
            self._forget_oldest(change)

    def _forget_oldest(self, change: Change) -> None:
        seen = self._in_order.popleft()
        current = self._by_key[seen.key]
        if current is seen:
            del self._by_key[seen.key]
        change.forgotten.append(seen)
        change.log.append((False, seen, current))

    def undo(self, change: Change) -> None:
        """The last change that is not undone did not happen."""
        for came, seen, former in reversed(change.log):
            if came:
                self._in_order.pop()
            else:
                self._in_order.appendleft(seen)
            if former is None:
                del self._by_key[seen.key]
            else:
                self._by_key[seen.key] = former

    def clear(self) -> list[Seen]:
        """Forget all of them."""
        gone = [*self._in_order]
        self._in_order.clear()
        self._by_key.clear()
        return gone


def key_of(body: bytes) -> bytes:
    """The message-id of a message, empty where it has none. Ids of different types are different."""
    message_id = peek_message_id(body)
    if message_id is None:
        return b""
    if isinstance(message_id, str):
        key = b"s" + message_id.encode()
    elif isinstance(message_id, bytes):
        key = b"b" + message_id
    elif isinstance(message_id, UUID):
        key = b"u" + message_id.bytes
    else:
        assert isinstance(message_id, Ulong), f"a message-id of type {type(message_id).__name__}"
        key = b"n%d" % message_id.value
    if len(key) > KEY_OCTETS:
        key = key[:1].upper() + blake2b(key, digest_size=DIGEST_OCTETS).digest()
    return key


def octets_of(some: Iterable[Seen], in_memory: bool) -> int:
    """What ids take in memory, about; with `in_memory` the store is there, too."""
    octets = 0
    for seen in some:
        octets += ENTRY_BYTES + len(seen.key)
        if in_memory and seen.offset != VOLATILE:
            octets += RECORD_OVERHEAD_BYTES + len(seen.key)
    return octets
