"""Columns of scalars as VARIANT values of one size: so that a row of a map is one call of `struct`.

    head  what all values begin with      b"\x15" of texts of five octets, b"\x10" of numbers of two
    form  how `struct` writes the rest    "5s", "h"

Raised is ValueError (UnicodeDecodeError is one) where the values cannot be written so: octets that are no
text, and Unlike for numbers that take different sizes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs

from amqp_broker.frames.columns import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NULL,
    TEXT,
    TIME,
    ZERO,
    Unlike,
    check_utf8,
    map_layout,
)
from amqp_broker.pipeline.variants import TEXT_SHORT_MAX, microseconds


@attrs.frozen
class Packed:
    """Values of one size. An empty `form` says that the head is all of it."""

    head: bytes
    form: str
    size: int
    values: Sequence[Any]


_AS_VARIANT: Final = b"\x08\x04" + bytes(254)
"""False and true."""

_BINARY: Final = 15 << 2
_LONG_TEXT: Final = 16 << 2
# Below each bound (and from the one before on) an integer has this head and form; none above 2^63.
_BOUNDS: Final = (-(1 << 63), -(1 << 31), -(1 << 15), -(1 << 7), 1 << 7, 1 << 15, 1 << 31, 1 << 63)
_INT1, _INT2, _INT4, _INT8 = (b"\x0c", "b", 1), (b"\x10", "h", 2), (b"\x14", "i", 4), (b"\x18", "q", 8)
_WIDTHS: Final = (None, _INT8, _INT4, _INT2, _INT1, _INT2, _INT4, _INT8, None)


def texts_packed(column: Sequence[bytes]) -> Packed:
    """Texts of one size in octets."""
    check_utf8(column)
    size = len(column[0])
    head = bytes((size << 2 | 1,)) if size <= TEXT_SHORT_MAX else _sized(_LONG_TEXT, size)
    return Packed(head, f"{size}s", size, column)


def octets_packed(column: Sequence[bytes]) -> Packed:
    """Octets of one size."""
    size = len(column[0])
    return Packed(_sized(_BINARY, size), f"{size}s", size, column)


def _sized(kind: int, size: int) -> bytes:
    return bytes((kind,)) + size.to_bytes(4, "little")


def integers_packed(column: Sequence[int]) -> Packed:
    """Integers that take the same size. Raises Unlike for others."""
    lowest = bisect_right(_BOUNDS, min(column))
    if lowest != bisect_right(_BOUNDS, max(column)):
        raise Unlike(list(map(bisect_right, itertools.repeat(_BOUNDS), column)))
    width = _WIDTHS[lowest]
    if width is None:
        raise ValueError(f"expected numbers below 2^63, found {column[0]}")
    return Packed(*width, column)


def doubles_packed(column: Sequence[float]) -> Packed:
    """Doubles."""
    return Packed(b"\x1c", "d", 8, column)


def times_packed(column: Sequence[int]) -> Packed:
    """Milliseconds since the epoch."""
    return Packed(b"\x30", "q", 8, list(map(microseconds, column)))


def booleans_packed(column: bytes) -> Packed:
    """Octets 1 and 0."""
    return Packed(b"", "B", 1, column.translate(_AS_VARIANT))


def _constant(octets: bytes) -> Callable[[Sequence[Any]], Packed]:
    return lambda column: Packed(octets, "", 0, ())


variants_layout: Final = partial(
    map_layout,
    {
        BINARY: octets_packed, BOOLEAN: booleans_packed, DOUBLE: doubles_packed, INTEGER: integers_packed,
        NULL: _constant(b"\x00"), TEXT: texts_packed, TIME: times_packed, ZERO: _constant(b"\x0c\x00"),
    },
)  # fmt: skip
"""The layout of an encoded map whose values become VARIANT."""
