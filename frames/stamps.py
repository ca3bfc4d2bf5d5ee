"""Where a message stands, written into its message-annotations as bytes and read again: its offset and its
time (3.2.3).

    0x00 0x53 0x72 map8 | size count | sym8 key, ulong | sym8 key, timestamp | entries that were there

A message without annotations gets the whole section in front of it, as one prepared layout; one that has some
gets the two entries added to its map, in the place of those that had these names. Nothing is decoded, so that
what the other entries hold does not matter, and everything behind the annotations stays the same octets.
"""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.flat_maps import enter_map
from amqp_broker.frames.layout import Layout
from amqp_broker.frames.message import Message
from amqp_broker.frames.primitive_types import MAP8, MAP32, SYM8, SYM32, TIMESTAMP, ULONG, name_of_code

_SECTION: Final = b"\x00\x53\x72"
_KNOWN_DESCRIPTOR: Final = b"\x00\x53"
_MAP8_BYTES_MAX: Final = 254  # the size of a map8 counts the octet of its count, too

_pack_map32: Final = struct.Struct(">BII").pack


class Stampable(Protocol):
    """A message behind its header, and its header: `header_bytes` is what is sent before `body`."""

    offset: int
    enqueued_at_ms: int
    header_bytes: bytes
    body: bytes


class OffsetStamp:
    """Writes and reads two annotations by the names that it was made with: an ulong and a timestamp."""

    def __init__(self, offset_key: str, time_key: str) -> None:
        self._keys = (offset_key.encode("ascii"), time_key.encode("ascii"))
        first, second = (bytes((SYM8, len(key))) + key for key in self._keys)
        self._first = first = first + bytes((ULONG,))
        self._second = second = second + bytes((TIMESTAMP,))
        self._entries = Layout((first, "Q", second, "q"))
        size = self._entries.size
        assert size < _MAP8_BYTES_MAX, f"keys too long: {offset_key!r}, {time_key!r}"
        self._map_head = bytes((MAP8, size + 1, 4)) + first
        self._map = Layout((self._map_head, "Q", second, "q"))
        self._section_head = _SECTION + self._map_head
        self._pack_section = Layout((self._section_head, "Q", second, "q")).pack

    def write(self, messages: Sequence[Stampable]) -> list[tuple[int, str]]:
        """Put the annotations behind the `header_bytes` of each message; where there are annotations in its
        `body`, those go with them. Returns which ones were not changed, by their places, and why: their
        annotations are no map that one can add to.
        """
        whole = self._pack_section
        head = self._section_head
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
        added = self._entries.pack(self._first, message.offset, self._second, message.enqueued_at_ms)
        map_head = _pack_map32(MAP32, 4 + len(added) + len(entries), count + 4)
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
        if key[0] == SYM8:
            return key[2:] in self._keys
        return key[0] == SYM32 and key[5:] in self._keys

    def read_all(self, maps: "list[bytes | None]") -> "tuple[list[int], list[int], list[bool]] | None":
        """The offsets, times and whether there are other annotations, of many maps; None where one of them is
        of another layout.
        """
        count = len(maps)
        if count and None not in maps:
            parts: list[bytes] = maps  # type: ignore[assignment]
            if list(map(len, parts)).count(self._map.size) == count:
                heads, numbers, seconds, times = zip(*self._map.unpack_all(b"".join(parts)), strict=True)
                if heads.count(self._map_head) == count and seconds.count(self._second) == count:
                    return list(numbers), list(times), [False] * count
        found = [self.read(annotations) for annotations in maps]
        if None in found:
            return None
        offsets, times_ms, others = zip(*found, strict=True) if found else ((), (), ())
        return list(offsets), list(times_ms), list(others)

    def read(self, annotations: bytes | None) -> tuple[int, int, bool] | None:
        """(offset, ms since the epoch, whether there are other annotations) of a map with its constructor;
        None where the two are not the first ones in it.
        """
        if annotations is None:
            return None
        if len(annotations) == self._map.size:
            head, offset, second, time_ms = self._map.unpack(annotations)
            if head == self._map_head and second == self._second:
                return offset, time_ms, False
        at = 9 if annotations[0] == MAP32 else 3
        entries_end = at + self._entries.size
        if len(annotations) < entries_end:
            return None
        first, offset, second, time_ms = self._entries.unpack(annotations, at)
        if first != self._first or second != self._second:
            return None
        return offset, time_ms, len(annotations) > entries_end


def _entries_of(body: bytes, start: int, end: int) -> tuple[bytes, int]:
    """The entries of the map between `start` and `end`, and how many values they are by its count."""
    try:
        count, at = enter_map(body, start)
    except (IndexError, struct.error):
        count = at = -1
    if count < 0 or at > end:
        found = name_of_code(body[start])
        raise DecodeError(f"expected a map in message-annotations, found {found} in {end - start} octets")
    entries = body[at:end]
    if count & 1 or count > len(entries):
        raise DecodeError(f"message-annotations say {count} values, but have {len(entries)} octets for them")
    return entries, count
