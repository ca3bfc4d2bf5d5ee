"""The keys of a last-value queue: which message of each key is the newest, and which are older. Pure.

    come: stands for its key --a newer one comes--> overtaken: gone, or held and gone when it comes back
                             +--leaves the queue--> its key stands for nothing; older ones stay overtaken

What a posting changed is a list, which is undone while its group is not committed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.filters.fields import MessageFields
from amqp_broker.frames import DecodeError
from amqp_broker.frames.flat_maps import read_entries
from amqp_broker.frames.message_peek import find_maps

if TYPE_CHECKING:
    from amqp_broker.persistence import Record

KEY_OCTETS: Final = 64  # of a key that is kept as it is: a longer one by its digest
DIGEST_OCTETS: Final = 32
ENTRY_BYTES: Final = 300  # in memory beside the key: an offset in two dictionaries and the octets' object

Change = list[tuple[int, bytes, int | None]]
"""Messages that came: their offsets, their keys, and which messages stood for these before."""


class Keys:
    """Of the messages that are in one queue or held by its consumers."""

    __slots__ = ("_key_of", "_newest", "octets")

    def __init__(self) -> None:
        self._newest: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self.octets = 0
        """What they take in memory, about."""

    def __len__(self) -> int:
        return len(self._newest)

    def __contains__(self, offset: int) -> bool:
        return offset in self._key_of

    def came(self, offset: int, key: bytes, change: Change) -> int | None:
        """A message stands for its key; the offset of the one that did before."""
        before = self._newest.get(key)
        change.append((offset, key, before))
        self._newest[key] = offset
        self._key_of[offset] = key
        self.octets += ENTRY_BYTES + len(key)
        return before

    def found(self, offset: int, key: bytes) -> bool:
        """The store has a message; whether there is another one of its key, the older of which is overtaken.
        It may have come since the start, and be known.
        """
        newest = self._newest.get(key)
        if offset not in self._key_of:
            self.came(offset, key, [])
            if newest is not None and newest > offset:
                self._newest[key] = newest
        return newest is not None and newest != offset

    def overtaken(self, offset: int) -> bool:
        """Whether a newer message of its key has come, and has left since or not."""
        key = self._key_of.get(offset)
        return key is not None and self._newest.get(key) != offset

    def left(self, offset: int) -> None:
        """A message is in the queue no more."""
        key = self._key_of.pop(offset, None)
        if key is not None:
            self.octets -= ENTRY_BYTES + len(key)
            if self._newest.get(key) == offset:
                del self._newest[key]

    def undo(self, change: Change) -> None:
        """The last change that is not undone did not happen. What has left meanwhile stands for nothing."""
        for offset, key, before in reversed(change):
            self.left(offset)
            if before in self._key_of:
                self._newest[key] = before

    def clear(self) -> None:
        """Forget all of them."""
        self._newest.clear()
        self._key_of.clear()
        self.octets = 0


def key_of(record: Record, name: str, names: dict[bytes, str]) -> bytes:
    """The key of a message in its application-property `name`, empty where it has none; `names` maps the
    octets of that to itself. Strings, whole numbers, octets and all else are different.
    """
    value = _value_of(record, name, names)
    if value is None:
        return b""
    if isinstance(value, str):
        key = b"s" + value.encode()
    elif isinstance(value, bytes):
        key = b"b" + value
    elif isinstance(value, int) and not isinstance(value, bool):
        key = b"n%d" % value
    else:
        key = f"{type(value).__name__[:1].upper()}{value}".encode()
    if len(key) > KEY_OCTETS:
        key = b"h" + blake2b(key, digest_size=DIGEST_OCTETS).digest()
    return key


def _value_of(record: Record, name: str, names: dict[bytes, str]) -> Any:
    """Short strings and whole numbers are read in place, everything else is decoded. What cannot be (a store
    of an older version may have it) is no key.
    """
    body = record.body
    try:
        places = find_maps(body)
    except (IndexError, DecodeError):
        return None
    if places is not None:
        _, _, at, end = places
        if at < 0:
            return None
        found = read_entries(body, at, end, False, names)
        if found is not None:
            return found.get(name)
    return MessageFields(record).application_properties.get(name)
