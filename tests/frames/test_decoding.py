"""Values from bytes: every encoding, every bound, and nothing but DecodeError."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Array,
    Byte,
    Decimal128,
    DecodeError,
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
    decode_value,
    encode_value,
)
from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.limits import DEPTH_MAX, ZERO_WIDTH_ELEMENTS_MAX
from amqp_broker.frames.values import Char, CompoundKey, Decimal32, Decimal64
from tests import strategies
from tests.support.examples import examples

EXAMPLES: list[tuple[str, Any]] = [
    ("40", None),
    ("56 00", False),
    ("56 01", True),
    ("41", True),
    ("42", False),
    ("50 ff", Ubyte(255)),
    ("60 01 02", Ushort(258)),
    ("70 ff ff ff ff", Uint(4294967295)),
    ("70 00 00 00 00", Uint(0)),
    ("52 07", Uint(7)),
    ("43", Uint(0)),
    ("80 ff ff ff ff ff ff ff ff", Ulong(2**64 - 1)),
    ("53 ff", Ulong(255)),
    ("44", Ulong(0)),
    ("51 80", Byte(-128)),
    ("61 80 00", Short(-32768)),
    ("71 80 00 00 00", Int(-(2**31))),
    ("54 ff", Int(-1)),
    ("81 80 00 00 00 00 00 00 00", Long(-(2**63))),
    ("55 80", Long(-128)),
    ("72 3f c0 00 00", Float(1.5)),
    ("82 3f f8 00 00 00 00 00 00", Double(1.5)),
    ("74 01 02 03 04", Decimal32(b"\x01\x02\x03\x04")),
    ("84 01 02 03 04 05 06 07 08", Decimal64(bytes(range(1, 9)))),
    ("94" + "00" * 16, Decimal128(bytes(16))),
    ("73 00 01 f6 00", Char("\U0001f600")),
    ("83 00 00 01 31 68 2e 6b 21", Timestamp(0x0131682E6B21)),
    ("83 ff ff ff ff ff ff ff ff", Timestamp(-1)),
    ("98" + "11" * 16, uuid.UUID(bytes=b"\x11" * 16)),
    ("a0 00", b""),
    ("a0 02 00 ff", b"\x00\xff"),
    ("b0 00 00 00 01 61", b"a"),
    ("a1 02 c3 a9", "\u00e9"),
    ("b1 00 00 00 01 61", "a"),
    ("a3 01 61", Symbol("a")),
    ("b3 00 00 00 01 61", Symbol("a")),
    ("45", []),
    ("c0 01 00", []),
    ("c0 03 02 41 40", [True, None]),
    ("d0 00 00 00 06 00 00 00 02 41 42", [True, False]),
    ("c1 01 00", {}),
    ("c1 05 02 a1 01 6b 43", {"k": Uint(0)}),
    ("d1 00 00 00 08 00 00 00 02 a1 01 6b 43", {"k": Uint(0)}),
    ("e0 04 02 50 01 02", Array("ubyte", [Ubyte(1), Ubyte(2)])),
    ("f0 00 00 00 07 00 00 00 02 50 01 02", Array("ubyte", [Ubyte(1), Ubyte(2)])),
    ("e0 02 00 a3", Array("symbol", [])),
    ("e0 06 02 a3 01 61 01 62", Array("symbol", [Symbol("a"), Symbol("b")])),
    ("e0 02 03 40", Array("null", [None, None, None])),
    ("e0 02 02 43", Array("uint", [Uint(0), Uint(0)])),
    ("e0 02 02 45", Array("list", [[], []])),
    ("e0 04 02 56 00 01", Array("boolean", [False, True])),
    ("e0 02 02 41", Array("boolean", [True, True])),
    ("e0 08 02 00 a3 01 78 50 01 02", Array("ubyte", [Ubyte(1), Ubyte(2)], (Symbol("x"),))),
    (
        "e0 0d 01 00 a3 01 78 00 53 2a a1 03 66 6f 6f",
        Array("string", ["foo"], (Symbol("x"), Ulong(42))),
    ),
    ("e0 08 02 e0 02 00 40 02 01 41", Array("array", [Array("null", []), Array("boolean", [True])])),
    ("e0 07 02 c0 01 00 02 01 41", Array("list", [[], [True]])),
    ("e0 08 02 c1 01 00 03 02 40 41", Array("map", [{}, {None: True}])),
    ("00 53 2a 40", Described(Ulong(42), None)),
    ("00 80 00 00 00 00 00 00 00 2a 40", Described(Ulong(42), None)),
    ("00 44 40", Described(Ulong(0), None)),
    ("00 a3 01 78 a1 01 79", Described(Symbol("x"), "y")),
    ("00 b3 00 00 00 01 78 00 53 01 45", Described(Symbol("x"), Described(Ulong(1), []))),
    ("c1 05 02 c0 01 00 40", {CompoundKey([]): None}),
    ("c1 06 02 00 53 2a 40 41", {Described(Ulong(42), None): True}),
]


@pytest.mark.parametrize(("octets", "value"), EXAMPLES, ids=[octets[:24] for octets, _ in EXAMPLES])
def test_each_encoding_of_part_1_decodes(octets: str, value: object) -> None:
    """Written out by hand from the standard's drawings, every format code gives its value and its length."""
    data = bytes.fromhex(octets)
    decoded, offset = decode_value(data)
    assert decoded == value
    assert type(decoded) is type(value)
    assert offset == len(data)


@pytest.mark.parametrize("type_name", strategies.SCALAR_TYPES)
def test_round_trip_of_each_type(type_name: str) -> None:
    """Each type by itself, so that none is missed by the draw of a mixture."""

    @examples(50)
    @given(strategies.scalars(type_name))
    def check(value: object) -> None:
        decoded, _ = decode_value(encode_value(value))
        assert decoded == value
        assert type(decoded) is type(value)

    check()


@given(st.data())
def test_every_encoding_variant_decodes_to_the_same(data: st.DataObject) -> None:
    """Whatever encodings are chosen at each level of a value, it is the same value; so is the encoder's,
    which is the shortest.
    """
    value = data.draw(strategies.values())
    octets = data.draw(strategies.encoded(value))
    ours = encode_value(value)
    for form in (octets, ours):
        assert decode_value(b"\x00" + form + b"\xff", 1) == (value, 1 + len(form))
        assert skip_value(form, 0, len(form)) == len(form)
    assert encode_value(decode_value(octets)[0]) == ours
    assert len(ours) <= len(octets) or _has_array(value), "the encoder knows a shorter form"


def _has_array(value: object) -> bool:
    """Arrays of integers are encoded in full width: their items may have shorter forms."""
    if isinstance(value, Array):
        return True
    if isinstance(value, Described):
        return _has_array(value.value)
    if isinstance(value, list):
        return any(_has_array(item) for item in value)
    return isinstance(value, dict) and any(_has_array(item) for item in value.values())


@examples(1_000)
@given(strategies.mutated(strategies.values().map(encode_value)))
def test_mutations_raise_nothing_but_decode_errors(data: bytes) -> None:
    """Damaged values decode to something that can be encoded, or raise DecodeError."""
    for read in (_decode, _skip):
        try:
            read(data)
        except DecodeError as error:
            assert error.condition == "amqp:decode-error"
            assert error.description


@examples(200)
@given(st.binary(max_size=64))
def test_noise_raises_nothing_but_decode_errors(data: bytes) -> None:
    """Random octets are a value or a DecodeError."""
    try:
        _decode(data)
    except DecodeError:
        return


def _decode(data: bytes) -> None:
    value, offset = decode_value(data)
    assert offset <= len(data)
    again, _ = decode_value(encode_value(value))
    assert again == value


def _skip(data: bytes) -> None:
    assert skip_value(data, 0, len(data)) <= len(data)


@given(strategies.values(), st.data())
def test_no_cut_value_decodes(value: object, data: st.DataObject) -> None:
    """A value without its last octets is an error at every length."""
    octets = encode_value(value)
    for length in range(len(octets)):
        with pytest.raises(DecodeError):
            decode_value(octets[:length])


INVALID = {
    "nothing": ("", "expected a value"),
    "unknown format code": ("4f", "unknown format code 0x4f"),
    "unknown code of a known category": ("c5 01 00", "unknown format code 0xc5"),
    "boolean beyond 1": ("56 02", "0x02"),
    "fixed width cut off": ("70 00 00", "2 octets are left"),
    "binary longer than the data": ("a0 05 61", "says 5 octets, but 1 are there"),
    "binary32 longer than the data": ("b0 ff ff ff ff 61", "says 4294967295 octets"),
    "size cut off": ("b0 00 00", "cut off within its size"),
    "string that is not UTF-8": ("a1 01 ff", "expected UTF-8"),
    "string with a surrogate": ("a1 03 ed a0 80", "expected UTF-8"),
    "overlong UTF-8": ("a1 02 c0 80", "expected UTF-8"),
    "symbol that is not ASCII": ("a3 02 c3 a9", "expected ASCII"),
    "char beyond Unicode": ("73 00 11 00 00", "code point"),
    "char that is a surrogate": ("73 00 00 d8 00", "code point"),
    "list longer than the data": ("c0 05 01 40", "says 5 octets"),
    "list whose size leaves out its count": ("c0 00 00", "says 0 octets"),
    "list32 whose size leaves out its count": ("d0 00 00 00 03 00 00 00 00", "says 3 octets"),
    "list cut off within its count": ("d0 00 00 00 04 00", "cut off within its size and count"),
    "list with more octets than values": ("c0 03 01 40 40", "by its count"),
    "list with more values than octets": ("c0 02 02 40 40", "says 2 values, but 1 octets"),
    "list whose value crosses its end": ("c0 03 01 70 00 00 00 00", "cut off"),
    "map with an odd count": ("c1 02 01 40", "even count"),
    "map with the same key twice": ("c1 05 04 40 41 40 42", "twice"),
    "map with the same key in two encodings": ("c1 06 04 43 41 52 00 42", "twice"),
    "map with more octets than pairs": ("c1 04 02 40 40 40", "by its count"),
    "array without constructor": ("e0 01 00", "element constructor"),
    "array of unknown elements": ("e0 03 01 4f 00", "unknown format code"),
    "array with more elements than octets": ("e0 03 02 50 00", "says 2 elements"),
    "array with more octets than elements": ("e0 04 01 50 00 00", "by its count"),
    "array whose element crosses its end": ("e0 04 01 a0 05 61", "says 5 octets"),
    "descriptor that is a string": ("00 a1 01 78 40", "ulong or symbol"),
    "descriptor that is described": ("00 00 53 01 53 02 40", "ulong or symbol"),
    "descriptor that is a uint": ("00 52 01 40", "ulong or symbol"),
    "descriptor without value": ("00 53 01", "expected a value"),
    "descriptor missing": ("00", "expected a descriptor"),
    "element descriptor that is a list": ("e0 04 01 00 45 40", "ulong or symbol"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_values_say_what_is_wrong(name: str) -> None:
    """Each violation of part 1 is a DecodeError that names it."""
    octets, message = INVALID[name]
    with pytest.raises(DecodeError, match=message):
        decode_value(bytes.fromhex(octets))


def nested_lists(levels: int) -> bytes:
    """A list in a list in a list, `levels` of them."""
    data = b"\x45"
    for _ in range(levels - 1):
        data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    return data


def test_depth_is_bounded() -> None:
    """Lists nest 32 deep and no deeper; a bomb of 10,000 levels costs no more than that."""
    deepest = nested_lists(DEPTH_MAX + 1)
    value, _ = decode_value(deepest)
    assert len(encode_value(value)) < len(deepest)
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        decode_value(nested_lists(DEPTH_MAX + 2))
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        decode_value(nested_lists(10_000))


@pytest.mark.parametrize("read", [decode_value, lambda data: skip_value(data, 0, len(data))])
def test_depth_of_descriptors_is_bounded(read: Any) -> None:
    """A chain of descriptors is nesting, too, for those who decode it and those who only skip it."""
    read(b"\x00\x53\x2a" * DEPTH_MAX + b"\x40")
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        read(b"\x00\x53\x2a" * (DEPTH_MAX + 1) + b"\x40")
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        read(b"\x00\x53\x2a" * 100_000 + b"\x40")


def test_depth_of_arrays_and_their_descriptors_is_bounded() -> None:
    """Descriptors within an array's constructor count as nesting, and so do arrays of arrays."""
    chain = b"\x00\x44" * (DEPTH_MAX + 1) + b"\x40"
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        decode_value(b"\xe0" + bytes((len(chain) + 1, 1)) + chain)
    inner = struct.pack(">II", 5, 0) + b"\x40"
    for _ in range(DEPTH_MAX - 1):
        inner = struct.pack(">II", len(inner) + 5, 1) + b"\xf0" + inner
    decode_value(b"\xf0" + inner)
    for _ in range(2_000):
        inner = struct.pack(">II", len(inner) + 5, 1) + b"\xf0" + inner
        with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
            decode_value(b"\xf0" + inner)


def test_elements_nest_below_the_descriptors_of_their_array() -> None:
    """An array, 30 descriptors and a list are 32 levels; one more descriptor is too many."""
    element = b"\xc0" + b"\x02\x01\x40"
    for descriptors, is_valid in ((DEPTH_MAX - 2, True), (DEPTH_MAX - 1, False)):
        body = b"\x00\x44" * descriptors + element
        data = b"\xe0" + bytes((len(body) + 1, 1)) + body
        if is_valid:
            decode_value(data)
        else:
            with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
                decode_value(data)


def test_counts_are_bounded_by_the_octets_left() -> None:
    """A count of four billion in a few octets is refused before anything is built."""
    for octets in (
        "d0 00 00 00 04 ff ff ff ff",
        "d1 00 00 00 04 ff ff ff fe",
        "f0 00 00 00 05 ff ff ff ff 70",
    ):
        with pytest.raises(DecodeError, match="says 42949672"):
            decode_value(bytes.fromhex(octets))


def test_elements_without_width_are_bounded() -> None:
    """256 nulls in an array are taken, 257 are not; nor are four billion."""
    for count in (ZERO_WIDTH_ELEMENTS_MAX,):
        value, _ = decode_value(b"\xf0" + struct.pack(">II", 5, count) + b"\x40")
        assert value == Array("null", [None] * count)
    for count in (ZERO_WIDTH_ELEMENTS_MAX + 1, 2**32 - 1):
        for code in (0x40, 0x41, 0x42, 0x43, 0x44, 0x45):
            with pytest.raises(DecodeError, match="no width"):
                decode_value(b"\xf0" + struct.pack(">II", 5, count) + bytes((code,)))


def test_nested_elements_without_width_are_bounded_together() -> None:
    """Arrays of 256 nulls in an array: three octets must not become 256 values again and again."""
    one = struct.pack(">II", 5, 256) + b"\x40"
    body = b"\xf0" + one * 200
    with pytest.raises(DecodeError, match="too many values"):
        decode_value(b"\xf0" + struct.pack(">II", len(body) + 4, 200) + body)


def test_values_are_bounded_by_the_caller() -> None:
    """`nodes_max` bounds how many values are built, wherever they are."""
    data = encode_value([[True, False], {"k": None}, Array("ubyte", [Ubyte(1)])])
    value, _ = decode_value(data, 0, 9)
    assert isinstance(value, list)
    with pytest.raises(DecodeError, match="too many values"):
        decode_value(data, 0, 8)


def test_colliding_keys_are_refused() -> None:
    """Thousands of uuid keys with one hash would cost seconds: the map is refused after a few."""
    period = 2**61 - 1
    chosen = [uuid.UUID(int=1 + n * period) for n in range(30_000)]
    assert len({hash(key) for key in chosen}) == 1
    body = b"".join([b"\x98" + key.bytes + b"\x40" for key in chosen])
    with pytest.raises(DecodeError, match="colliding hashes"):
        decode_value(b"\xd1" + struct.pack(">II", len(body) + 4, 2 * len(chosen)) + body)
    ordinary = {uuid.UUID(int=n * 12_345_678_901): None for n in range(1_000)}
    assert decode_value(encode_value(ordinary))[0] == ordinary
