"""Flat maps against the general codec."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Byte,
    DecodeError,
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
from amqp_broker.frames.flat_maps import encode_flat_map, extend_from_map, read_entries, read_flat_map
from tests.strategies import mutated
from tests.support.examples import examples

VALUES = st.text(max_size=300) | st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130)


@examples(200)
@given(st.dictionaries(st.text(max_size=40), VALUES, max_size=20))
def test_a_flat_map_is_what_the_general_encoder_makes(entries: dict[str, str | int]) -> None:
    """The same octets, for short and long text, small and large integers."""
    assert encode_flat_map(entries) == encode_value(entries)


def test_a_map_with_more_entries_than_a_small_one_counts() -> None:
    """From 128 entries on the count needs four octets."""
    entries: dict[str, str | int] = {f"{number}": 1 for number in range(128)}
    assert decode_value(encode_flat_map(entries))[0] == {key: Long(1) for key in entries}


SCALARS = (
    st.none() | st.booleans() | st.text(max_size=300) | st.integers(-(2**63), 2**63 - 1) |
    st.binary(max_size=20) | st.floats(allow_nan=False) | st.integers(0, 2**64 - 1).map(Ulong) |
    st.text("ab", max_size=5).map(Symbol) | st.integers(0, 5).map(Timestamp) | st.just([1])
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=20), SCALARS, max_size=8))
def test_flat_maps_are_those_of_the_general_decoder(entries: dict[str, Any]) -> None:
    """With plain values; None where a value is none of the simple ones."""
    encoded = encode_value(entries)
    found = read_flat_map(encoded)
    decoded = decode_value(encoded, 0, 10_000)[0]
    assert isinstance(decoded, dict)
    if found is not None:
        assert found == {key: getattr(value, "value", value) for key, value in decoded.items()}
        assert not any(isinstance(value, (Timestamp, list)) for value in decoded.values())
        keys: list[str] = []
        values: list[Any] = []
        assert extend_from_map(encoded, keys, values) == len(found)
        assert (keys, values) == (list(found), list(found.values()))


def test_malformed_maps_are_not_read() -> None:
    """Cut ones, odd ones, keys that come twice."""
    whole = encode_value({"a": "b", "c": 1})
    for end in range(len(whole)):
        assert read_flat_map(whole[:end]) is None
    assert read_flat_map(b"\xc1\x08\x03\xa1\x01a\x41\xa1\x01b") is None
    assert read_flat_map(b"\xc1\x09\x04\xa1\x01a\x41\xa1\x01a\x42") is None
    assert read_flat_map(b"\xc1\x05\x02\xa1\x01\xff\x41") is None


NAMES = {b"one": "one", b"two": "two", b"text": "text"}


@examples(300)
@given(
    st.dictionaries(
        st.sampled_from(["one", "two", "text", "other", "x" * 300]),
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(Long),
            st.integers(0, 2**64 - 1).map(Ulong),
            st.integers(0, 2**32 - 1).map(Uint),
            st.integers(-(2**31), 2**31 - 1).map(Int),
            st.integers(0, 255).map(Ubyte),
            st.integers(-128, 127).map(Byte),
            st.integers(0, 65_535).map(Ushort),
            st.integers(-32_768, 32_767).map(Short),
            st.text(max_size=300),
            st.none(),
            st.booleans(),
            st.binary(max_size=9),
            st.integers(0, 2**40).map(Timestamp),
        ),
    ),
    st.booleans(),
    st.binary(max_size=3),
)
def test_entries_are_what_the_decoder_says(values: dict[str, Any], symbols: bool, behind: bytes) -> None:
    """Integers and strings of the wanted names, or nothing certain; what is behind is not looked at."""
    encoded = encode_value({Symbol(key): value for key, value in values.items()} if symbols else values)
    found = read_entries(encoded + behind, 0, len(encoded), symbols, NAMES)
    wanted = {name: values[name] for name in NAMES.values() if values.get(name) is not None}
    plain = {
        name: value if isinstance(value, str) else getattr(value, "value", None)
        for name, value in wanted.items()
    }
    certain = "x" * 300 not in values and all(
        isinstance(value, (str, Long, Ulong, Uint, Int, Ubyte, Byte, Ushort, Short))
        and len(str(value).encode()) < 256
        for value in wanted.values()
    )
    if certain:
        assert found == plain
    else:
        assert found is None or found == plain
    assert read_entries(encoded, 0, len(encoded), not symbols, NAMES) in (None, {})


@examples(300)
@given(mutated(st.just(encode_value({"one": Uint(7), "text": "seven", "other": [1, 2]}))))
def test_entries_of_a_broken_map(data: bytes) -> None:
    """Whatever the bytes: entries that the decoder has too, or nothing certain."""
    found = read_entries(data, 0, len(data), False, NAMES)
    if found:
        try:
            decoded, end = decode_value(data)
        except DecodeError:
            return  # what it skips is not looked at: the values of other names
        assert isinstance(decoded, dict) and end == len(data)
        for name, value in found.items():
            assert getattr(decoded[name], "value", decoded[name]) == value
