"""Whole messages taken apart in one pass, for whoever reads many of them and decodes only what is wanted
(3.2).

    header 0x70 | delivery-annotations 0x71 | message-annotations 0x72 | properties 0x73
    | application-properties 0x74 | body 0x75, 0x76, 0x77 | footer 0x78
    each 0x00 0x53 code, constructor, size, data

What is not certain is left to `Message`, and what is inside a list or map is looked at when it is decoded.
"""

import struct
import uuid
from typing import Any, Final

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.primitive_types import (
    LIST0,
    LIST8,
    LIST32,
    MAP8,
    NULL,
    SMALLUINT,
    SMALLULONG,
    STR8,
    SYM8,
    TIMESTAMP,
    UINT,
    ULONG,
    UUID,
    VBIN8,
)
from amqp_broker.frames.sections import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_CODES,
)

_LIST8_OF_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_MAP8_OF_PROPERTIES: Final = b"\x00\x53\x74\xc1"
_DATA8: Final = b"\x00\x53\x75\xa0"

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


def split_many(payloads: list[bytes]) -> list[Sections | None]:
    """(header, delivery-annotations, message-annotations, properties, application-properties, code of the
    body, body, footer, start of the bare message, its end) of each encoded message; None: use `Message`.

    The header and the properties come as whole sections, the maps as values with their constructor, None
    where they are omitted. The body is the octets of a data section, the encoded value of an amqp-value, and
    a list of them for each other body; the code is 0 without one.

    What one begins with is looked for in the next one: the header, and the size of message-annotations, are
    the same in most messages of a node.
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
                    data[map_at + 3 : at] if at > map_at else None, DATA, data[at + 5 :], None,
                    annotations_end, len(data),
                ))  # fmt: skip
                continue
            found.append(
                _split_from(
                    data, annotations_end, MESSAGE_ANNOTATIONS, header, data[annotations_at:annotations_end]
                )
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
            if annotations[0] == MAP8:
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
            if stop > end or code < before or (code == before and code != DATA):
                return None
            if code >= PROPERTIES and bare_at < 0:
                bare_at = at
            if code == DATA:
                if width != 0xA and width != 0xB:
                    return None
                body = data[start:stop] if body is None else body + data[start:stop]
                body_code = DATA
            elif code == PROPERTIES:
                properties = data[at:stop]
            elif code == APPLICATION_PROPERTIES:
                application_properties = data[at + 3 : stop]
            elif code == HEADER:
                header = data[:stop]
            elif code == MESSAGE_ANNOTATIONS:
                message_annotations = data[at + 3 : stop]
            elif code == AMQP_VALUE and not body_code:
                body = data[at + 3 : stop]
                body_code = AMQP_VALUE
            elif code == DELIVERY_ANNOTATIONS:
                delivery_annotations = data[at + 3 : stop]
            elif code == FOOTER:
                footer = data[at + 3 : stop]
                bare_end = at
            else:
                return None
            before = code
            at = stop
    except (IndexError, struct.error, DecodeError):
        return None
    return (
        header, delivery_annotations, message_annotations, properties, application_properties, body_code,
        body, footer, bare_end if bare_at < 0 else bare_at, bare_end,
    )  # fmt: skip


# What a field may have beside text and null, in this reader: nothing with a size of four octets.
_RARE_CODES: Final = tuple(
    frozenset(code for code in codes if code < 0xB0) - {NULL, STR8, SYM8} for codes in PROPERTY_CODES
)
_TEXT_FIELDS: Final = tuple(STR8 in codes for codes in PROPERTY_CODES)


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
    if section[3] == LIST0:
        return fields
    if section[3] == LIST8:
        count, at = section[5], 6
    elif section[3] == LIST32:
        count, at = int(_unpack_u32(section, 8)[0]), 12
    else:
        return None
    if count > len(PROPERTY_CODES):
        return None
    try:
        for index in range(count):
            code = section[at]
            if code == NULL:
                at += 1
            elif code == STR8 and _TEXT_FIELDS[index]:
                stop = at + 2 + section[at + 1]
                fields[index] = section[at + 2 : stop].decode()
                at = stop
            elif code == SYM8 and (index == 6 or index == 7):
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
    if code == TIMESTAMP:
        fields[index] = int(_unpack_i64(section, at + 1)[0])
        return at + 9
    if code == ULONG:
        fields[index] = int(_unpack_u64(section, at + 1)[0])
        return at + 9
    if code == VBIN8:
        stop = at + 2 + section[at + 1]
        fields[index] = section[at + 2 : stop]
        return stop
    if code == UUID:
        fields[index] = uuid.UUID(bytes=section[at + 1 : at + 17])
        return at + 17
    if code == UINT:
        fields[index] = int(_unpack_u32(section, at + 1)[0])
        return at + 5
    if code == SMALLULONG or code == SMALLUINT:
        fields[index] = section[at + 1]
        return at + 2
    fields[index] = 0
    return at + 1
