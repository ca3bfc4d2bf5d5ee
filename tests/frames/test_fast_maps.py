"""Flat maps against the general encoder."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import Long, decode_value, encode_flat_map, encode_value

VALUES = st.text(max_size=300) | st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 130)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=40), VALUES, max_size=20))
def test_a_flat_map_is_what_the_general_encoder_makes(entries: dict[str, str | int]) -> None:
    """The same octets, for short and long text, small and large integers."""
    assert encode_flat_map(entries) == encode_value(entries)


def test_a_map_with_more_entries_than_a_small_one_counts() -> None:
    """From 128 entries on the count needs four octets."""
    entries: dict[str, str | int] = {f"{number}": 1 for number in range(128)}
    assert decode_value(encode_flat_map(entries))[0] == {key: Long(1) for key in entries}
