"""Bytes from values: the shortest form, and EncodeError for what the wire cannot carry."""

from __future__ import annotations

import enum
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Array,
    Byte,
    Decimal128,
    Described,
    EncodeError,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode_value,
    encode_value,
)
from amqp_broker.frames.limits import DEPTH_MAX, ZERO_WIDTH_ELEMENTS_MAX
from amqp_broker.frames.values import Char, Decimal32, Decimal64
from tests import strategies
from tests.support.examples import examples

ARRAYS = strategies.arrays(
    st.lists(strategies.scalars(), max_size=3), st.dictionaries(strategies.scalars(), st.none(), max_size=3)
)


def _named(value: object) -> str:
    """The same in every process: an address in memory is no name."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:40]


SHORTEST: list[tuple[Any, str]] = [
    (Uint(255), "52 ff"),
    (Uint(256), "70 00 00 01 00"),
    (Ulong(256), "80 00 00 00 00 00 00 01 00"),
    (Int(-128), "54 80"),
    (Int(128), "71 00 00 00 80"),
    (Long(127), "55 7f"),
    (Long(-129), "81 ff ff ff ff ff ff ff 7f"),
    (7, "55 07"),
    (1.5, "82 3f f8 00 00 00 00 00 00"),
    (bytearray(b"a"), "a0 01 61"),
    (memoryview(b"a"), "a0 01 61"),
    ([True], "c0 02 01 41"),
    (Array("uint", [Uint(1)]), "e0 06 01 70 00 00 00 01"),
    (Array("string", ["a", "b"]), "e0 06 02 a1 01 61 01 62"),
    (Described(Ulong(0x24), []), "00 53 24 45"),
    (Accepted(), "00 53 24 45"),
    ([Accepted()], "c0 05 01 00 53 24 45"),
]


@pytest.mark.parametrize(("value", "octets"), SHORTEST, ids=[_named(value) for value, _ in SHORTEST])
def test_the_shortest_form_is_chosen(value: object, octets: str) -> None:
    """At each border between two encodings the shorter one is taken."""
    assert encode_value(value) == bytes.fromhex(octets)


@pytest.mark.parametrize("size", [254, 255, 256, 257])
def test_sizes_around_the_border_of_the_long_forms(size: int) -> None:
    """255 octets are short, 256 are long, for data and for compounds with their count."""
    short = size < 256
    assert encode_value(bytes(size))[0] == (0xA0 if short else 0xB0)
    assert encode_value("x" * size)[0] == (0xA1 if short else 0xB1)
    assert encode_value(Symbol("x" * size))[0] == (0xA3 if short else 0xB3)
    # A compound's size counts the octet of its count.
    assert encode_value([None] * size)[0] == (0xC0 if size < 255 else 0xD0)
    mixed = Array("string", ["x" * size, "y"])
    assert decode_value(encode_value(mixed))[0] == mixed


INVALID: list[Any] = [
    Ubyte(-1),
    Ubyte(256),
    Ushort(65536),
    Uint(-1),
    Uint(2**32),
    Ulong(2**64),
    Byte(128),
    Short(-32769),
    Int(2**31),
    Long(2**63),
    2**63,
    Timestamp(2**63),
    Float(1e300),
    Char(""),
    Char("ab"),
    Char("\ud800"),
    Decimal32(b"123"),
    Decimal64(b"1234"),
    Decimal128(b""),
    "\ud800",
    Symbol("\u00e9"),
    Described("text", None),
    Described(5, None),
    Array("nonsense", []),
    Array("uint", [Ulong(1)]),
    Array("uint", [1]),
    Array("long", [True]),
    Array("string", [Symbol("a")]),
    Array("null", [1]),
    Array("null", [None] * (ZERO_WIDTH_ELEMENTS_MAX + 1)),
    Array("ubyte", [], ("text",)),
    (1, 2),
    object(),
    {object(): 1},
]


@pytest.mark.parametrize("value", INVALID, ids=lambda value: _named(value))
def test_what_the_wire_cannot_carry_is_an_encode_error(value: object) -> None:
    """Out of range, of the wrong class, or no AMQP type at all: never a broken encoding, never another
    error.
    """
    with pytest.raises(EncodeError, match=r"expected|does not fit"):
        encode_value(value)


def test_depth_is_bounded_like_the_decoders() -> None:
    """What nests deeper than decoders take is not encoded; a list that holds itself neither."""
    deepest: list[Any] = []
    for _ in range(DEPTH_MAX):
        deepest = [deepest]
    assert decode_value(encode_value(deepest))[0] == deepest
    endless: list[Any] = []
    endless.append(endless)
    for value in ([deepest], endless):
        with pytest.raises(EncodeError, match="deeper than DEPTH_MAX"):
            encode_value(value)


def test_subclasses_are_encoded_as_their_base() -> None:
    """An IntEnum is a long, and a str with a subclass a string."""

    class Level(enum.IntEnum):
        HIGH = 9

    class Name(str):
        pass

    assert encode_value(Level.HIGH) == encode_value(9)
    assert encode_value(Name("x")) == encode_value("x")


@pytest.mark.parametrize("name", ARRAYS)
def test_every_element_type_of_an_array(name: str) -> None:
    """Arrays of each primitive type come back as they were."""

    @examples(25)
    @given(ARRAYS[name])
    def check(array: Array) -> None:
        decoded, _ = decode_value(encode_value(array))
        assert decoded == array

    check()
