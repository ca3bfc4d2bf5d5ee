"""What the readers of `generated.py` share: the forms of a field that are rarer than its usual one.

    data[at] is the constructor of a field, `code`; OCTETS[code] is how many octets the field has with it.

Each function is asked for what its caller did not find, and raises ValueError for a constructor that is not
of the field's type. Whether the fields end where their list ends is the caller's to check, when it has them
all: places only ever go forward.
"""

from __future__ import annotations

import struct
from types import FunctionType
from typing import Final

from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.primitive_types import ENCODINGS, FIXED

_unpack_u32: Final = struct.Struct(">I").unpack_from
_WIDTHS: Final = {row.code: 1 + row.width for row in ENCODINGS if row.category == FIXED}
OCTETS: Final = bytes([_WIDTHS.get(code, 0) for code in range(256)])
"""The octets of a value of fixed width with its constructor, by the constructor; 0 for every other."""


def u32(data: bytes, at: int) -> int:
    """The four octets at `at` as one number. Raises IndexError or struct.error where they are not there."""
    if COMPILED:
        return (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
    number: int = _unpack_u32(data, at)[0]
    return number


# A function of a compiled module is not one of Python's. There an index is one machine instruction, and a
# struct makes objects; for the interpreter one call of a struct is cheaper than many small steps.
COMPILED: Final = not isinstance(u32, FunctionType)


def uint(data: bytes, at: int, code: int) -> int:
    """A uint of four octets or of none (1.6.5)."""
    if code == 0x70:
        if COMPILED:
            return u32(data, at + 1)
        number: int = _unpack_u32(data, at + 1)[0]
        return number
    if code != 0x43:
        raise ValueError(code)
    return 0


def uint_or(data: bytes, at: int, code: int, absent: int) -> int:
    """The value of a `uint` field, or `absent` for null."""
    return absent if code == 0x40 else uint(data, at, code)


def boolean(data: bytes, at: int, code: int) -> bool:
    """A boolean whose value is an octet (1.6.2)."""
    if code != 0x56 or data[at + 1] > 1:
        raise ValueError(code)
    return data[at + 1] == 1


def boolean_or_false(data: bytes, at: int, code: int) -> bool:
    """The value of a `boolean` field, or False for null."""
    return code != 0x40 and boolean(data, at, code)


def boolean_or_none(data: bytes, at: int, code: int) -> bool | None:
    """The value of a `boolean` field, or None for null."""
    return None if code == 0x40 else boolean(data, at, code)


def flag(data: bytes, at: int, code: int) -> int:
    """The value of a `boolean` field as 0 or 1, or -1 for null."""
    return -1 if code == 0x40 else int(boolean(data, at, code))


def ubyte(data: bytes, at: int, code: int, most: int) -> int:
    """A ubyte that is not above `most` (1.6.3)."""
    if code != 0x50 or data[at + 1] > most:
        raise ValueError(code)
    return data[at + 1]


def octets_or_none(data: bytes, at: int, most: int) -> bytes | None:
    """Binary of at most `most` octets, with a size of one octet, or None for null (1.6.19)."""
    if data[at] == 0x40:
        return None
    if data[at] != 0xA0 or data[at + 1] > most:
        raise ValueError(data[at])
    return data[at + 2 : at + 2 + data[at + 1]]


def enter_list(data: bytes, start: int, descriptor: bytes) -> tuple[int, int, int]:
    """Where the first field of the list32 behind this descriptor is, where the list ends and how many fields
    it has (1.6.22).
    """
    if data[start : start + 3] != descriptor or data[start + 3] != 0xD0:
        raise ValueError(start)
    return start + 12, start + 8 + u32(data, start + 4), u32(data, start + 8)


def end_of_state(data: bytes, at: int, end: int) -> int:
    """Where the delivery-state at `at` ends, by its size: what is inside is checked when it is decoded."""
    if data[at + 1] == 0x53 and data[at] == 0:
        code = data[at + 3]
        if code == 0x45:
            return at + 4
        if code == 0xC0:
            return at + 5 + data[at + 4]
    try:
        return skip_value(data, at, end)
    except DecodeError as error:
        raise ValueError(data[at]) from error
