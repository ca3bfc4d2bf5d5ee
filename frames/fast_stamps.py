"""Where a message stands, written into its message-annotations as bytes: its offset and its time (3.2.3).

    0x00 0x53 0x72 map8 | size count | sym8 key, ulong | sym8 key, timestamp | entries that were there

A message without annotations gets the whole section in front of it, as one prepared struct; one that has some
gets the two entries added to its map. Everything behind the annotations stays the same octets.
"""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.fast_sections import skip_value
from amqp_broker.frames.message import Message
from amqp_broker.frames.message_encoding import encode_section
from amqp_broker.frames.values import Symbol, Timestamp, Ulong

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
        self._keys = (offset_key, time_key)
        self._key_bytes = (offset_key.encode("ascii"), time_key.encode("ascii"))
        self._head = _SECTION + bytes((_MAP8, size + 1, 4)) + first
        self._first = first
        self._second = second
        self._whole = struct.Struct(f">{len(self._head)}sQ{len(second)}sq").pack
        self._entries = struct.Struct(f">{len(first)}sQ{len(second)}sq").pack

    def write(self, messages: Sequence[Stampable]) -> None:
        """Put the annotations behind the `header_bytes` of each message; where there are annotations in its
        `body`, those go with them. Raises DecodeError where they are malformed.
        """
        whole = self._whole
        head = self._head
        second = self._second
        for message in messages:
            start = message.body[:3]
            if start[:2] != _KNOWN_DESCRIPTOR:
                self._replace(message)
            elif start == _SECTION:
                self._splice(message)
            else:
                message.header_bytes += whole(head, message.offset, second, message.enqueued_at_ms)

    def _splice(self, message: Stampable) -> None:
        body = message.body
        end = skip_value(body, 3, len(body))
        if end < 0:
            raise DecodeError("the message-annotations section is cut off")
        if body[3] == _MAP8:
            count = body[5]
            entries = body[6:end]
        elif body[3] == _MAP32:
            count = int(_unpack_sizes(body, 4)[1])
            entries = body[12:end]
        else:
            raise DecodeError(f"expected a map in message-annotations, got the constructor {body[3]:#04x}")
        if any(key in entries for key in self._key_bytes):
            self._replace(message)
            return
        added = self._entries(self._first, message.offset, self._second, message.enqueued_at_ms)
        map_head = _pack_map32(_MAP32, 4 + len(added) + len(entries), count + 4)
        message.header_bytes += b"".join((_SECTION, map_head, added, entries))
        message.body = body[end:]

    def _replace(self, message: Stampable) -> None:
        """One of the keys is there already, most likely, or the layout is rare: decode it."""
        body = message.body
        found = Message(body)
        annotations = dict(found.message_annotations or {})
        annotations[Symbol(self._keys[0])] = Ulong(message.offset)
        annotations[Symbol(self._keys[1])] = Timestamp(message.enqueued_at_ms)
        message.header_bytes += encode_section("message-annotations", annotations)
        message.body = body[found.after_message_annotations_offset :]
