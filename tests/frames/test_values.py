"""The wrapper classes: what is equal, what is hashable, and what is printed."""

from __future__ import annotations

import uuid
from typing import Any

from amqp_broker.frames import (
    Array,
    Byte,
    Described,
    Double,
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
)
from amqp_broker.frames.values import Char, CompoundKey, Decimal32

ONES: list[Any] = [
    True,
    "1",
    b"1",
    Ubyte(1),
    Ushort(1),
    Uint(1),
    Ulong(1),
    Byte(1),
    Short(1),
    Int(1),
    Long(1),
    Timestamp(1),
    Float(1.0),
    Double(1.0),
    Symbol("1"),
    Char("1"),
    Decimal32(b"1"),
    CompoundKey(["1"]),
    Described(Ulong(1), "1"),
    Array("string", ["1"]),
]


def test_types_stay_apart() -> None:
    """The same number in twenty types is twenty keys of a map."""
    assert len(set(ONES)) == len(dict.fromkeys(ONES)) == len(ONES)
    for index, one in enumerate(ONES):
        assert [other == one for other in ONES].index(True) == index
        assert [other == one for other in ONES].count(True) == 1


def test_floats_are_equal_by_their_bits() -> None:
    """A NaN equals itself, and zero is not minus zero."""
    assert Double(float("nan")) == Double(float("nan"))
    assert hash(Float(float("nan"))) == hash(Float(float("nan")))
    assert Double(0.0) != Double(-0.0)


def test_described_values_and_arrays_compare_by_all_they_hold() -> None:
    """Descriptor, element type, order and the types inside make the difference."""
    assert Described(Ulong(1), [True]) == Described(Ulong(1), [True])
    assert Described(Ulong(1), [True]) != Described(Symbol("1"), [True])
    assert Described(Ulong(1), [True]) != Described(Ulong(1), [1])
    assert Described(Ulong(1), {"a": 1, "b": 2}) != Described(Ulong(1), {"b": 2, "a": 1})
    assert Array("uint", []) != Array("ulong", [])
    assert Array("uint", [], (Symbol("x"),)) != Array("uint", [])
    assert Array("list", [[True]]).value == [[True]]


def test_hashes_cannot_be_chosen_by_a_peer() -> None:
    """Python's int hash repeats after 2^61 - 1; as keys of a map such numbers must not collide."""
    period = 2**61 - 1
    assert hash(1) == hash(1 + period)
    assert hash(Ulong(1)) != hash(Ulong(1 + period))
    assert hash(CompoundKey([uuid.UUID(int=1)])) != hash(CompoundKey([uuid.UUID(int=1 + period)]))
    assert hash(Described(Ulong(1), Ulong(1))) != hash(Described(Ulong(1), Ulong(1 + period)))
