"""Values of fixed width from bytes: one small function for each format code (1.6.1 to 1.6.18).

    constructor   data
    0x70          00 00 00 07       uint: four octets, most significant first
    0x52          07                the same as one octet
    0x43                            uint 0: no octets at all

The caller has checked that the octets are there.
"""

import struct
import uuid
from typing import Final

from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.values import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Double,
    Float,
    Int,
    Long,
    Short,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

U16: Final = struct.Struct(">H").unpack_from
U32: Final = struct.Struct(">I").unpack_from
U64: Final = struct.Struct(">Q").unpack_from
_I8: Final = struct.Struct(">b").unpack_from
_I16: Final = struct.Struct(">h").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
I64: Final = struct.Struct(">q").unpack_from
_F32: Final = struct.Struct(">f").unpack_from
_F64: Final = struct.Struct(">d").unpack_from


def _null(data: bytes, at: int) -> object:
    return None


def _boolean(data: bytes, at: int) -> object:
    octet = data[at]
    if octet > 1:
        raise DecodeError(f"expected 0x00 or 0x01 for a boolean, but found 0x{octet:02x} at byte {at}")
    return octet == 1


def _true(data: bytes, at: int) -> object:
    return True


def _false(data: bytes, at: int) -> object:
    return False


def _ubyte(data: bytes, at: int) -> object:
    return Ubyte(data[at])


def _ushort(data: bytes, at: int) -> object:
    return Ushort(U16(data, at)[0])


def _uint(data: bytes, at: int) -> object:
    return Uint(U32(data, at)[0])


def _smalluint(data: bytes, at: int) -> object:
    return Uint(data[at])


def _uint0(data: bytes, at: int) -> object:
    return Uint(0)


def _ulong(data: bytes, at: int) -> object:
    return Ulong(U64(data, at)[0])


def _smallulong(data: bytes, at: int) -> object:
    return Ulong(data[at])


def _ulong0(data: bytes, at: int) -> object:
    return Ulong(0)


def _byte(data: bytes, at: int) -> object:
    return Byte(_I8(data, at)[0])


def _short(data: bytes, at: int) -> object:
    return Short(_I16(data, at)[0])


def _int(data: bytes, at: int) -> object:
    return Int(_I32(data, at)[0])


def _smallint(data: bytes, at: int) -> object:
    return Int(_I8(data, at)[0])


def _long(data: bytes, at: int) -> object:
    return Long(I64(data, at)[0])


def _smalllong(data: bytes, at: int) -> object:
    return Long(_I8(data, at)[0])


def _float(data: bytes, at: int) -> object:
    return Float(_F32(data, at)[0])


def _double(data: bytes, at: int) -> object:
    return Double(_F64(data, at)[0])


def _decimal32(data: bytes, at: int) -> object:
    return Decimal32(data[at : at + 4])


def _decimal64(data: bytes, at: int) -> object:
    return Decimal64(data[at : at + 8])


def _decimal128(data: bytes, at: int) -> object:
    return Decimal128(data[at : at + 16])


def _char(data: bytes, at: int) -> object:
    point = U32(data, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"expected a Unicode code point for a char, but found 0x{point:x} at byte {at}")
    return Char(chr(point))


def _timestamp(data: bytes, at: int) -> object:
    return Timestamp(I64(data, at)[0])


def _uuid(data: bytes, at: int) -> object:
    return uuid.UUID(bytes=data[at : at + 16])


def _list0(data: bytes, at: int) -> object:
    return []


FIXED_READERS: Final = {
    0x40: _null,
    0x41: _true,
    0x42: _false,
    0x43: _uint0,
    0x44: _ulong0,
    0x45: _list0,
    0x50: _ubyte,
    0x51: _byte,
    0x52: _smalluint,
    0x53: _smallulong,
    0x54: _smallint,
    0x55: _smalllong,
    0x56: _boolean,
    0x60: _ushort,
    0x61: _short,
    0x70: _uint,
    0x71: _int,
    0x72: _float,
    0x73: _char,
    0x74: _decimal32,
    0x80: _ulong,
    0x81: _long,
    0x82: _double,
    0x83: _timestamp,
    0x84: _decimal64,
    0x94: _decimal128,
    0x98: _uuid,
}
