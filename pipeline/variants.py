"""Values of the wire as Spark's VARIANT: two octet strings, the value and the dictionary of its field names.

metadata   version 1 and width of offsets | number of names | their offsets | the names
value      two low bits of the first octet: 0 primitive, 1 short string, 2 object, 3 array

integers   INT1 to INT8, above 2^63 DECIMAL16     string, symbol, char, uuid   STRING
float      FLOAT          double   DOUBLE         timestamp   TIMESTAMP (microseconds, UTC)
binary     BINARY         list, array   array     map         object, whose keys become strings
described  as its value   decimal32 to decimal128   BINARY, their octets as they came
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames import Array, Described, Double, Float, Timestamp

Variant = tuple[bytes, bytes]

EMPTY_METADATA: Final = b"\x01\x00\x00"
"""Of a value without objects in it."""
TEXT_SHORT_MAX: Final = 63
MAX_MEMO_ENTRIES: Final = 4_096

_NULL: Final = b"\x00"
_TRUE: Final = b"\x04"
_FALSE: Final = b"\x08"
_SHORT: Final = tuple(bytes((size << 2 | 1,)) for size in range(TEXT_SHORT_MAX + 1))
_pack_int1: Final = struct.Struct("<Bb").pack
_pack_int2: Final = struct.Struct("<Bh").pack
_pack_int4: Final = struct.Struct("<Bi").pack
_pack_int8: Final = struct.Struct("<Bq").pack
_pack_double: Final = struct.Struct("<Bd").pack
_pack_float: Final = struct.Struct("<Bf").pack
_pack_sized: Final = struct.Struct("<BI").pack
_INT1, _INT2, _INT4, _INT8 = 3 << 2, 4 << 2, 5 << 2, 6 << 2
_DOUBLE, _DECIMAL16, _TIMESTAMP, _FLOAT, _BINARY, _LONG_TEXT = (
    7 << 2,
    10 << 2,
    12 << 2,
    14 << 2,
    15 << 2,
    16 << 2,
)
_INT8_MIN, _INT8_MAX = -(1 << 63), (1 << 63) - 1

# What repeats comes early; when it is full, the rest is encoded each time.
_texts: Final[dict[str, bytes]] = {}
_metadata: Final[dict[tuple[str, ...], bytes]] = {}


def variant_of(value: Any) -> Variant:
    """The value and its metadata. `value` is what `decode_value` gives, or a plain Python value."""
    put = _SCALARS.get(type(value))
    if put is not None:
        return put(value), EMPTY_METADATA
    names: dict[str, int] = {}
    _collect(value, names)
    if not names:
        return _encode(value, names), EMPTY_METADATA
    ordered = tuple(sorted(names))
    ids = {name: number for number, name in enumerate(ordered)}
    return _encode(value, ids), _metadata_of(ordered)


def scalar_variant(value: Any) -> bytes | None:
    """The value octets of something that needs no dictionary; None for a list, a map and the like."""
    put = _SCALARS.get(type(value))
    return None if put is None else put(value)


def scalar_variants(values: list[Any]) -> list[bytes]:
    """The value octets of many scalars. Raises KeyError for what is none."""
    return [_SCALARS[type(value)](value) for value in values]


def microseconds(time_ms: int) -> int:
    """Of times beyond the year 290,000, which do not fit: the furthest that does."""
    return max(_INT8_MIN, min(_INT8_MAX, time_ms * 1_000))


def _text(value: str) -> bytes:
    known = _texts.get(value)
    if known is not None:
        return known
    octets = value.encode()
    size = len(octets)
    if size > TEXT_SHORT_MAX:
        return _pack_sized(_LONG_TEXT, size) + octets
    found = _SHORT[size] + octets
    if len(_texts) < MAX_MEMO_ENTRIES:
        _texts[value] = found
    return found


def _integer(value: int) -> bytes:
    if -128 <= value <= 127:
        return _pack_int1(_INT1, value)
    if -32_768 <= value <= 32_767:
        return _pack_int2(_INT2, value)
    if -2_147_483_648 <= value <= 2_147_483_647:
        return _pack_int4(_INT4, value)
    if _INT8_MIN <= value <= _INT8_MAX:
        return _pack_int8(_INT8, value)
    return bytes((_DECIMAL16, 0)) + value.to_bytes(16, "little", signed=True)


_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _text,
    int: _integer,
    bool: lambda value: _TRUE if value else _FALSE,
    type(None): lambda value: _NULL,
    float: lambda value: _pack_double(_DOUBLE, value),
    bytes: lambda value: _pack_sized(_BINARY, len(value)) + value,
    uuid.UUID: lambda value: _text(str(value)),
    Timestamp: lambda value: _pack_int8(_TIMESTAMP, microseconds(value.value)),
    Double: lambda value: _pack_double(_DOUBLE, value.value),
    Float: lambda value: _pack_float(_FLOAT, value.value),
}


def inner(value: Any) -> Any:
    """The value in the classes of the wire: an int, str, bytes, or a list or dict of such; others as they
    are.
    """
    if isinstance(value, Described):
        return inner(value.value)
    if isinstance(value, Array):
        return value.items
    if type(value) in _SCALARS:
        return value
    return getattr(value, "value", value)


def key_of(key: Any) -> str:
    """The key of a map as a name."""
    found = inner(key)
    if isinstance(found, bytes):
        return found.hex()
    return str(getattr(found, "value", found))


def _collect(value: Any, names: dict[str, int]) -> None:
    value = inner(value)
    if isinstance(value, dict):
        for key, item in value.items():
            names[key_of(key)] = 0
            _collect(item, names)
    elif isinstance(value, list):
        for item in value:
            _collect(item, names)


def _encode(value: Any, ids: dict[str, int]) -> bytes:
    put = _SCALARS.get(type(value))
    if put is not None:
        return put(value)
    value = inner(value)
    if isinstance(value, dict):
        return _object({key_of(key): _encode(item, ids) for key, item in value.items()}, ids)
    if isinstance(value, list):
        return _array([_encode(item, ids) for item in value])
    return _SCALARS[type(value)](value)


def _object(fields: dict[str, bytes], ids: dict[str, int]) -> bytes:
    # Spark looks fields up by halving, in the order of UTF-16 code units.
    ordered = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    offsets, data = _offsets([fields[name] for name in ordered])
    wide = len(ordered) > 255
    id_bytes = _width(max((ids[name] for name in ordered), default=0))
    offset_bytes = _width(len(data))
    head = bytes((wide << 6 | (id_bytes - 1) << 4 | (offset_bytes - 1) << 2 | 2,))
    return b"".join(
        (
            head,
            len(ordered).to_bytes(4 if wide else 1, "little"),
            b"".join([ids[name].to_bytes(id_bytes, "little") for name in ordered]),
            b"".join([offset.to_bytes(offset_bytes, "little") for offset in offsets]),
            data,
        )
    )


def _array(items: list[bytes]) -> bytes:
    offsets, data = _offsets(items)
    wide = len(items) > 255
    offset_bytes = _width(len(data))
    head = bytes((wide << 4 | (offset_bytes - 1) << 2 | 3,))
    listed = b"".join([offset.to_bytes(offset_bytes, "little") for offset in offsets])
    return head + len(items).to_bytes(4 if wide else 1, "little") + listed + data


def _offsets(parts: list[bytes]) -> tuple[list[int], bytes]:
    """Where each part begins, and where the last one ends; all of them."""
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return offsets, b"".join(parts)


def _metadata_of(names: tuple[str, ...]) -> bytes:
    known = _metadata.get(names)
    if known is None:
        offsets, data = _offsets([name.encode() for name in names])
        width = _width(max(len(data), len(names)))
        known = (
            bytes((1 | (width - 1) << 6,))
            + b"".join([number.to_bytes(width, "little") for number in (len(names), *offsets)])
            + data
        )
        if len(_metadata) >= MAX_MEMO_ENTRIES:
            _metadata.clear()
        _metadata[names] = known
    return known


def _width(number: int) -> int:
    return 1 if number <= 0xFF else 2 if number <= 0xFFFF else 3 if number <= 0xFFFFFF else 4
