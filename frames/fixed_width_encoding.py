"""Values of fixed width to bytes: one format code for each class, and the octets that follow it.

The short forms of uint, ulong, int and long are chosen in `encoding`; arrays hold the widest.
"""

import struct
import uuid
from typing import Final

from amqp_broker.frames.errors import EncodeError
from amqp_broker.frames.printing import shorten
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

_F32: Final = struct.Struct(">f").pack
_F64: Final = struct.Struct(">d").pack

_INTEGER_FORMS: Final = {
    "Ubyte": (1, False),
    "Ushort": (2, False),
    "Uint": (4, False),
    "Ulong": (8, False),
    "Byte": (1, True),
    "Short": (2, True),
    "Int": (4, True),
    "Long": (8, True),
    "Timestamp": (8, True),
}

FIXED_FORMS: Final[dict[type, int]] = {
    Ubyte: 0x50,
    Ushort: 0x60,
    Byte: 0x51,
    Short: 0x61,
    Float: 0x72,
    Double: 0x82,
    Decimal32: 0x74,
    Decimal64: 0x84,
    Decimal128: 0x94,
    Char: 0x73,
    Timestamp: 0x83,
    uuid.UUID: 0x98,
}
"""The format code of each class that has only one."""

FIXED_ELEMENTS: Final[dict[str, tuple[int, type]]] = {
    "boolean": (0x56, bool),
    "ubyte": (0x50, Ubyte),
    "ushort": (0x60, Ushort),
    "uint": (0x70, Uint),
    "ulong": (0x80, Ulong),
    "byte": (0x51, Byte),
    "short": (0x61, Short),
    "int": (0x71, Int),
    "long": (0x81, Long),
    "float": (0x72, Float),
    "double": (0x82, Double),
    "decimal32": (0x74, Decimal32),
    "decimal64": (0x84, Decimal64),
    "decimal128": (0x94, Decimal128),
    "char": (0x73, Char),
    "timestamp": (0x83, Timestamp),
    "uuid": (0x98, uuid.UUID),
}
"""Format code and class of the elements of an array, by the name of their type."""


def fixed_code(value: object) -> int:
    """The format code of a value whose type has only one."""
    for base in type(value).__mro__:
        code = FIXED_FORMS.get(base)
        if code is not None:
            return code
    raise EncodeError(f"expected a value of fixed width, but got {type(value).__name__}")


def fixed_octets(value: object) -> bytes:
    """The data of a value in the widest fixed encoding of its type: what arrays of it hold."""
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, (Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long, Timestamp)):
        octets, signed = _INTEGER_FORMS[type(value).__name__]
        try:
            return value.value.to_bytes(octets, "big", signed=signed)
        except OverflowError:
            raise EncodeError(f"{value!r} does not fit {octets} octets") from None
    if isinstance(value, (Float, Double)):
        try:
            return _F32(value.value) if isinstance(value, Float) else _F64(value.value)
        except OverflowError:
            raise EncodeError(f"{value!r} does not fit 4 octets") from None
    if isinstance(value, Char):
        if len(value.value) != 1 or 0xD800 <= ord(value.value) <= 0xDFFF:
            raise EncodeError(f"expected one Unicode code point for a char, but got {shorten(value.value)}")
        return ord(value.value).to_bytes(4, "big")
    assert isinstance(value, (Decimal32, Decimal64, Decimal128))
    octets = 4 if isinstance(value, Decimal32) else 8 if isinstance(value, Decimal64) else 16
    if len(value.value) != octets:
        raise EncodeError(f"expected {octets} octets for {type(value).__name__}, but got {len(value.value)}")
    return value.value
