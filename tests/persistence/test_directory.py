"""Segments: what is encoded comes back, and damage never gets through."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.persistence import Record
from amqp_broker.persistence.directory import (
    DirectoryDamaged,
    decode_directory,
    decode_one,
    encode_segment,
)
from tests.support.examples import examples

TIMES = st.integers(-(1 << 62), 1 << 62)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        body=st.binary(max_size=50),
        message_format=st.sampled_from([0, 0, 1, 0xFFFFFFFF]),
        priority=st.sampled_from([4, 4, 0, 255]),
        expires_at_ms=st.just(0) | TIMES,
        enqueued_at_ms=st.just(7) | TIMES,
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.integers(1, 1 << 40))
@examples(200)
def test_round_trip(records: list[Record], segment_id: int) -> None:
    """Every field of every message comes back from directory and bodies."""
    data, bodies, ends = encode_segment(records, segment_id)
    stored = b"".join(bodies)
    directory = decode_directory(data)
    assert directory.encode() == data
    assert directory.ends == ends
    assert directory.count == len(records)
    for position, record in enumerate(records):
        begin, end = directory.bounds(position)
        assert stored[begin:end] == record.body
        assert directory.verify(position, record.body, segment_id)
        assert (directory.formats[position] if directory.formats else 0) == record.message_format
        assert (directory.priorities[position] if directory.priorities else 4) == record.priority
        assert (directory.expiries[position] if directory.expiries else 0) == record.expires_at_ms
        enqueued = directory.enqueued[position] if directory.enqueued else directory.enqueued_at_ms
        assert enqueued == record.enqueued_at_ms


@given(RECORDS, st.data())
@examples(200)
def test_damage_is_noticed(records: list[Record], data: st.DataObject) -> None:
    """A changed bit spoils at most two bodies, or the whole directory. No wrong field is believed."""
    encoded, bodies, _ = encode_segment(records, 5)
    stored = b"".join(bodies)
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    damaged = bytearray(encoded)
    damaged[bit // 8] ^= 1 << bit % 8
    sound = decode_directory(encoded)
    try:
        directory = decode_directory(bytes(damaged))
    except DirectoryDamaged:
        assert decode_one(bytes(damaged)) is None
        return
    for name in ("count", "enqueued_at_ms", "formats", "priorities", "expiries", "enqueued"):
        assert getattr(directory, name) == getattr(sound, name)
    spoiled = 0
    for position, record in enumerate(records):
        begin, end = directory.bounds(position)
        if not directory.verify(position, stored[begin:end], 5):
            spoiled += 1
        else:
            assert stored[begin:end] == record.body
    assert spoiled <= 2


@given(st.binary(max_size=200))
def test_noise_raises_nothing_else(data: bytes) -> None:
    """Whatever the bytes are, nothing but DirectoryDamaged is raised."""
    with pytest.raises(DirectoryDamaged):
        decode_directory(data)
    assert decode_one(data) is None


@given(RECORDS.filter(lambda records: len(records) == 1))
def test_short_way_agrees_with_the_general_one(records: list[Record]) -> None:
    """`decode_one` answers what `decode_directory` answers, or nothing."""
    data, _, _ = encode_segment(records, 9)
    directory = decode_directory(data)
    plain = directory.formats is directory.priorities is directory.expiries is directory.enqueued is None
    expected = (directory.enqueued_at_ms, directory.crcs[0]) if plain else None
    assert decode_one(data) == expected


def test_body_is_right_in_its_own_segment_only() -> None:
    """A body under the id of another segment does not match its checksum."""
    data, _, _ = encode_segment([Record(0, b"body")], 1)
    directory = decode_directory(data)
    assert directory.verify(0, b"body", 1)
    assert not directory.verify(0, b"body", 2)
    assert directory.ends == array("I", [4])
