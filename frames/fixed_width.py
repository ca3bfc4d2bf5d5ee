"""Values of fixed width to bytes and back (1.6.1 to 1.6.18): one table, and a few types with own rules.

    constructor   data
    0x70          00 00 00 07       uint: four octets, most significant first
    0x52          07                the same as one octet
    0x43                            uint 0: no octets at all

The short forms of uint, ulong, int and long are chosen in `encoding`; arrays hold the widest.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames.errors import DecodeError, EncodeError
from amqp_broker.frames.primitive_types import (
    BOOLEAN,
    ENCODINGS,
    FALSE,
    FIXED,
    LIST0,
    NULL,
    SMALLINT,
    SMALLLONG,
    SMALLUINT,
    SMALLULONG,
    TRUE,
    UINT0,
    ULONG0,
    WIDTH,
)
from amqp_broker.frames.primitive_types import UUID as UUID_CODE
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.values import (
    Byte,
    BytesValue,
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

_Read = Callable[[bytes, int], object]

U32: Final = struct.Struct(">I").unpack_from

_NUMBERS: Final[dict[str, tuple[type, str]]] = {
    "ubyte": (Ubyte, "B"), "ushort": (Ushort, "H"), "uint": (Uint, "I"), "ulong": (Ulong, "Q"),
    "byte": (Byte, "b"), "short": (Short, "h"), "int": (Int, "i"), "long": (Long, "q"),
    "float": (Float, "f"), "double": (Double, "d"), "timestamp": (Timestamp, "q"),
}  # fmt: skip
"""Class and format of the widest encoding, by the name of the type."""
_DECIMALS: Final[dict[str, type[BytesValue]]] = {
    "decimal32": Decimal32, "decimal64": Decimal64, "decimal128": Decimal128
}  # fmt: skip
_CLASSES: Final[dict[str, type]] = {
    **{name: row[0] for name, row in _NUMBERS.items()},
    **_DECIMALS, "boolean": bool, "char": Char, "uuid": uuid.UUID,
}  # fmt: skip
_PACK: Final[dict[type, Any]] = {kind: struct.Struct(">" + form) for kind, form in _NUMBERS.values()}

FIXED_ELEMENTS: Final[dict[str, tuple[int, type]]] = {
    row.type_name: (row.code, _CLASSES[row.type_name])
    for row in ENCODINGS
    if row.category == FIXED and row.width and not row.name.startswith("small")
}
"""Format code and class of the elements of an array, by the name of their type."""
FIXED_FORMS: Final[dict[type, int]] = {
    kind: code for name, (code, kind) in FIXED_ELEMENTS.items()
    if name not in ("boolean", "uint", "ulong", "int", "long")
}  # fmt: skip
"""The format code of each class that has only one."""


def _number(kind: Any, form: str) -> _Read:
    unpack = struct.Struct(">" + form).unpack_from
    return lambda data, at: kind(unpack(data, at)[0])


def _decimal(kind: Any, octets: int) -> _Read:
    return lambda data, at: kind(data[at : at + octets])


def _boolean(data: bytes, at: int) -> object:
    octet = data[at]
    if octet > 1:
        raise DecodeError(f"expected 0x00 or 0x01 for a boolean, but found 0x{octet:02x} at byte {at}")
    return octet == 1


def _char(data: bytes, at: int) -> object:
    point = U32(data, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"expected a Unicode code point for a char, but found 0x{point:x} at byte {at}")
    return Char(chr(point))


FIXED_READERS: Final[dict[int, _Read]] = {
    NULL: lambda data, at: None,
    TRUE: lambda data, at: True,
    FALSE: lambda data, at: False,
    BOOLEAN: _boolean,
    UINT0: lambda data, at: Uint(0),
    ULONG0: lambda data, at: Ulong(0),
    SMALLUINT: _number(Uint, "B"),
    SMALLULONG: _number(Ulong, "B"),
    SMALLINT: _number(Int, "b"),
    SMALLLONG: _number(Long, "b"),
    LIST0: lambda data, at: [],
    UUID_CODE: lambda data, at: uuid.UUID(bytes=data[at : at + 16]),
    FIXED_ELEMENTS["char"][0]: _char,
    **{FIXED_ELEMENTS[name][0]: _number(kind, form) for name, (kind, form) in _NUMBERS.items()},
    **{code: _decimal(kind, WIDTH[code]) for code, kind in map(FIXED_ELEMENTS.__getitem__, _DECIMALS)},
}
"""What reads the data at a place, by its constructor; the caller has checked that the octets are there."""


def fixed_code(value: object) -> int:
    """The format code of a value whose type has only one."""
    for base in type(value).__mro__:
        code = FIXED_FORMS.get(base)
        if code is not None:
            return code
    raise EncodeError(f"expected a value of fixed width, but got {type(value).__name__}")


def fixed_octets(value: Any) -> bytes:
    """The data of a value in the widest fixed encoding of its type: what arrays of it hold."""
    form = _PACK.get(type(value))
    if form is not None:
        try:
            packed: bytes = form.pack(value.value)
        except (struct.error, OverflowError):
            raise EncodeError(f"{value!r} does not fit {form.size} octets") from None
        return packed
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, Char):
        if len(value.value) != 1 or 0xD800 <= ord(value.value) <= 0xDFFF:
            raise EncodeError(f"expected one Unicode code point for a char, but got {shorten(value.value)}")
        return ord(value.value).to_bytes(4, "big")
    assert isinstance(value, BytesValue)
    octets = WIDTH[fixed_code(value)]
    if len(value.value) != octets:
        raise EncodeError(f"expected {octets} octets for {type(value).__name__}, but got {len(value.value)}")
    return value.value
