"""What names a message among others: its message-id, and its place in a group (3.2.4).

    0x00 0x53 0x73 | 0xc0 size count | message-id | user-id | ... | group-id (11th) | group-sequence | ...
                   | 0xd0 size count |
    properties       list

Everything that is not certain is left to `Message`, which decodes.
"""

import struct
from typing import Final
from uuid import UUID

from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.field_readers import skip_value
from amqp_broker.frames.message import Message
from amqp_broker.frames.values import Ulong

Identity = tuple["str | None", "str | None", "int | None"]

_NOBODY: Final[Identity] = (None, None, None)
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0
_LIST0: Final = 0x45
_NULL: Final = 0x40
_STR8: Final = 0xA1
_BIN8: Final = 0xA0
_UUID: Final = 0x98
_ULONG: Final = 0x80
_SMALLULONG: Final = 0x53
_BEFORE_GROUP: Final = 10  # properties that come before group-id

_unpack_u32: Final = struct.Struct(">I").unpack_from


def peek_identity(body: bytes) -> Identity:
    """(message_id, group_id, group_sequence) of an encoded message without its header and its
    delivery-annotations, None where it has none, or where its properties cannot be read.

    The message-id comes as a string whatever its type: digits, the usual form of a uuid, octets as
    hexadecimal digits.
    """
    at = 0
    end = len(body)
    if body[:3] == b"\x00\x53\x72":
        at = skip_value(body, 3, end)
        if at < 0:
            return _NOBODY
    head = body[at : at + 3]
    if head != b"\x00\x53\x73":
        # Behind it would be another section; a descriptor in another form is rare.
        return _NOBODY if head[:2] == b"\x00\x53" or not head else _decoded(body)
    at += 3
    if at >= end:
        return _NOBODY
    code = body[at]
    if code == _LIST8 and at + 3 <= end:
        count, at = body[at + 2], at + 3
    elif code == _LIST32 and at + 9 <= end:
        count, at = int(_unpack_u32(body, at + 5)[0]), at + 9
    else:
        return _NOBODY if code == _LIST0 else _decoded(body)
    if count == 0 or at >= end:
        return _NOBODY
    if count > _BEFORE_GROUP:
        return _decoded(body)
    code = body[at]
    if code == _NULL:
        return _NOBODY
    if code == _STR8 and at + 2 <= end:
        stop = at + 2 + body[at + 1]
        if stop <= end:
            try:
                return str(body[at + 2 : stop], "utf-8"), None, None
            except UnicodeDecodeError:
                return _NOBODY
    elif code == _UUID and at + 17 <= end:
        return str(UUID(bytes=body[at + 1 : at + 17])), None, None
    elif code == _BIN8 and at + 2 <= end:
        stop = at + 2 + body[at + 1]
        if stop <= end:
            return body[at + 2 : stop].hex(), None, None
    elif code == _SMALLULONG and at + 2 <= end:
        return str(body[at + 1]), None, None
    elif code == _ULONG and at + 9 <= end:
        return str(int.from_bytes(body[at + 1 : at + 9], "big")), None, None
    return _decoded(body)


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
