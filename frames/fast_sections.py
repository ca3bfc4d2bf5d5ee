"""What is read of a message before it is stored: its header section, and that its sections are whole (3.2).

    0x00 0x53 0x70 list | 0x00 0x53 0x72 map | 0x00 0x53 0x73 list | 0x00 0x53 0x74 map | 0x00 0x53 0x75 ...
    header              | message-annot.     | properties          | application-prop.  | body

Everything that is not certain is left to `Message`, which decodes.
"""

import struct
from typing import Final

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.message import Message
from amqp_broker.frames.sections import Header

# A peer chooses its headers; a bounded memo cannot be filled without end, it starts again instead.
MAX_MEMO_ENTRIES: Final = 1_024
MAX_MEMO_KEY_BYTES: Final = 64

_LIST0: Final = 0x45
_SMALLULONG: Final = 0x53
_VBIN8: Final = 0xA0
_VBIN32: Final = 0xB0
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0

_unpack_u32: Final = struct.Struct(">I").unpack_from


def skip_value(data: bytes, at: int, stop: int) -> int:
    """Where the value that starts at `at` ends, or -1 when it is not wholly before `stop` or is not one
    value.

    Only the outermost constructor is looked at: what is inside a list or map is checked when it is decoded.
    """
    if at < stop and data[at] == 0:
        # A described value: the descriptor, then the value. Descriptors that are described themselves are not
        # known.
        at = _skip_plain(data, at + 1, stop)
        if at < 0:
            return -1
    return _skip_plain(data, at, stop)


def _skip_plain(data: bytes, at: int, stop: int) -> int:
    if at >= stop:
        return -1
    width = data[at] >> 4
    at += 1
    if width == 4:
        end = at
    elif 5 <= width <= 9:
        end = at + (1 << (width - 5))
    elif width in (0xA, 0xC, 0xE):
        if at >= stop:
            return -1
        end = at + 1 + data[at]
    elif width in (0xB, 0xD, 0xF):
        if at + 4 > stop:
            return -1
        end = at + 4 + int(_unpack_u32(data, at)[0])
    else:
        return -1
    return end if end <= stop else -1


# --- the header section of a message (3.2.1)

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


_DATA_CODE: Final = 0x75
_VALUE_CODE: Final = 0x77
_FOOTER_CODE: Final = 0x78
_LISTS: Final = (_LIST0, _LIST8, _LIST32)
_MAPS: Final = (0xC1, 0xD1)
# message-annotations, properties, application-properties, data, footer: what constructor each may have (3.2).
_SECTION_CONSTRUCTORS: Final[dict[int, tuple[int, ...]]] = {
    0x72: _MAPS, 0x73: _LISTS, 0x74: _MAPS, _DATA_CODE: (_VBIN8, _VBIN32), _FOOTER_CODE: _MAPS,
}  # fmt: skip


def check_body(body: bytes) -> bool:
    """Whether `body`, an encoded message without its header, certainly has its sections in order and no
    delivery- annotations; False is "don't know". Sections are walked by constructor and size; what is inside
    is not looked at.
    """
    end = len(body)
    if body[:3] == b"\x00\x53\x75" and end > 4:
        if body[3] == _VBIN8 and body[4] == end - 5:
            return True
        if body[3] == _VBIN32 and end > 7 and int(_unpack_u32(body, 4)[0]) == end - 8:
            return True
    at = 0
    before = 0
    while at < end:
        if at + 3 >= end or body[at] != 0 or body[at + 1] != _SMALLULONG:
            return False
        code = body[at + 2]
        if code == _VALUE_CODE:
            if before >= _DATA_CODE:
                return False
        elif body[at + 3] not in _SECTION_CONSTRUCTORS.get(code, ()):
            return False
        elif code < before or (code == before and code != _DATA_CODE):
            return False
        before = code
        at = skip_value(body, at + 3, end)
        if at < 0:
            return False
    return True
