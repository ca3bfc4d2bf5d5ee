"""One table of AMQP values, each with its name: every primitive type of part 1.6 that proton can express."""

from __future__ import annotations

import math
import uuid
from typing import Any

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

LONG_STRING = "ü€😀" * 5_000
LONG_BINARY = bytes(range(256)) * 300

SIMPLE: list[tuple[str, Any]] = [
    ("boolean true", True),
    ("boolean false", False),
    ("ubyte 0", ubyte(0)),
    ("ubyte max", ubyte(2**8 - 1)),
    ("ushort 0", ushort(0)),
    ("ushort max", ushort(2**16 - 1)),
    ("uint 0", uint(0)),
    ("uint small", uint(255)),
    ("uint max", uint(2**32 - 1)),
    ("ulong 0", ulong(0)),
    ("ulong small", ulong(255)),
    ("ulong max", ulong(2**64 - 1)),
    ("byte min", byte(-(2**7))),
    ("byte max", byte(2**7 - 1)),
    ("short min", short(-(2**15))),
    ("short max", short(2**15 - 1)),
    ("int min", int32(-(2**31))),
    ("int small", int32(-1)),
    ("int max", int32(2**31 - 1)),
    ("long min", -(2**63)),
    ("long small", -1),
    ("long max", 2**63 - 1),
    ("float", float32(1.5)),
    ("float infinity", float32(math.inf)),
    ("double", 0.1),
    ("double smallest", 5e-324),
    ("double negative infinity", -math.inf),
    ("double NaN", math.nan),
    ("decimal32", decimal32(0x22400005)),
    ("decimal64", decimal64(0x2238000000000005)),
    ("decimal128", decimal128(bytes(range(16)))),
    ("char ASCII", char("a")),
    ("char beyond the BMP", char("😀")),
    ("timestamp 0", timestamp(0)),
    ("timestamp before 1970", timestamp(-(10**12))),
    ("timestamp", timestamp(1_700_000_000_123)),
    ("uuid", uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")),
    ("binary empty", b""),
    ("binary short", b"\x00\xff\x80"),
    ("binary long", LONG_BINARY),
    ("string empty", ""),
    ("string short", "grüße"),
    ("string long", LONG_STRING),
    ("symbol empty", symbol("")),
    ("symbol short", symbol("amqp:symbol")),
    ("symbol long", symbol("s" * 1_000)),
]
"""What application-properties may hold: simple types, no map, list or array (part 3.2.5)."""

COMPOUND: list[tuple[str, Any]] = [
    ("list empty", []),
    ("list mixed", [None, True, ubyte(7), "text", symbol("sym"), [uint(1), []], {"k": [1]}]),
    ("list of 300", list(range(300))),
    ("map empty", {}),
    ("map of keys of several types", {"s": 1, symbol("y"): 2, ulong(3): None, True: b"bin", "m": {"n": []}}),
    ("map of 300", {f"key-{n}": n for n in range(300)}),
    ("array of ulong", Array(UNDESCRIBED, Data.ULONG, ulong(0), ulong(2**64 - 1))),
    ("array of symbol", Array(UNDESCRIBED, Data.SYMBOL, symbol("a"), symbol("b" * 300))),
    ("array of string", Array(UNDESCRIBED, Data.STRING, "", "x")),
    ("array of boolean", Array(UNDESCRIBED, Data.BOOL, True, False, True)),
    ("array empty", Array(UNDESCRIBED, Data.INT)),
    ("described value", Described(symbol("example:point"), [1, 2])),
]


def shape(value: Any) -> Any:
    """The value with its type made visible: in Python, ``uint(1) == ulong(1)``."""
    if isinstance(value, Array):
        return ("array", repr(value.descriptor), value.type, [shape(element) for element in value.elements])
    if isinstance(value, Described):
        return ("described", shape(value.descriptor), shape(value.value))
    if isinstance(value, dict):
        pairs = [(shape(key), shape(item)) for key, item in value.items()]
        return ("map", sorted(pairs, key=repr))
    if isinstance(value, list):
        return ("list", [shape(item) for item in value])
    if isinstance(value, float):
        return (type(value).__name__, repr(float(value)))
    if isinstance(value, memoryview):
        return ("bytes", bytes(value))
    return (type(value).__name__, value)
