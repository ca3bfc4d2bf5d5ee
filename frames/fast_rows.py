"""Whole messages taken apart in one pass, for whoever reads many of them and decodes only what is wanted
(3.2).

    header 0x70 | delivery-annotations 0x71 | message-annotations 0x72 | properties 0x73
    | application-properties 0x74 | body 0x75, 0x76, 0x77 | footer 0x78
    each 0x00 0x53 code, constructor, size, data

As in fast_sections: what is not certain is left to `Message`, and what is inside a list or map is looked at
when it is decoded.
"""

import struct
import uuid
from typing import Any, Final

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.field_readers import skip_value
from amqp_broker.frames.primitive_types import INTEGERS
from amqp_broker.frames.sections import PROPERTY_CODES

_HEADER: Final = 0x70
_DELIVERY_ANNOTATIONS: Final = 0x71
_MESSAGE_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_DATA: Final = 0x75
_VALUE: Final = 0x77
_FOOTER: Final = 0x78
_LIST8_OF_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_MAP8_OF_PROPERTIES: Final = b"\x00\x53\x74\xc1"
_DATA8: Final = b"\x00\x53\x75\xa0"
_LIST0: Final = 0x45
_NULL: Final = 0x40

_unpack_u32: Final = struct.Struct(">I").unpack_from
_unpack_u64: Final = struct.Struct(">Q").unpack_from
_unpack_i64: Final = struct.Struct(">q").unpack_from

Sections = tuple[
    "bytes | None",
    "bytes | None",
    "bytes | None",
    "bytes | None",
    "bytes | None",
    int,
    Any,
    "bytes | None",
    int,
    int,
]


def split_sections(data: bytes) -> Sections | None:
    """(header, delivery-annotations, message-annotations, properties, application-properties, code of the
    body, body, footer, start of the bare message, its end) of an encoded message; None: use `Message`.

    The header and the properties come as whole sections, the maps as values with their constructor, None
    where they are omitted. The body is the octets of a data section, the encoded value of an amqp-value, and
    a list of them for each other body; the code is 0 without one.
    """
    return split_many([data])[0]


def split_many(payloads: list[bytes]) -> list[Sections | None]:
    """The sections of each message, as `split_sections` gives them. What one begins with is looked for in the
    next one: the header, and the size of message-annotations, are the same in most messages of a node.
    """
    found: list[Sections | None] = []
    prefix = header = b""  # of the message before: its header, and its annotations up to their count
    prefix_bytes = annotations_at = annotations_end = 0
    for data in payloads:
        if prefix_bytes and data[:prefix_bytes] == prefix and len(data) >= annotations_end:
            # Straight on for what most messages are: properties, application-properties and one data section,
            # each of them short, or left out.
            at = annotations_end
            if data[at : at + 4] == _LIST8_OF_PROPERTIES:
                at += 5 + data[at + 4]
                properties = data[annotations_end:at]
            else:
                properties = None
            map_at = at
            if data[at : at + 4] == _MAP8_OF_PROPERTIES:
                at += 5 + data[at + 4]
            if data[at : at + 4] == _DATA8 and at + 5 + data[at + 4] == len(data):
                found.append((
                    header, None, data[annotations_at:annotations_end], properties,
                    data[map_at + 3 : at] if at > map_at else None, _DATA, data[at + 5 :], None,
                    annotations_end, len(data),
                ))  # fmt: skip
                continue
            found.append(
                _split_from(data, annotations_end, 0x72, header, data[annotations_at:annotations_end])
            )
            continue
        sections = _split_from(data, 0, 0, None, None)
        found.append(sections)
        prefix_bytes = 0
        if (
            sections is not None
            and sections[0] is not None
            and sections[1] is None
            and sections[2] is not None
        ):
            header, annotations = sections[0], sections[2]
            if annotations[0] == 0xC1:
                annotations_at = len(header) + 3
                annotations_end = annotations_at + len(annotations)
                prefix_bytes = annotations_at + 3
                prefix = data[:prefix_bytes]
    return found


def _split_from(
    data: bytes, at: int, before: int, header: bytes | None, message_annotations: bytes | None
) -> Sections | None:
    """The sections from `at` on; what is before it, up to the section `before`, is given."""
    delivery_annotations = properties = application_properties = footer = None
    body: Any = None
    body_code = 0
    bare_at = -1
    bare_end = end = len(data)
    try:
        while at < end:
            if data[at] or data[at + 1] != 0x53:
                return None
            code = data[at + 2]
            width = data[at + 3] >> 4
            if width == 0xC or width == 0xA:
                start = at + 5
                stop = start + data[at + 4]
            elif width == 0xD or width == 0xB:
                start = at + 8
                stop = start + int(_unpack_u32(data, at + 4)[0])
            else:
                start = at
                stop = skip_value(data, at + 3, end)
            if stop > end or stop < 0 or code < before or (code == before and code != _DATA):
                return None
            if code >= _PROPERTIES and bare_at < 0:
                bare_at = at
            if code == _DATA:
                if width != 0xA and width != 0xB:
                    return None
                body = data[start:stop] if body is None else body + data[start:stop]
                body_code = _DATA
            elif code == _PROPERTIES:
                properties = data[at:stop]
            elif code == _APPLICATION_PROPERTIES:
                application_properties = data[at + 3 : stop]
            elif code == _HEADER:
                header = data[:stop]
            elif code == _MESSAGE_ANNOTATIONS:
                message_annotations = data[at + 3 : stop]
            elif code == _VALUE and not body_code:
                body = data[at + 3 : stop]
                body_code = _VALUE
            elif code == _DELIVERY_ANNOTATIONS:
                delivery_annotations = data[at + 3 : stop]
            elif code == _FOOTER:
                footer = data[at + 3 : stop]
                bare_end = at
            else:
                return None
            before = code
            at = stop
    except (IndexError, struct.error):
        return None
    return (
        header, delivery_annotations, message_annotations, properties, application_properties, body_code,
        body, footer, bare_end if bare_at < 0 else bare_at, bare_end,
    )  # fmt: skip


class StampReader:
    """Reads back what an OffsetStamp of the same two names wrote in front of the other annotations."""

    def __init__(self, offset_key: str, time_key: str) -> None:
        first = b"\xa3" + bytes((len(offset_key),)) + offset_key.encode("ascii") + b"\x80"
        second = b"\xa3" + bytes((len(time_key),)) + time_key.encode("ascii") + b"\x83"
        size = len(first) + len(second) + 17
        alone = bytes((0xC1, size, 4)) + first
        self._first = first
        self._second = second
        self._entries = len(first) + len(second) + 16
        self._alone = alone
        self._alone_bytes = len(alone) + len(second) + 16
        whole = struct.Struct(f">{len(alone)}sQ{len(second)}sq")
        self._whole = whole.unpack
        self._wholes = whole.iter_unpack

    def read_all(self, maps: "list[bytes | None]") -> "tuple[list[int], list[int], list[bool]] | None":
        """The offsets, times and whether there are other annotations, of many maps; None where one of them is
        of another layout.
        """
        count = len(maps)
        if count and None not in maps:
            parts: list[bytes] = maps  # type: ignore[assignment]
            if list(map(len, parts)).count(self._alone_bytes) == count:
                heads, numbers, seconds, times = zip(*self._wholes(b"".join(parts)), strict=True)
                if heads.count(self._alone) == count and seconds.count(self._second) == count:
                    return list(numbers), list(times), [False] * count
        offsets: list[int] = []
        times_ms: list[int] = []
        others: list[bool] = []
        for annotations in maps:
            found = self.read(annotations)
            if found is None:
                return None
            offsets.append(found[0])
            times_ms.append(found[1])
            others.append(found[2])
        return offsets, times_ms, others

    def read(self, annotations: bytes | None) -> tuple[int, int, bool] | None:
        """(offset, ms since the epoch, whether there are other annotations) of a map with its constructor;
        None where it is of another layout.
        """
        if annotations is None:
            return None
        if len(annotations) == self._alone_bytes:
            head, offset, second, time_ms = self._whole(annotations)
            if head == self._alone and second == self._second:
                return offset, time_ms, False
        at = 9 if annotations[0] == 0xD1 else 3
        time_at = at + len(self._first) + 8
        entries_end = at + self._entries
        if (
            len(annotations) < entries_end
            or annotations[at : at + len(self._first)] != self._first
            or annotations[time_at : time_at + len(self._second)] != self._second
        ):
            return None
        offset = int(_unpack_u64(annotations, at + len(self._first))[0])
        time_ms = int(_unpack_i64(annotations, entries_end - 8)[0])
        return offset, time_ms, len(annotations) > entries_end


_STR8: Final = 0xA1
_SYM8: Final = 0xA3
_VBIN8: Final = 0xA0
_TIMESTAMP: Final = 0x83
_UUID: Final = 0x98
_SMALLULONG: Final = 0x53
_ULONG: Final = 0x80
# What a field may have beside text and null, in this reader: nothing with a size of four octets.
_RARE_CODES: Final = tuple(
    frozenset(code for code in codes if code < 0xB0) - {_NULL, _STR8, _SYM8} for codes in PROPERTY_CODES
)
_TEXT_FIELDS: Final = tuple(_STR8 in codes for codes in PROPERTY_CODES)


def read_properties(section: bytes) -> list[Any]:
    """The 13 fields of a properties section in order, None where one is absent: as the attributes of
    `Properties` but an id that is a ulong comes as int. Raises DecodeError.
    """
    found = _fast_properties(section)
    if found is not None:
        return found
    slow = decode_composite(section, 0, len(section))[0]
    message_id = getattr(slow.message_id, "value", slow.message_id)
    correlation_id = getattr(slow.correlation_id, "value", slow.correlation_id)
    return [
        message_id, slow.user_id, slow.to, slow.subject, slow.reply_to, correlation_id, slow.content_type,
        slow.content_encoding, slow.absolute_expiry_time, slow.creation_time, slow.group_id,
        slow.group_sequence, slow.reply_to_group_id,
    ]  # fmt: skip


def _fast_properties(section: bytes) -> list[Any] | None:
    fields: list[Any] = [None] * len(PROPERTY_CODES)
    end = len(section)
    if section[3] == _LIST0:
        return fields
    if section[3] == 0xC0:
        count, at = section[5], 6
    elif section[3] == 0xD0:
        count, at = int(_unpack_u32(section, 8)[0]), 12
    else:
        return None
    if count > len(PROPERTY_CODES):
        return None
    try:
        for index in range(count):
            code = section[at]
            if code == _NULL:
                at += 1
            elif code == _STR8 and _TEXT_FIELDS[index]:
                stop = at + 2 + section[at + 1]
                fields[index] = section[at + 2 : stop].decode()
                at = stop
            elif code == _SYM8 and (index == 6 or index == 7):
                stop = at + 2 + section[at + 1]
                fields[index] = section[at + 2 : stop].decode("ascii")
                at = stop
            else:
                at = _rare_field(section, at, index, code, fields)
                if at < 0:
                    return None
    except (IndexError, struct.error, UnicodeDecodeError, ValueError):
        return None
    return fields if at == end else None


def _rare_field(section: bytes, at: int, index: int, code: int, fields: list[Any]) -> int:
    """Reads a field that is no text; where the next one begins, -1 for a type that it cannot have."""
    if code not in _RARE_CODES[index]:
        return -1
    if code == _TIMESTAMP:
        fields[index] = int(_unpack_i64(section, at + 1)[0])
        return at + 9
    if code == _ULONG:
        fields[index] = int(_unpack_u64(section, at + 1)[0])
        return at + 9
    if code == _VBIN8:
        stop = at + 2 + section[at + 1]
        fields[index] = section[at + 2 : stop]
        return stop
    if code == _UUID:
        fields[index] = uuid.UUID(bytes=section[at + 1 : at + 17])
        return at + 17
    if code == 0x70:
        fields[index] = int(_unpack_u32(section, at + 1)[0])
        return at + 5
    if code == _SMALLULONG or code == 0x52:
        fields[index] = section[at + 1]
        return at + 2
    fields[index] = 0
    return at + 1


_DOUBLE: Final = 0x82
_unpack_double: Final = struct.Struct(">d").unpack_from


def read_flat_map(data: bytes) -> dict[str, Any] | None:
    """A map with its constructor whose keys are short strings or symbols and whose values are integers,
    strings, symbols, doubles, booleans, short binaries or null, as plain Python values; None for every
    other: use `decode_value`.
    """
    keys: list[str] = []
    values: list[Any] = []
    count = extend_from_map(data, keys, values)
    if count < 0:
        return None
    found = dict(zip(keys, values, strict=True))
    return found if len(found) == count else None


def extend_from_map(data: bytes, keys: list[str], values: list[Any]) -> int:
    """Appends the entries of such a map to two lists; how many there are, -1 for another map, and then the
    lists are of no use. A key that comes twice is appended twice.
    """
    end = len(data)
    try:
        if data[0] == 0xC1:
            count, at = data[2], 3
        elif data[0] == 0xD1:
            count, at = int(_unpack_u32(data, 5)[0]), 9
        else:
            return -1
        for _ in range(count >> 1):
            if data[at] != _STR8 and data[at] != _SYM8:
                return -1
            stop = at + 2 + data[at + 1]
            keys.append(data[at + 2 : stop].decode())
            code = data[stop]
            if code == _STR8 or code == _SYM8:
                at = stop + 2 + data[stop + 1]
                values.append(data[stop + 2 : at].decode())
            elif code == 0x55 or code == 0x54:
                octet = data[stop + 1]
                values.append(octet if octet < 128 else octet - 256)
                at = stop + 2
            elif code == 0x81:
                values.append(_unpack_i64(data, stop + 1)[0])
                at = stop + 9
            elif code == _DOUBLE:
                values.append(_unpack_double(data, stop + 1)[0])
                at = stop + 9
            elif code in INTEGERS:
                octets, signed = INTEGERS[code]
                at = stop + 1 + octets
                values.append(int.from_bytes(data[stop + 1 : at], "big", signed=signed))
            elif code == _NULL or code == 0x41 or code == 0x42:
                values.append(None if code == _NULL else code == 0x41)
                at = stop + 1
            elif code == _VBIN8:
                at = stop + 2 + data[stop + 1]
                values.append(data[stop + 2 : at])
            else:
                return -1
            if at > end:
                return -1
    except (IndexError, struct.error, UnicodeDecodeError):
        return -1
    return count >> 1 if at == end and not count & 1 else -1
