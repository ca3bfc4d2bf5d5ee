"""What the writers of `generated.py` and of transfers share: single fields, and frames of encoded fields.

           +0       +1       +2       +3
       +-----------------------------------+
     0 |                SIZE               |
       +-----------------------------------+
     4 |  0x02  |  0x00  |     CHANNEL     |
       +-----------------------------------+
     8 |  0x00  |  0x53  |  code  |  list  |   list: 0xc0 size count | 0xd0 size4 count4
       +-----------------------------------+
    12 |  size  | count  | fields ...      |
       +-----------------------------------+
"""

import struct
from typing import Any, Final

from amqp_broker.frames.encoding import encode_value
from amqp_broker.frames.values import Symbol

_pack_u32: Final = struct.Struct(">I").pack
_pack_list8: Final = struct.Struct(">IHHIBB").pack
_pack_list32: Final = struct.Struct(">IHHIII").pack


def encode_uint(value: int) -> bytes:
    """The shortest encoding of a uint (1.6.5)."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return bytes((0x52, value))
    return b"\x70" + _pack_u32(value)


def link_fields(
    handle: int, delivery_count: int, link_credit: int, available: int = -1, drain: bool = False,
    echo: bool = False, properties: dict[str, Any] | None = None,
) -> tuple[bytes, int]:  # fmt: skip
    """What a flow says of a link (2.7.4), encoded from its handle on, and how many fields that is, for
    `encode_flow`; -1 is not set. Raises EncodeError.
    """
    fields = encode_uint(handle) + (b"\x40" if delivery_count < 0 else encode_uint(delivery_count))
    fields += encode_uint(link_credit)
    if available < 0 and not drain and not echo and properties is None:
        return fields, 3
    fields += (b"\x40" if available < 0 else encode_uint(available)) + (b"\x41" if drain else b"\x42")
    if not echo and properties is None:
        return fields, 5
    fields += b"\x41" if echo else b"\x42"
    if properties is None:
        return fields, 6
    return fields + encode_value({Symbol(name): value for name, value in properties.items()}), 7


def list_frame(channel: int, code: int, count: int, fields: bytes, payload_bytes: int = 0) -> bytes:
    """A frame whose performative is the list of these `count` encoded fields; a payload of so many octets is
    to follow it.
    """
    size = len(fields)
    if size < 255:
        list8 = 0x005300C0 | code << 8
        return _pack_list8(size + 14 + payload_bytes, 0x0200, channel, list8, size + 1, count) + fields
    list32 = 0x005300D0 | code << 8
    return _pack_list32(size + 20 + payload_bytes, 0x0200, channel, list32, size + 4, count) + fields
