"""Where a message stands, written into its message-annotations as bytes: its offset and its time (3.2.3).

    0x00 0x53 0x72 map8 | size count | sym8 key, ulong | sym8 key, timestamp | entries that were there

A message without annotations gets the whole section in front of it, as one prepared struct; one that has some
gets the two entries added to its map, in the place of those that had these names. Nothing is decoded, so that
what the other entries hold does not matter, and everything behind the annotations stays the same octets.
"""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.message import Message
from amqp_broker.frames.primitive_types import name_of_code

_SECTION: Final = b"\x00\x53\x72"
_MAP8: Final = 0xC1
_MAP32: Final = 0xD1
_SYM8: Final = b"\xa3"
_ULONG: Final = b"\x80"
_TIMESTAMP: Final = b"\x83"
_KNOWN_DESCRIPTOR: Final = b"\x00\x53"
_MAP8_BYTES_MAX: Final = 254  # the size of a map8 counts the octet of its count, too

_unpack_sizes: Final = struct.Struct(">II").unpack_from
_pack_map32: Final = struct.Struct(">BII").pack


class Stampable(Protocol):
    """A message behind its header, and its header: `header_bytes` is what is sent before `body`."""

    offset: int
    enqueued_at_ms: int
    header_bytes: bytes
    body: bytes


class OffsetStamp:
    """Writes two annotations by the names that it was made with: an ulong and a timestamp."""

    def __init__(self, offset_key: str, time_key: str) -> None:
        first = _SYM8 + bytes((len(offset_key),)) + offset_key.encode("ascii") + _ULONG
        second = _SYM8 + bytes((len(time_key),)) + time_key.encode("ascii") + _TIMESTAMP
        size = len(first) + 8 + len(second) + 8
        assert size < _MAP8_BYTES_MAX, f"keys too long: {offset_key!r}, {time_key!r}"
        self._keys = (offset_key.encode("ascii"), time_key.encode("ascii"))
        self._head = _SECTION + bytes((_MAP8, size + 1, 4)) + first
        self._first = first
        self._second = second
        self._whole = struct.Struct(f">{len(self._head)}sQ{len(second)}sq").pack
        self._entries = struct.Struct(f">{len(first)}sQ{len(second)}sq").pack

    def write(self, messages: Sequence[Stampable]) -> list[tuple[int, str]]:
        """Put the annotations behind the `header_bytes` of each message; where there are annotations in its
        `body`, those go with them. Returns which ones were not changed, by their places, and why: their
        annotations are no map that one can add to.
        """
        whole = self._whole
        head = self._head
        second = self._second
        unchanged: list[tuple[int, str]] = []
        for place, message in enumerate(messages):
            start = message.body[:3]
            if start[:2] == _KNOWN_DESCRIPTOR and start != _SECTION:
                message.header_bytes += whole(head, message.offset, second, message.enqueued_at_ms)
                continue
            try:
                self._splice(message)
            except DecodeError as error:
                unchanged.append((place, error.description))
        return unchanged

    def _splice(self, message: Stampable) -> None:
        body = message.body
        if body[:3] == _SECTION:
            start, end = 3, skip_value(body, 3, len(body))
        else:  # another form of the descriptor, or nothing at all: the message looks
            start, end = Message(body).message_annotations_place
        entries, count = _entries_of(body, start, end) if end > start else (b"", 0)
        if any(key in entries for key in self._keys):
            entries, count = self._without_ours(entries, count)
        added = self._entries(self._first, message.offset, self._second, message.enqueued_at_ms)
        map_head = _pack_map32(_MAP32, 4 + len(added) + len(entries), count + 4)
        message.header_bytes += b"".join((_SECTION, map_head, added, entries))
        message.body = body[end:]

    def _without_ours(self, entries: bytes, count: int) -> tuple[bytes, int]:
        """The entries without those of our names, most likely there; by their sizes, nothing is decoded."""
        kept: list[bytes] = []
        end = len(entries)
        at = 0
        for _ in range(count >> 1):
            value_at = skip_value(entries, at, end)
            after = skip_value(entries, value_at, end)
            if not self._is_ours(entries[at:value_at]):
                kept.append(entries[at:after])
            at = after
        if at != end:
            raise DecodeError(f"message-annotations end at {at} by their count, but at {end} by their size")
        return b"".join(kept), 2 * len(kept)

    def _is_ours(self, key: bytes) -> bool:
        """Whether an encoded key is a symbol of these names."""
        if key[0] == 0xA3:
            return key[2:] in self._keys
        return key[0] == 0xB3 and key[5:] in self._keys


def _entries_of(body: bytes, start: int, end: int) -> tuple[bytes, int]:
    """The entries of the map between `start` and `end`, and how many values they are by its count."""
    code = body[start]
    if code == _MAP8 and end >= start + 3:
        count = body[start + 2]
        entries = body[start + 3 : end]
    elif code == _MAP32 and end >= start + 9:
        count = int(_unpack_sizes(body, start + 1)[1])
        entries = body[start + 9 : end]
    else:
        found = name_of_code(code)
        raise DecodeError(f"expected a map in message-annotations, found {found} in {end - start} octets")
    if count & 1 or count > len(entries):
        raise DecodeError(f"message-annotations say {count} values, but have {len(entries)} octets for them")
    return entries, count
