"""What is read of a message that names itself or another one, before it is stored or acted on (3.2.4).

    header | properties: message-id, user-id, to, subject, reply-to, correlation-id, ... | ... | body

Everything that is not certain is left to `Message`, which decodes: annotations, a footer, properties or a map
of another layout than these.
"""

import struct
from typing import Final

from amqp_broker.frames.fast_checks import check_body
from amqp_broker.frames.fast_sections import UNSURE, body_shape
from amqp_broker.frames.field_readers import skip_value
from amqp_broker.frames.primitive_types import WELL_FORMED
from amqp_broker.frames.sections import PROPERTY_CODES

Named = tuple[int, bytes]
"""The constructor of a message-id and its octets; (0x40, b"") where there is none."""

_DATA_HEAD: Final = b"\x00\x53\x75"
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_PROPERTIES_HEAD: Final = b"\x00\x53\x73"
_NO_PROPERTIES: Final = b"\x00\x53\x73\x45"  # how the encoder writes those of which nothing is left
_NULL: Final = 0x40
_VBIN8: Final = 0xA0
_STR8: Final = 0xA1
_SYM8: Final = 0xA3
_UUID: Final = 0x98
_ULONG: Final = 0x80
_SMALLULONG: Final = 0x53
_ULONG0: Final = 0x44
_TIMESTAMP: Final = 0x83
_MESSAGE_ID: Final = 0
_USER_ID: Final = 1
_SUBJECT: Final = 3
_CORRELATION_ID: Final = 5
_CONTENT_TYPE: Final = 6
_CONTENT_ENCODING: Final = 7
_CREATION_TIME: Final = 9
# Whether a field is a string and can be nothing else.
_TEXTS: Final = tuple(_STR8 in codes and _UUID not in codes for codes in PROPERTY_CODES)
_ABSENT: Final[Named] = (_NULL, b"")
# A body of one amqp-value that need not be looked into.
_VALUES: Final = frozenset((0x40, 0x45, 0xA0, 0xA1, 0xB0, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1))


def peek_named(body: bytes) -> tuple[int, bytes, bytes, int, list[str]] | None:
    """(constructor of the message-id, its octets, the properties section without message-id, user-id and
    creation-time as the encoder writes it, the offset behind the properties, the keys of the
    application-properties) of a message without its header; None: use `Message`. Raises DecodeError where its
    sections are malformed.
    """
    if body[:3] != _PROPERTIES_HEAD:
        return None
    try:
        found = _named_properties(body)
        if found is None:
            return None
        constructor, octets, rest, after = found
        end = len(body)
        if body[after : after + 4] == _SHORT_DATA and after + 5 + body[after + 4] == end:
            return constructor, octets, rest, after, []
        if check_body(body) == UNSURE:
            return None
        at = after
        names: list[str] = []
        if body[at : at + 3] != _DATA_HEAD:
            if body[at : at + 3] == b"\x00\x53\x74":
                stop = skip_value(body, at + 3, end)
                keys = _keys(body, at + 3, stop)
                if keys is None:
                    return None
                names = keys
                at = stop
            if at < end and body[at + 2] == 0x77 and body[at + 3] not in _VALUES:
                return None
        while at < end:
            if body[at + 2] == 0x78 or body[at + 2] == 0x76:
                return None
            at = skip_value(body, at + 3, end)
    except (IndexError, UnicodeDecodeError):
        return None
    return constructor, octets, rest, after, names


def _named_properties(body: bytes) -> tuple[int, bytes, bytes, int] | None:
    """The named values of a message that begins with its properties."""
    if body[3] != 0xC0:
        return None
    count = body[5]
    stop = 5 + body[4]
    if count == 0 or count > len(PROPERTY_CODES):
        return None
    at = 6
    constructor = body[at]
    end = _end_of_id(body, at)
    if end < 0 or end > stop:
        return None
    octets = body[at + 2 : end] if constructor == _STR8 or constructor == _VBIN8 else body[at + 1 : end]
    if constructor == _STR8:
        octets.decode()
    if count == 1:
        return (constructor, octets, _NO_PROPERTIES, end) if end == stop else None
    kept = [b"\x40", b"\x40"]
    last = 0
    at = end
    for index in range(1, count):
        code = body[at]
        if code == _NULL:
            end = at + 1
        elif code == _STR8 and _TEXTS[index]:
            end = at + 2 + body[at + 1]
            body[at + 2 : end].decode()
        elif code == _SYM8 and (index == _CONTENT_TYPE or index == _CONTENT_ENCODING):
            end = at + 2 + body[at + 1]
            body[at + 2 : end].decode("ascii")
        elif code == _TIMESTAMP and index == _CREATION_TIME:
            end = at + 9
        elif code == _VBIN8 and index == _USER_ID:
            end = at + 2 + body[at + 1]
        else:
            return None
        if end > stop:
            return None
        if index >= 2:
            if code == _NULL or index == _CREATION_TIME:
                kept.append(b"\x40")
            else:
                kept.append(body[at:end])
                last = index + 1
        at = end
    if at != stop:
        return None
    if last == 0:
        return constructor, octets, _NO_PROPERTIES, at
    fields = b"".join(kept[:last])
    return constructor, octets, b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, last)) + fields, at


def _end_of_id(data: bytes, at: int) -> int:
    """Where a message-id ends, -1 for one of another layout."""
    code = data[at]
    if code == _STR8 or code == _VBIN8:
        return at + 2 + data[at + 1]
    if code == _NULL or code == _ULONG0:
        return at + 1
    if code == _SMALLULONG:
        return at + 2
    if code == _ULONG:
        return at + 9
    return at + 17 if code == _UUID else -1


def _keys(data: bytes, at: int, end: int) -> list[str] | None:
    """The keys of a map of application-properties between `at` and `end`, all of whose values are of simple
    types.
    """
    if data[at] == 0xC1:
        count, pos = data[at + 2], at + 3
    elif data[at] == 0xD1:
        count, pos = int(struct.unpack_from(">I", data, at + 5)[0]), at + 9
    else:
        return None
    keys: list[str] = []
    for _ in range(count >> 1):
        if data[pos] != _STR8:
            return None
        stop = pos + 2 + data[pos + 1]
        keys.append(data[pos + 2 : stop].decode())
        code = data[stop]
        size = WELL_FORMED.get(code, -1)
        if size >= 0:
            pos = stop + 1 + size
        else:
            if code != _STR8 and code != _SYM8 and code != _VBIN8:
                return None
            pos = stop + 2 + data[stop + 1]
            if code == _STR8:
                data[stop + 2 : pos].decode()
            elif code == _SYM8:
                data[stop + 2 : pos].decode("ascii")
        if pos > end:
            return None
    return keys if pos == end and not count & 1 and len(set(keys)) == len(keys) else None


def peek_answer(body: bytes) -> tuple[bytes, int, bytes] | None:
    """(subject, constructor of the correlation-id, its octets) of a message without its header and without
    application-properties, empty and (0x40, b"") where there is none; None: use `Message`.
    """
    if body[:4] != b"\x00\x53\x73\xc0":
        return None
    subject = b""
    correlation = _ABSENT
    try:
        count = body[5]
        stop = 5 + body[4]
        if count == 0 or count > len(PROPERTY_CODES):
            return None
        at = 6
        for index in range(count):
            code = body[at]
            if index == _MESSAGE_ID or index == _CORRELATION_ID:
                end = _end_of_id(body, at)
                if end < 0:
                    return None
                octets = body[at + 2 : end] if code == _STR8 or code == _VBIN8 else body[at + 1 : end]
                if code == _STR8:
                    octets.decode()
                if index == _CORRELATION_ID:
                    correlation = (code, octets)
            elif code == _NULL:
                end = at + 1
            elif code == _STR8 and _TEXTS[index]:
                end = at + 2 + body[at + 1]
                body[at + 2 : end].decode()
                if index == _SUBJECT:
                    subject = body[at + 2 : end]
            else:
                return None
            at = end
        if at != stop or body[at : at + 3] == b"\x00\x53\x74":
            return None
        short = body[at : at + 4] == _SHORT_DATA and at + 5 + body[at + 4] == len(body)
        if not short and body_shape(body) == UNSURE:
            return None
    except (IndexError, UnicodeDecodeError):
        return None
    return subject, correlation[0], correlation[1]
