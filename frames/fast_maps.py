"""Flat maps from names to text and integers, encoded at once: the bodies of many small messages (1.6.23).

    map8 or map32 | size count | str8 name, value ... | value: str8, str32, smalllong or long

The same bytes as `encode_value` makes of a dict with str and int values.
"""

import struct
from collections.abc import Mapping
from typing import Final

_LONG: Final = struct.Struct(">Bq").pack
_STR32: Final = struct.Struct(">BI").pack
_MAP32: Final = struct.Struct(">BII").pack
# Names are the broker's own, so that they are few; a bounded memo starts again all the same.
MAX_NAMES: Final = 1_024

_names: Final[dict[str, bytes]] = {}


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    if len(data) < 256:
        return b"\xa1" + bytes((len(data),)) + data
    return _STR32(0xB1, len(data)) + data


def _name(name: str) -> bytes:
    if len(_names) >= MAX_NAMES:
        _names.clear()
    found = _names[name] = _text(name)
    return found


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
            append(_LONG(0x81, int(value)))
    data = b"".join(parts)
    count = 2 * len(entries)
    if len(data) < 255 and count < 256:
        return bytes((0xC1, len(data) + 1, count)) + data
    return _MAP32(0xD1, len(data) + 4, count) + data
