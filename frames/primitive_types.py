"""The primitive types of part 1 and all their encodings: one table, from which the codec takes everything.

constructor            untyped data
+------+   +------------------------------------------+
| code |   | fixed      0, 1, 2, 4, 8 or 16 octets    |  0x4. to 0x9.
+------+   | variable   size (1 or 4), size octets     |  0xa. 0xb.
           | compound   size, count, count values      |  0xc. 0xd.
           | array      size, count, one constructor,  |  0xe. 0xf.
           |            count times data               |
           +------------------------------------------+
0x00 descriptor constructor ...                            a described value
"""

from typing import Final

FIXED: Final = 1
VARIABLE: Final = 2
COMPOUND: Final = 3
ARRAY: Final = 4

# The format codes that the readers of usual layouts look for, by the names of the standard.
DESCRIBED: Final = 0x00
NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT0: Final = 0x43
ULONG0: Final = 0x44
LIST0: Final = 0x45
SMALLUINT: Final = 0x52
SMALLULONG: Final = 0x53
SMALLINT: Final = 0x54
SMALLLONG: Final = 0x55
BOOLEAN: Final = 0x56
UINT: Final = 0x70
ULONG: Final = 0x80
LONG: Final = 0x81
DOUBLE: Final = 0x82
TIMESTAMP: Final = 0x83
UUID: Final = 0x98
VBIN8: Final = 0xA0
STR8: Final = 0xA1
SYM8: Final = 0xA3
VBIN32: Final = 0xB0
STR32: Final = 0xB1
SYM32: Final = 0xB3
LIST8: Final = 0xC0
MAP8: Final = 0xC1
LIST32: Final = 0xD0
MAP32: Final = 0xD1


class Encoding:
    """One row: `width` is the octets of data (fixed) or of size and count (the other categories)."""

    __slots__ = ("category", "code", "name", "type_name", "width")

    def __init__(self, type_name: str, name: str, code: int, category: int, width: int) -> None:
        self.type_name: str = type_name
        self.name: str = name
        self.code: int = code
        self.category: int = category
        self.width: int = width


ENCODINGS: Final = (
    Encoding("null", "", 0x40, FIXED, 0),
    Encoding("boolean", "", 0x56, FIXED, 1),
    Encoding("boolean", "true", 0x41, FIXED, 0),
    Encoding("boolean", "false", 0x42, FIXED, 0),
    Encoding("ubyte", "", 0x50, FIXED, 1),
    Encoding("ushort", "", 0x60, FIXED, 2),
    Encoding("uint", "", 0x70, FIXED, 4),
    Encoding("uint", "smalluint", 0x52, FIXED, 1),
    Encoding("uint", "uint0", 0x43, FIXED, 0),
    Encoding("ulong", "", 0x80, FIXED, 8),
    Encoding("ulong", "smallulong", 0x53, FIXED, 1),
    Encoding("ulong", "ulong0", 0x44, FIXED, 0),
    Encoding("byte", "", 0x51, FIXED, 1),
    Encoding("short", "", 0x61, FIXED, 2),
    Encoding("int", "", 0x71, FIXED, 4),
    Encoding("int", "smallint", 0x54, FIXED, 1),
    Encoding("long", "", 0x81, FIXED, 8),
    Encoding("long", "smalllong", 0x55, FIXED, 1),
    Encoding("float", "ieee-754", 0x72, FIXED, 4),
    Encoding("double", "ieee-754", 0x82, FIXED, 8),
    Encoding("decimal32", "ieee-754", 0x74, FIXED, 4),
    Encoding("decimal64", "ieee-754", 0x84, FIXED, 8),
    Encoding("decimal128", "ieee-754", 0x94, FIXED, 16),
    Encoding("char", "utf32", 0x73, FIXED, 4),
    Encoding("timestamp", "ms64", 0x83, FIXED, 8),
    Encoding("uuid", "", 0x98, FIXED, 16),
    Encoding("binary", "vbin8", 0xA0, VARIABLE, 1),
    Encoding("binary", "vbin32", 0xB0, VARIABLE, 4),
    Encoding("string", "str8-utf8", 0xA1, VARIABLE, 1),
    Encoding("string", "str32-utf8", 0xB1, VARIABLE, 4),
    Encoding("symbol", "sym8", 0xA3, VARIABLE, 1),
    Encoding("symbol", "sym32", 0xB3, VARIABLE, 4),
    Encoding("list", "list0", 0x45, FIXED, 0),
    Encoding("list", "list8", 0xC0, COMPOUND, 1),
    Encoding("list", "list32", 0xD0, COMPOUND, 4),
    Encoding("map", "map8", 0xC1, COMPOUND, 1),
    Encoding("map", "map32", 0xD1, COMPOUND, 4),
    Encoding("array", "array8", 0xE0, ARRAY, 1),
    Encoding("array", "array32", 0xF0, ARRAY, 4),
)


def _by_code() -> tuple[Encoding | None, ...]:
    rows: list[Encoding | None] = [None] * 256
    for row in ENCODINGS:
        rows[row.code] = row
    return tuple(rows)


def _column(categories: bool) -> bytes:
    column = bytearray(256)
    for row in ENCODINGS:
        column[row.code] = row.category if categories else row.width
    return bytes(column)


BY_CODE: Final = _by_code()
CATEGORY: Final = _column(True)
"""Category of each format code, 0 where the code is none of the standard's."""
WIDTH: Final = _column(False)


def codes_of(type_name: str) -> list[int]:
    """The format codes of one primitive type."""
    return [row.code for row in ENCODINGS if row.type_name == type_name]


def name_of_code(code: int) -> str:
    """What a format code stands for, for messages: "uint (smalluint, 0x52)"."""
    if code == DESCRIBED:
        return "a described value (0x00)"
    row = BY_CODE[code]
    if row is None:
        return f"the unknown format code 0x{code:02x}"
    return f"{row.type_name} ({row.name}, 0x{code:02x})" if row.name else f"{row.type_name} (0x{code:02x})"


WELL_FORMED: Final = {
    row.code: row.width
    for row in ENCODINGS
    if row.category == FIXED and row.name != "list0" and row.code != 0x56 and row.type_name != "char"
}
"""Octets of data behind each constructor whose data is a value whatever the octets are."""

INTEGERS: Final = {
    row.code: (row.width, not row.type_name.startswith("u"))
    for row in ENCODINGS
    if row.type_name.removeprefix("u") in ("byte", "short", "int", "long")
}
"""Octets of data behind each constructor of an integer, and whether they have a sign (1.6)."""
