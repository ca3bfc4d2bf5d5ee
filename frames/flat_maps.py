"""Flat maps read and written at once: annotations, application-properties, bodies of small messages (1.6.23).

    map8 or map32 | size count | str8 or sym8 name, value ... | value: of a simple type

The same values as `decode_value` gives, as plain Python, and the same bytes as `encode_value` makes. Each
reader says which maps it leaves to `decode_value`.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.primitive_types import (
    DOUBLE,
    FALSE,
    INTEGERS,
    LONG,
    MAP8,
    MAP32,
    NULL,
    SMALLINT,
    SMALLLONG,
    STR8,
    STR32,
    SYM8,
    TRUE,
    VBIN8,
)

# Names are the broker's own, so that they are few; a bounded memo starts again all the same.
MAX_NAMES: Final = 1_024

_pack_long: Final = struct.Struct(">Bq").pack
_pack_str32: Final = struct.Struct(">BI").pack
_pack_map32: Final = struct.Struct(">BII").pack
_unpack_u32: Final = struct.Struct(">I").unpack_from
_unpack_i64: Final = struct.Struct(">q").unpack_from
_unpack_double: Final = struct.Struct(">d").unpack_from

_names: Final[dict[str, bytes]] = {}


def encode_flat_map(entries: Mapping[str, str | int]) -> bytes:
    """The map as one value; integers are long. Raises struct.error for one beyond 64 bits."""
    parts: list[bytes] = []
    append = parts.append
    names = _names
    for name, value in entries.items():
        append(names.get(name) or _name(name))
        if type(value) is str:
            append(_text(value))
        elif -128 <= int(value) < 128:
            append(b"\x55" + (int(value) & 0xFF).to_bytes(1, "big"))
        else:
            append(_pack_long(LONG, int(value)))
    data = b"".join(parts)
    count = 2 * len(entries)
    if len(data) < 255 and count < 256:
        return bytes((MAP8, len(data) + 1, count)) + data
    return _pack_map32(MAP32, len(data) + 4, count) + data


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    if len(data) < 256:
        return b"\xa1" + bytes((len(data),)) + data
    return _pack_str32(STR32, len(data)) + data


def _name(name: str) -> bytes:
    if len(_names) >= MAX_NAMES:
        _names.clear()
    found = _names[name] = _text(name)
    return found


def enter_map(data: bytes, at: int) -> tuple[int, int]:
    """How many values the map at `at` says it has, and where the first one is; -1 for what is no map. Raises
    IndexError or struct.error where they are not there.
    """
    if data[at] == MAP8:
        return data[at + 2], at + 3
    if data[at] == MAP32:
        return int(_unpack_u32(data, at + 5)[0]), at + 9
    return -1, at


def read_flat_map(data: bytes) -> dict[str, Any] | None:
    """A map with its constructor whose keys are short strings or symbols and whose values are integers,
    strings, symbols, doubles, booleans, short binaries or null; None for every other.
    """
    keys: list[str] = []
    values: list[Any] = []
    count = extend_from_map(data, keys, values)
    if count < 0:
        return None
    found = dict(zip(keys, values, strict=True))
    return found if len(found) == count else None


def extend_from_map(data: bytes, keys: list[str], values: list[Any]) -> int:
    """Appends the entries of such a map to two lists; how many there are, -1 for another map, and then the
    lists are of no use. A key that comes twice is appended twice.
    """
    end = len(data)
    try:
        count, at = (data[2], 3) if data[0] == MAP8 else enter_map(data, 0)
        if count < 0:
            return -1
        for _ in range(count >> 1):
            if data[at] != STR8 and data[at] != SYM8:
                return -1
            stop = at + 2 + data[at + 1]
            keys.append(data[at + 2 : stop].decode())
            code = data[stop]
            if code == STR8 or code == SYM8:
                at = stop + 2 + data[stop + 1]
                values.append(data[stop + 2 : at].decode())
            elif code == SMALLLONG or code == SMALLINT:
                octet = data[stop + 1]
                values.append(octet if octet < 128 else octet - 256)
                at = stop + 2
            elif code == LONG:
                values.append(_unpack_i64(data, stop + 1)[0])
                at = stop + 9
            elif code == DOUBLE:
                values.append(_unpack_double(data, stop + 1)[0])
                at = stop + 9
            elif code in INTEGERS:
                octets, signed = INTEGERS[code]
                at = stop + 1 + octets
                values.append(int.from_bytes(data[stop + 1 : at], "big", signed=signed))
            elif code == NULL or code == TRUE or code == FALSE:
                values.append(None if code == NULL else code == TRUE)
                at = stop + 1
            elif code == VBIN8:
                at = stop + 2 + data[stop + 1]
                values.append(data[stop + 2 : at])
            else:
                return -1
            if at > end:
                return -1
    except (IndexError, struct.error, UnicodeDecodeError):
        return -1
    return count >> 1 if at == end and not count & 1 else -1


def read_entries(
    data: bytes, at: int, end: int, symbols: bool, names: dict[bytes, str]
) -> dict[str, Any] | None:
    """Entries of the map between `at` and `end`, by what `names` calls their keys, which are `symbols` or
    strings: integral values of any type as int, strings as str; a null is no entry. None where the map or one
    of these values is not certain.
    """
    found: dict[str, Any] = {}
    key_code = SYM8 if symbols else STR8
    try:
        count, pos = enter_map(data, at)
        if count < 0:
            return None
        for _ in range(count >> 1):
            if data[pos] != key_code:
                return None
            stop = pos + 2 + data[pos + 1]
            name = names.get(data[pos + 2 : stop])
            code = data[stop]
            if name is None or code == NULL:
                pos = skip_value(data, stop, end)
                continue
            integer = INTEGERS.get(code)
            value: int | str
            if integer is not None:
                pos = stop + 1 + integer[0]
                value = int.from_bytes(data[stop + 1 : pos], "big", signed=integer[1])
            elif code == STR8:
                pos = stop + 2 + data[stop + 1]
                value = str(data[stop + 2 : pos], "utf-8")
            else:
                return None
            if pos > end or name in found:
                return None
            found[name] = value
    except (IndexError, struct.error, UnicodeDecodeError, DecodeError):
        return None
    return found if pos == end else None


def read_keys(data: bytes, at: int, end: int) -> list[str] | None:
    """The keys of a map between `at` and `end` that is known to be well-formed; None where one of them is no
    short string.
    """
    keys: list[str] = []
    count, pos = enter_map(data, at)
    for _ in range(count >> 1):
        if data[pos] != STR8:
            return None
        stop = pos + 2 + data[pos + 1]
        keys.append(data[pos + 2 : stop].decode())
        pos = skip_value(data, stop, end)
    return keys
