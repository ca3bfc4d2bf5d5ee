"""What is read of a message before it is stored or acted on, without decoding the rest of it (3.2).

    0x00 0x53 0x70 list | 0x00 0x53 0x72 map | 0x00 0x53 0x73 list | 0x00 0x53 0x74 map | 0x00 0x53 0x75 ...
    header              | message-annot.     | properties          | application-prop.  | body

Everything that is not certain is left to `Message`, which decodes.
"""

import struct
from typing import Final
from uuid import UUID as Uuid

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.flat_maps import read_keys
from amqp_broker.frames.generated import read_discharge
from amqp_broker.frames.message import Message
from amqp_broker.frames.message_check import UNSURE, body_shape, check_body
from amqp_broker.frames.primitive_types import (
    LIST0,
    LIST8,
    LIST32,
    NULL,
    SMALLULONG,
    STR8,
    SYM8,
    TIMESTAMP,
    ULONG,
    ULONG0,
    UUID,
    VBIN8,
)
from amqp_broker.frames.sections import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    MESSAGE_ANNOTATIONS,
    PROPERTY_CODES,
    Header,
)
from amqp_broker.frames.transactions import Declare, Discharge
from amqp_broker.frames.values import Ulong

# A peer chooses its headers; a bounded memo cannot be filled without end, it starts again instead.
MAX_MEMO_ENTRIES: Final = 1_024
MAX_MEMO_KEY_BYTES: Final = 64

_HEADER_HEAD: Final = b"\x00\x53\x70"
_SHORT_HEADER: Final = b"\x00\x53\x70\xc0"
_OTHER_FORMS: Final = frozenset((b"\x00\x80", b"\x00\xa3", b"\x00\xb3"))  # of a descriptor: ulong, symbols
_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72"
_PROPERTIES_HEAD: Final = b"\x00\x53\x73"
_NAMED_HEAD: Final = b"\x00\x53\x74"
_DATA_HEAD: Final = b"\x00\x53\x75"
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_VALUE_HEAD: Final = b"\x00\x53\x77"
_DECLARES: Final = frozenset(
    _VALUE_HEAD + b"\x00\x53\x31" + fields for fields in (b"\x45", b"\xc0\x01\x00", b"\xc0\x02\x01\x40")
)
_BODY_HEADS: Final = frozenset((_NAMED_HEAD, _DATA_HEAD, b"\x00\x53\x76", _VALUE_HEAD))
"""Where no properties stand: what is behind them."""
_NO_PROPERTIES: Final = b"\x00\x53\x73\x45"  # how the encoder writes those of which nothing is left
_NULL_FIELD: Final = b"\x40"

_MESSAGE_ID: Final = 0
_USER_ID: Final = 1
_SUBJECT: Final = 3
_CORRELATION_ID: Final = 5
_CONTENT_TYPE: Final = 6
_CONTENT_ENCODING: Final = 7
_CREATION_TIME: Final = 9
_GROUP_ID: Final = 10
# Whether a field is a string and can be nothing else.
_TEXTS: Final = tuple(STR8 in codes and UUID not in codes for codes in PROPERTY_CODES)
# A body of one amqp-value that need not be looked into.
_VALUES: Final = frozenset((0x40, 0x45, 0xA0, 0xA1, 0xB0, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1))

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
    if payload[:4] == _SHORT_HEADER and len(payload) > 4:  # what clients send, and most often the same again
        known = _headers.get(payload[: 5 + payload[4]])
        if known is not None:
            return known
    if payload[:3] != _HEADER_HEAD:
        if payload[:2] in _OTHER_FORMS:
            # Another form of the descriptor: rare, so the message itself looks.
            message = Message(payload)
            return _peek(message.header, message.after_header_offset)
        return _NO_HEADER
    end = skip_value(payload, 3, len(payload))
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


def find_maps(body: bytes) -> tuple[int, int, int, int] | None:
    """Where the maps of message-annotations and of application-properties begin and end in a message without
    its header: (start, end, start, end), -1 for a section that is not there. Its sections are known to be
    whole; None where their descriptors have a layout that is not known here: `Message` decides.
    """
    annotations = annotations_end = properties = properties_end = -1
    at = 0
    end = len(body)
    while at < end:
        if body[at + 1] != SMALLULONG:
            return None
        code = body[at + 2]
        if code >= DATA:
            break
        start = at + 3
        at = skip_value(body, start, end)
        if code == MESSAGE_ANNOTATIONS:
            annotations, annotations_end = start, at
        elif code == APPLICATION_PROPERTIES:
            properties, properties_end = start, at
    return annotations, annotations_end, properties, properties_end


def _id_at(data: bytes, at: int) -> tuple[object, int]:
    """The message-id at `at`, and where it ends. Raises ValueError for another layout."""
    code = data[at]
    if code == STR8:
        end = at + 2 + data[at + 1]
        return data[at + 2 : end].decode(), end
    if code == NULL:
        return None, at + 1
    if code == VBIN8:
        end = at + 2 + data[at + 1]
        return data[at + 2 : end], end
    if code == UUID:
        return Uuid(bytes=data[at + 1 : at + 17]), at + 17
    if code == SMALLULONG:
        return Ulong(data[at + 1]), at + 2
    if code == ULONG:
        return Ulong(int.from_bytes(data[at + 1 : at + 9], "big")), at + 9
    if code != ULONG0:
        raise ValueError(code)
    return Ulong(0), at + 1


def peek_named(body: bytes) -> tuple[object, bytes, int, list[str]] | None:
    """(message-id, the properties section without message-id, user-id and creation-time as the encoder writes
    it, the offset behind the properties, the keys of the application-properties) of a message without its
    header; None: use `Message`. Raises DecodeError where its sections are malformed.
    """
    if body[:3] != _PROPERTIES_HEAD:
        return None
    try:
        found = _named_properties(body)
        if found is None:
            return None
        message_id, rest, after = found
        end = len(body)
        if body[after : after + 4] == _SHORT_DATA and after + 5 + body[after + 4] == end:
            return message_id, rest, after, []
        if check_body(body) == UNSURE:
            return None
        at = after
        names: list[str] = []
        if body[at : at + 3] != _DATA_HEAD:
            if body[at : at + 3] == _NAMED_HEAD:
                stop = skip_value(body, at + 3, end)
                keys = read_keys(body, at + 3, stop)
                if keys is None:
                    return None
                names = keys
                at = stop
            if at < end and body[at + 2] == AMQP_VALUE and body[at + 3] not in _VALUES:
                return None
        while at < end:
            if body[at + 2] > AMQP_VALUE:
                return None
            at = skip_value(body, at + 3, end)
    except (IndexError, ValueError):
        return None
    return message_id, rest, after, names


def _named_properties(body: bytes) -> tuple[object, bytes, int] | None:
    """The named values of a message that begins with its properties. Raises IndexError and ValueError for
    another layout.
    """
    if body[3] != LIST8:
        return None
    count = body[5]
    stop = 5 + body[4]
    if count == 0 or count > len(PROPERTY_CODES):
        return None
    message_id, at = _id_at(body, 6)
    kept = [_NULL_FIELD, _NULL_FIELD]
    last = 0
    for index in range(1, count):
        code = body[at]
        if code == NULL:
            end = at + 1
        elif code == STR8 and _TEXTS[index]:
            end = at + 2 + body[at + 1]
            body[at + 2 : end].decode()
        elif code == SYM8 and (index == _CONTENT_TYPE or index == _CONTENT_ENCODING):
            end = at + 2 + body[at + 1]
            body[at + 2 : end].decode("ascii")
        elif code == TIMESTAMP and index == _CREATION_TIME:
            end = at + 9
        elif code == VBIN8 and index == _USER_ID:
            end = at + 2 + body[at + 1]
        else:
            return None
        if index >= 2:
            if code == NULL or index == _CREATION_TIME:
                kept.append(_NULL_FIELD)
            else:
                kept.append(body[at:end])
                last = index + 1
        at = end
    if at != stop or stop > len(body):
        return None
    if last == 0:
        return message_id, _NO_PROPERTIES, at
    fields = b"".join(kept[:last])
    return message_id, _PROPERTIES_HEAD + bytes((LIST8, len(fields) + 1, last)) + fields, at


def peek_answer(body: bytes) -> tuple[str, object] | None:
    """(subject, correlation-id) of a message without its header and without application-properties, "" and
    None where there is none; None: use `Message`.
    """
    if body[:3] != _PROPERTIES_HEAD:
        return None
    subject = ""
    correlation_id: object = None
    try:
        count = body[5]
        stop = 5 + body[4]
        if body[3] != LIST8 or count == 0 or count > len(PROPERTY_CODES):
            return None
        at = 6
        for index in range(count):
            code = body[at]
            if index == _MESSAGE_ID or index == _CORRELATION_ID:
                found, end = _id_at(body, at)
                if index == _CORRELATION_ID:
                    correlation_id = found
            elif code == NULL:
                end = at + 1
            elif code == STR8 and _TEXTS[index]:
                end = at + 2 + body[at + 1]
                text = body[at + 2 : end].decode()
                if index == _SUBJECT:
                    subject = text
            else:
                return None
            at = end
        if at != stop or body[at : at + 3] == _NAMED_HEAD:
            return None
        short = body[at : at + 4] == _SHORT_DATA and at + 5 + body[at + 4] == len(body)
        if not short and body_shape(body) == UNSURE:
            return None
    except (IndexError, ValueError):
        return None
    return subject, correlation_id


def peek_message_id(body: bytes) -> object:
    """The message-id of an encoded message without its header and its delivery-annotations, a Ulong, Uuid,
    bytes or str; None where it has none, or where its properties cannot be read.
    """
    at = 0
    try:
        if body[:3] == _ANNOTATIONS_HEAD:
            at = skip_value(body, 3, len(body))
        if body[at : at + 3] == _PROPERTIES_HEAD and body[at + 3] == LIST8 and body[at + 5]:
            message_id, end = _id_at(body, at + 6)
            if end <= len(body):
                return message_id
        elif body[at : at + 3] in _BODY_HEADS:
            return None
    except (IndexError, ValueError, DecodeError):
        pass
    try:
        properties = Message(body).properties
    except DecodeError:
        return None
    return None if properties is None else properties.message_id


Identity = tuple["str | None", "str | None", "int | None"]
_NOBODY: Final[Identity] = (None, None, None)


def peek_identity(body: bytes) -> Identity:
    """(message_id, group_id, group_sequence) of an encoded message without its header and its
    delivery-annotations, None where it has none, or where its properties cannot be read.

    The message-id comes as a string whatever its type: digits, the usual form of a uuid, octets as
    hexadecimal digits.
    """
    at = 0
    try:
        if body[:3] == _ANNOTATIONS_HEAD:
            at = skip_value(body, 3, len(body))
        head = body[at : at + 3]
        if head != _PROPERTIES_HEAD:
            # Behind it would be another section; a descriptor in another form is rare.
            return _NOBODY if head[:2] == b"\x00\x53" or not head else _decoded(body)
        code = body[at + 3]
        if code == LIST8:
            count, at = body[at + 5], at + 6
        elif code == LIST32:
            count, at = int(_unpack_u32(body, at + 8)[0]), at + 12
        else:
            return _NOBODY if code == LIST0 else _decoded(body)
        if count == 0 or count > _GROUP_ID:
            return _decoded(body) if count else _NOBODY
        message_id, at = _id_at(body, at)
    except (IndexError, ValueError, struct.error, DecodeError):
        return _decoded(body)
    if at > len(body):
        return _decoded(body)
    return message_id if type(message_id) is str else _shown(message_id), None, None


def _decoded(body: bytes) -> Identity:
    try:
        properties = Message(body).properties
    except DecodeError:
        return _NOBODY
    if properties is None:
        return _NOBODY
    return _shown(properties.message_id), properties.group_id, properties.group_sequence


def _shown(message_id: object) -> str | None:
    if isinstance(message_id, bytes):
        return message_id.hex()
    if isinstance(message_id, Ulong):
        return str(message_id.value)
    return None if message_id is None else str(message_id)
