"""What is read of a message before it is stored or acted on: its header, the transaction request that it is,
and that its sections are whole (3.2).

    0x00 0x53 0x70 list | 0x00 0x53 0x72 map | 0x00 0x53 0x73 list | 0x00 0x53 0x74 map | 0x00 0x53 0x75 ...
    header              | message-annot.     | properties          | application-prop.  | body

Everything that is not certain is left to `Message`, which decodes.
"""

import struct
from typing import Any, Final

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.field_readers import skip_value
from amqp_broker.frames.generated import read_discharge
from amqp_broker.frames.message import Message
from amqp_broker.frames.primitive_types import INTEGERS
from amqp_broker.frames.sections import Header
from amqp_broker.frames.transactions import Declare, Discharge

# A peer chooses its headers; a bounded memo cannot be filled without end, it starts again instead.
MAX_MEMO_ENTRIES: Final = 1_024
MAX_MEMO_KEY_BYTES: Final = 64

_VALUE_HEAD: Final = b"\x00\x53\x77"
_DECLARES: Final = frozenset(
    _VALUE_HEAD + b"\x00\x53\x31" + fields for fields in (b"\x45", b"\xc0\x01\x00", b"\xc0\x02\x01\x40")
)
_LIST0: Final = 0x45
_SMALLULONG: Final = 0x53
_VBIN8: Final = 0xA0
_VBIN32: Final = 0xB0
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0

_unpack_u32: Final = struct.Struct(">I").unpack_from


HeaderPeek = tuple[bool, "int | None", "int | None", bool, int, int]
_NO_HEADER: Final[HeaderPeek] = (False, None, None, False, 0, 0)
_headers: Final[dict[bytes, HeaderPeek]] = {}


def peek_header(payload: bytes) -> HeaderPeek:
    """(durable, priority, ttl_ms, first_acquirer, delivery_count, header_end) of an encoded message.

    `priority` and `ttl_ms` are None when the message has none. `header_end` is the offset behind the header
    section, 0 when the message has no header section. Raises DecodeError when there is a header section that
    is not well formed.
    """
    if payload[:3] != b"\x00\x53\x70":
        if payload[:2] == b"\x00\x80" or payload[:2] == b"\x00\xa3" or payload[:2] == b"\x00\xb3":
            # Another form of the descriptor: rare, so the message itself looks.
            message = Message(payload)
            return _peek(message.header, message.after_header_offset)
        return _NO_HEADER
    end = skip_value(payload, 3, len(payload))
    if end < 0:
        raise DecodeError("the header section is cut off")
    key = payload[:end]
    known = _headers.get(key)
    if known is None:
        known = _peek(decode_composite(payload)[0], end)
        if end <= MAX_MEMO_KEY_BYTES:
            if len(_headers) >= MAX_MEMO_ENTRIES:
                _headers.clear()
            _headers[key] = known
    return known


def _peek(section: Header, end: int) -> HeaderPeek:
    return (
        bool(section.durable),
        section.priority,
        section.ttl,
        bool(section.first_acquirer),
        section.delivery_count or 0,
        end,
    )


def read_request(payload: bytes) -> Declare | Discharge | None:
    """The declare or discharge that a message is, in its usual layouts (4.2, 4.3); None: use `Message`."""
    if payload in _DECLARES:
        return Declare()
    return read_discharge(payload, 3) if payload[:3] == _VALUE_HEAD else None


_MESSAGE_ANNOTATIONS_CODE: Final = 0x72
_APPLICATION_PROPERTIES_CODE: Final = 0x74
_DATA_CODE: Final = 0x75
_VALUE_CODE: Final = 0x77
_FOOTER_CODE: Final = 0x78
_LISTS: Final = (_LIST0, _LIST8, _LIST32)
_MAPS: Final = (0xC1, 0xD1)
# message-annotations, properties, application-properties, data, footer: what constructor each may have (3.2).
_SECTION_CONSTRUCTORS: Final[dict[int, tuple[int, ...]]] = {
    _MESSAGE_ANNOTATIONS_CODE: _MAPS, 0x73: _LISTS, _APPLICATION_PROPERTIES_CODE: _MAPS,
    _DATA_CODE: (_VBIN8, _VBIN32), _FOOTER_CODE: _MAPS,
}  # fmt: skip


# What `body_shape` says of a message behind its header.
PLAIN: Final = 0
"""Whole sections in order, and none of them a map of annotations or application-properties."""
MAPPED: Final = 1
"""Whole sections in order, and message-annotations or application-properties are among them."""
UNSURE: Final = 2
"""Malformed, or with delivery-annotations, or of a layout that is not known here: `Message` decides."""


def body_shape(body: bytes) -> int:
    """PLAIN, MAPPED or UNSURE for an encoded message without its header. Sections are walked by constructor
    and size; what is inside is not looked at.
    """
    end = len(body)
    if body[:3] == b"\x00\x53\x75" and end > 4:
        if body[3] == _VBIN8 and body[4] == end - 5:
            return PLAIN
        if body[3] == _VBIN32 and end > 7 and int(_unpack_u32(body, 4)[0]) == end - 8:
            return PLAIN
    at = 0
    before = 0
    shape = PLAIN
    while at < end:
        if at + 3 >= end or body[at] != 0 or body[at + 1] != _SMALLULONG:
            return UNSURE
        code = body[at + 2]
        if code == _VALUE_CODE:
            if before >= _DATA_CODE:
                return UNSURE
        elif body[at + 3] not in _SECTION_CONSTRUCTORS.get(code, ()):
            return UNSURE
        elif code < before or (code == before and code != _DATA_CODE):
            return UNSURE
        elif code == _MESSAGE_ANNOTATIONS_CODE or code == _APPLICATION_PROPERTIES_CODE:
            shape = MAPPED
        before = code
        at = skip_value(body, at + 3, end)
        if at < 0:
            return UNSURE
    return shape


def find_maps(body: bytes) -> tuple[int, int, int, int] | None:
    """Where the maps of message-annotations and of application-properties begin and end in a message without
    its header: (start, end, start, end), -1 for a section that is not there. Its sections are known to be
    whole; None where their descriptors have a layout that is not known here: `Message` decides.
    """
    annotations = annotations_end = properties = properties_end = -1
    at = 0
    end = len(body)
    while at < end:
        if body[at + 1] != _SMALLULONG:
            return None
        code = body[at + 2]
        if code >= _DATA_CODE:
            break
        start = at + 3
        at = skip_value(body, start, end)
        if at < 0:
            return None
        if code == _MESSAGE_ANNOTATIONS_CODE:
            annotations, annotations_end = start, at
        elif code == _APPLICATION_PROPERTIES_CODE:
            properties, properties_end = start, at
    return annotations, annotations_end, properties, properties_end


_SYM8: Final = 0xA3
_STR8: Final = 0xA1
_NULL: Final = 0x40
_MAP8: Final = 0xC1
_MAP32: Final = 0xD1


def read_entries(
    data: bytes, at: int, end: int, symbols: bool, names: dict[bytes, str]
) -> dict[str, Any] | None:
    """Entries of the map between `at` and `end`, by what `names` calls their keys, which are `symbols` or
    strings: integral values of any type as int, strings as str; a null is no entry. None where the map or one
    of these values is not certain: `decode_value` decides.
    """
    found: dict[str, Any] = {}
    key_code = _SYM8 if symbols else _STR8
    try:
        if data[at] == _MAP8:
            count, pos = data[at + 2], at + 3
        elif data[at] == _MAP32:
            count, pos = int(_unpack_u32(data, at + 5)[0]), at + 9
        else:
            return None
        for _ in range(count >> 1):
            if data[pos] != key_code:
                return None
            stop = pos + 2 + data[pos + 1]
            name = names.get(data[pos + 2 : stop])
            code = data[stop]
            if name is None or code == _NULL:
                pos = skip_value(data, stop, end)
                if pos < 0:
                    return None
                continue
            integer = INTEGERS.get(code)
            value: int | str
            if integer is not None:
                pos = stop + 1 + integer[0]
                value = int.from_bytes(data[stop + 1 : pos], "big", signed=integer[1])
            elif code == _STR8:
                pos = stop + 2 + data[stop + 1]
                value = str(data[stop + 2 : pos], "utf-8")
            else:
                return None
            if pos > end or name in found:
                return None
            found[name] = value
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return found if pos == end else None
