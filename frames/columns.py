"""Sections of many messages read column by column: those of one layout together, in one pass of `struct`. And
sections of texts, written.

    00 53 73 c0 23 03 a1 07 | o r d e r - 1 | 40 40 a1 05 | o r d e r | ...
    a constant                a hole          a constant    a hole

A producer's messages differ in their values, less often in which fields they have, and in how long each is.
Sections of one size are read by the layout of the first of them: where its values are, and what is between,
which has to be the same octets in the others. Those that differ are laid out by one of their own. What is
rare (few of a layout, types that are not here, what is malformed) is left to the general readers.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from amqp_broker.frames.declarations import DECLARATIONS
from amqp_broker.frames.flat_maps import enter_map
from amqp_broker.frames.primitive_types import (
    FALSE,
    LIST8,
    SMALLUINT,
    STR8,
    SYM8,
    TIMESTAMP,
    TRUE,
    UINT,
    ULONG,
    UUID,
    VBIN8,
)
from amqp_broker.frames.primitive_types import NULL as NULL_CODE
from amqp_broker.frames.sections import AMQP_SEQUENCE, AMQP_VALUE, DATA, PROPERTY_CODES, Properties

DATA_CODE, SEQUENCE_CODE, VALUE_CODE = DATA, AMQP_SEQUENCE, AMQP_VALUE
"""What `split_many` says of bodies."""

GROUP_MIN: Final = 8
"""Fewer sections of one layout are not worth one."""
LAYOUTS_MAX: Final = 64
"""Layouts that are tried for the sections of one size."""

Column = Sequence[Any]
Convert = Callable[[Column], Any]


@attrs.frozen
class Layout:
    """Where the values of a section are: `read_values` takes them out of many sections, one behind the other,
    and `read_constants` what is between them, which has to be `expected`. `values` has for each of them its
    name, its place in what is read (NO_HOLE: its constructor is all of it), and how its column becomes what
    is wanted.
    """

    values: tuple[tuple[str, int, Convert], ...]
    expected: tuple[bytes, ...]
    read_constants: Callable[[bytes], Iterable[tuple[Any, ...]]]
    read_values: Callable[[bytes], Iterable[tuple[Any, ...]]]

    def columns(self, sections: bytes) -> list[Any]:
        """The column of each value. Raises ValueError where one cannot be what is wanted."""
        found = list(zip(*self.read_values(sections), strict=True))
        return [convert(found[place] if place != NO_HOLE else ()) for _, place, convert in self.values]


NO_HOLE: Final = -1


@attrs.frozen
class ColumnGroup:
    """Sections of one layout: their rows, and the values of each hole."""

    rows: Sequence[int]
    layout: Layout
    columns: list[Any]


class Unlike(ValueError):
    """Values that cannot be converted together; those of the same mark can, if any can."""

    def __init__(self, marks: Sequence[int]) -> None:
        super().__init__("values of several sizes")
        self.marks = marks


def check_utf8(column: Sequence[bytes]) -> None:
    """Raises UnicodeDecodeError unless each is a text."""
    # Half a character at the end of one and the other half in the next are no character: hence the zeros.
    b"\0".join(column).decode()


Learn = Callable[[bytes], Layout | None]


def lay_out(parts: Sequence[bytes | None], learn: Learn) -> tuple[list[ColumnGroup], list[int]]:
    """Groups of the parts that are there, and the rows of those that are in none."""
    by_size: dict[int, Sequence[int]] = {}
    first = parts[0]
    if None not in parts and first is not None:
        sizes = list(map(len, parts))  # type: ignore[arg-type]
        if sizes.count(len(first)) == len(parts):
            by_size[len(first)] = range(len(parts))
    if not by_size:
        listed: defaultdict[int, list[int]] = defaultdict(list)
        for row, part in enumerate(parts):
            if part is not None:
                listed[len(part)].append(row)
        by_size.update(listed)
    groups: list[ColumnGroup] = []
    left: list[int] = []
    for rows in by_size.values():
        left += _of_one_size(parts, rows, learn, groups)
    return groups, left


def _of_one_size(
    parts: Sequence[Any], rows: Sequence[int], learn: Learn, groups: list[ColumnGroup]
) -> list[int]:
    """Appends the groups of these rows; gives back those that are in none."""
    left: list[int] = []
    waiting = [rows]
    for _ in range(LAYOUTS_MAX):
        if not waiting:
            return left
        rows = waiting.pop()
        if len(rows) < GROUP_MIN:
            left += rows
            continue
        layout = learn(parts[rows[0]])
        if layout is None:
            left.append(rows[0])
            waiting.append(rows[1:])
            continue
        chosen = parts if len(rows) == len(parts) else [parts[row] for row in rows]
        sections = b"".join(chosen)
        constants = list(layout.read_constants(sections))
        if constants.count(layout.expected) < len(rows):
            fits = list(map(layout.expected.__eq__, constants))
            waiting.append([row for row, fit in zip(rows, fits, strict=True) if not fit])
            rows = list(itertools.compress(rows, fits))
            sections = b"".join(itertools.compress(chosen, fits))
        try:
            groups.append(ColumnGroup(rows, layout, layout.columns(sections)))
        except Unlike as unlike:
            waiting += _alike(rows, unlike.marks)
        except ValueError:
            left += rows
    for rows in waiting:
        left += rows
    return left


def _alike(rows: Sequence[int], marks: Iterable[Any]) -> Iterable[list[int]]:
    """The rows of each mark."""
    found: defaultdict[Any, list[int]] = defaultdict(list)
    for row, mark in zip(rows, marks, strict=True):
        found[mark].append(row)
    return found.values()


class _Pieces:
    """A layout in the making: octets between values are one constant."""

    def __init__(self, section: bytes) -> None:
        self._section = section
        self._done = 0
        self._constants = [">"]
        self._holes = [">"]
        self._values: list[tuple[str, int, Convert]] = []
        self._expected: list[bytes] = []

    def hole(self, at: int, form: str, size: int, name: str, convert: Convert) -> None:
        """A value of so many octets."""
        self._constant(at)
        self._values.append((name, sum(place != NO_HOLE for _, place, _ in self._values), convert))
        self._constants.append(f"{size}x")
        self._holes.append(form)
        self._done = at + size

    def constant(self, name: str, convert: Convert) -> None:
        """A value that its constructor tells: it is the same in all sections of the layout."""
        self._values.append((name, NO_HOLE, convert))

    def _constant(self, until: int) -> None:
        if until > self._done:
            size = until - self._done
            self._expected.append(self._section[self._done : until])
            self._constants.append(f"{size}s")
            self._holes.append(f"{size}x")

    def layout(self) -> Layout:
        """The whole."""
        self._constant(len(self._section))
        return Layout(
            tuple(self._values),
            tuple(self._expected),
            struct.Struct("".join(self._constants)).iter_unpack,
            struct.Struct("".join(self._holes)).iter_unpack,
        )


# --- properties (3.2.4)

_FIELDS: Final = tuple(field.attribute for field in DECLARATIONS[Properties].fields)
STRING_ID, ULONG_ID, UUID_ID = "string", "ulong", "uuid"


def _same(column: Column) -> Column:
    return column


def _utf8(column: Column) -> Column:
    check_utf8(column)
    return column


def _ascii(column: Column) -> Column:
    b"".join(column).decode("ascii")
    return column


def _numbers_as_texts(column: Column) -> Column:
    return list(map(str, column))


def _uuids_as_texts(column: Column) -> Column:
    return [str(uuid.UUID(bytes=octets)) for octets in column]


# Constructor of a field of fixed width: its form, its size, what is behind its name, and what it becomes.
_FIXED: Final[dict[int, tuple[str, int, str, Convert]]] = {
    TIMESTAMP: ("q", 8, "", _same),
    ULONG: ("Q", 8, f":{ULONG_ID}", _numbers_as_texts),
    UUID: ("16s", 16, f":{UUID_ID}", _uuids_as_texts),
    UINT: ("I", 4, "", _same),
    SMALLUINT: ("B", 1, "", _same),
}


def properties_layout(section: bytes) -> Layout | None:
    """Of a properties section. The names are those of the fields; an id that is not a string has its type
    behind it: "message_id:ulong".
    """
    if section[3] != LIST8 or section[5] > len(_FIELDS):
        return None
    pieces = _Pieces(section)
    at = 6
    try:
        for index in range(section[5]):
            code = section[at]
            name = _FIELDS[index]
            if code == NULL_CODE:
                at += 1
                continue
            if code not in PROPERTY_CODES[index]:
                return None
            if code == STR8 or code == SYM8:
                size = section[at + 1]
                pieces.hole(at + 2, f"{size}s", size, name, _ascii if code == SYM8 else _utf8)
                at += 2 + size
            elif code in _FIXED:
                form, size, suffix, convert = _FIXED[code]
                pieces.hole(at + 1, form, size, name + suffix, convert)
                at += 1 + size
            else:
                return None
    except IndexError:
        return None
    return pieces.layout() if at == len(section) else None


# --- maps of scalars

BINARY, BOOLEAN, DOUBLE, INTEGER, NULL, TEXT, TIME, ZERO = (
    "binary", "boolean", "double", "integer", "null", "text", "time", "zero",
)  # fmt: skip
"""Kinds of values: each has a converter. A null or zero that has no octets is an empty column, booleans are
octets 1 and 0, and texts are octets that nobody looked at yet."""

# Constructor of a number: its form, its size, and its kind (1.6).
_NUMBERS: Final[dict[int, tuple[str, int, str]]] = {
    0x50: ("B", 1, INTEGER), 0x51: ("b", 1, INTEGER), 0x52: ("B", 1, INTEGER), 0x53: ("B", 1, INTEGER),
    0x54: ("b", 1, INTEGER), 0x55: ("b", 1, INTEGER), 0x60: ("H", 2, INTEGER), 0x61: ("h", 2, INTEGER),
    0x70: ("I", 4, INTEGER), 0x71: ("i", 4, INTEGER), 0x80: ("Q", 8, INTEGER), 0x81: ("q", 8, INTEGER),
    0x82: ("d", 8, DOUBLE), 0x83: ("q", 8, TIME),
}  # fmt: skip
_CONSTANTS: Final = {NULL_CODE: NULL, 0x43: ZERO, 0x44: ZERO}
_TRUTH: Final = bytes(octet == TRUE for octet in range(256))
Converters = Mapping[str, Callable[[Any], Any]]


def map_layout(converters: Converters, encoded: bytes) -> Layout | None:
    """Of a map with its constructor whose keys are short strings and whose values are scalars. The names are
    the keys; each column becomes what the converter of its kind makes of it.
    """
    count, at = enter_map(encoded, 0)
    if count < 0:
        return None
    pieces = _Pieces(encoded)
    names: list[str] = []
    try:
        for _ in range(count >> 1):
            if encoded[at] not in (STR8, SYM8):
                return None
            value_at = at + 2 + encoded[at + 1]
            name = encoded[at + 2 : value_at].decode()
            names.append(name)
            at = _scalar(encoded, value_at, name, pieces, converters)
            if at < 0:
                return None
    except (IndexError, UnicodeDecodeError):
        return None
    whole = at == len(encoded) and not count & 1 and len(set(names)) == len(names)
    return pieces.layout() if whole else None


def _scalar(encoded: bytes, at: int, name: str, pieces: _Pieces, converters: Converters) -> int:
    """Adds the value at `at`; where the next entry begins, -1 for types that are not here."""
    code = encoded[at]
    if code in (STR8, SYM8, VBIN8):
        size = encoded[at + 1]
        pieces.hole(at + 2, f"{size}s", size, name, converters[BINARY if code == VBIN8 else TEXT])
        return at + 2 + size
    if code in _NUMBERS:
        form, size, kind = _NUMBERS[code]
        pieces.hole(at + 1, form, size, name, converters[kind])
        return at + 1 + size
    if code in (TRUE, FALSE):
        pieces.hole(at, "B", 1, name, partial(_booleans, converters[BOOLEAN]))
        return at + 1
    if code in _CONSTANTS:
        pieces.constant(name, converters[_CONSTANTS[code]])
        return at + 1
    return -1


def _booleans(convert: Convert, column: Sequence[int]) -> Any:
    """Of constructors, which are all of a boolean. Raises Unlike where one is of something else."""
    if not set(column) <= {TRUE, FALSE}:
        raise Unlike([0 if constructor in (TRUE, FALSE) else constructor for constructor in column])
    return convert(bytes(column).translate(_TRUTH))


# --- sections of texts, written


def texts_encoder(names: Sequence[str]) -> Callable[[Mapping[str, str | None]], bytes]:
    """The encoder of properties with these fields, all of them texts: empty without any. It raises ValueError
    for what takes more than one octet of size, and for a symbol that is not ASCII.
    """
    indexes = {name: index for index, name in enumerate(_FIELDS)}
    plan = sorted((indexes[name], name, SYM8 in PROPERTY_CODES[indexes[name]]) for name in names)

    def encode(value: Mapping[str, str | None]) -> bytes:
        body = b""
        count = 0
        for index, name, symbol in plan:
            text = value[name]
            if text is not None:
                octets = text.encode("ascii" if symbol else "utf-8")
                # bytes() raises ValueError for a size that takes more than one octet.
                body += b"\x40" * (index - count) + bytes((SYM8 if symbol else STR8, len(octets))) + octets
                count = index + 1
        return b"\x00\x53\x73\xc0" + bytes((len(body) + 1, count)) + body if count else b""

    return encode
