"""Offsets and times in message-annotations, spliced as bytes and read back, against `Message`."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Long,
    Message,
    OffsetStamp,
    Properties,
    Symbol,
    Timestamp,
    Ulong,
    encode_message,
    encode_section,
    encode_value,
)
from tests.support.examples import examples

STAMP = OffsetStamp("x-stream-offset", "x-opt-enqueued-time")
OURS = (Symbol("x-stream-offset"), Symbol("x-opt-enqueued-time"))


class Stamped:
    """A message behind its header."""

    def __init__(self, body: bytes, offset: int = 7, at_ms: int = 1_800_000_000_000) -> None:
        self.offset = offset
        self.enqueued_at_ms = at_ms
        self.header_bytes = b""
        self.body = body


def stamped(body: bytes, offset: int = 7, at_ms: int = 1_800_000_000_000) -> Message:
    """The message as it goes out, without its header."""
    message = Stamped(body, offset, at_ms)
    STAMP.write([message])
    whole = Message(message.header_bytes + message.body)
    whole.check_sections()
    return whole


ANNOTATIONS = st.dictionaries(
    st.text("abcxyz-.", min_size=1, max_size=20).map(Symbol) | st.sampled_from(OURS),
    st.text(max_size=300) | st.integers(-(2**63), 2**63 - 1).map(Long) | st.none(),
    max_size=6,
)


@examples(200)
@given(st.none() | ANNOTATIONS, st.integers(0, 2**64 - 1), st.integers(0, 2**60), st.binary(max_size=400))
def test_annotations_are_added_and_the_bare_message_stays(
    annotations: dict[Any, Any] | None, offset: int, at_ms: int, data: bytes
) -> None:
    """Whatever annotations there were stay, ours are there once, and the rest is the same octets."""
    body = encode_message(
        message_annotations=annotations, properties=Properties(message_id="m"), body=data, footer={}
    )
    found = stamped(body, offset, at_ms)
    assert found.message_annotations == {
        **(annotations or {}), OURS[0]: Ulong(offset), OURS[1]: Timestamp(at_ms)
    }  # fmt: skip
    assert found.bare == Message(body).bare
    assert (
        found.data[found.after_message_annotations_offset :]
        == (body[Message(body).after_message_annotations_offset :])
    )
    others = bool(set(annotations or ()) - set(OURS))
    assert STAMP.read(found.data[slice(*found.message_annotations_place)]) == (offset, at_ms, others)


@given(st.integers(0, 2**63), st.integers(-(2**62), 2**62), st.booleans())
def test_stamps_of_many_are_read_back(offset: int, at_ms: int, others: bool) -> None:
    """Alone, and in front of annotations that were there."""
    body = encode_message(message_annotations={"x-opt-mine": "v"} if others else None, body=b"b")
    found = stamped(body, offset, at_ms)
    annotations: bytes | None = found.data[slice(*found.message_annotations_place)]
    assert STAMP.read_all([annotations] * 2) == ([offset] * 2, [at_ms] * 2, [others] * 2)


def test_other_annotations_are_no_stamp() -> None:
    """Nothing is guessed: no annotations, our names with other values in front, empty maps."""
    other = encode_value({OURS[0]: Ulong(1), OURS[1]: Timestamp(1)})
    for encoded in (None, other, b"\xc1\x01\x00", b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00"):
        assert STAMP.read(encoded) is None
        assert STAMP.read_all([encoded]) is None


def test_a_message_without_any_section_is_stamped() -> None:
    """What python-qpid-proton sends for an empty Message."""
    assert set(stamped(b"").message_annotations or {}) == set(OURS)


def test_annotations_with_a_symbolic_descriptor_are_merged() -> None:
    """The rare form of the descriptor does not lead to two sections of one kind."""
    name = b"amqp:message-annotations:map"
    section = encode_section("message-annotations", {"a": "b"})
    body = b"\x00\xa3" + bytes((len(name),)) + name + section[3:] + encode_message(body=b"x")
    assert set(stamped(body).message_annotations or {}) == {*OURS, Symbol("a")}


@pytest.mark.parametrize(
    "section",
    [
        b"\x00\x53\x72\xc1\x09\x02",
        b"\x00\x53\x72" + struct.pack(">BII", 0xD1, 99, 2),
        b"\x00\x53\x72\x40",
        b"\x00\x53\x72\xd1" + struct.pack(">II", 4, 2**32 - 1),
        b"\x00\x53\x72\xc1\x01\x01",
        b"\x00\x53\x72\xc1\x00",
        b"\x00\x53\x72\xc1\x14\x02\xa3\x0fx-stream-offset\xa1\x02x",
        b"\x00\x53\x72\xc1\x14\x02\xa3\x0fx-stream-offset\x41\x41",
        b"\x00\x80\0\0\0\0\0\0\0\x72\x40",
        b"noise",
    ],
)
def test_malformed_annotations_are_told_and_not_touched(section: bytes) -> None:
    """A map that is cut off, or is no map, or that one cannot add to: the message stays as it is, and the
    others are stamped.
    """
    messages = [Stamped(b""), Stamped(section), Stamped(b"")]
    ((place, reason),) = STAMP.write(messages)
    assert place == 1 and reason
    assert (messages[1].header_bytes, messages[1].body) == (b"", section)
    assert all(messages[at].header_bytes for at in (0, 2))


def test_values_are_not_looked_into() -> None:
    """Keys of ours are replaced beside values of any depth, and where they are of the long form; the same
    octets in a value are no key.
    """
    key = b"x-stream-offset"
    deep = b"\x45"
    for _ in range(60):
        deep = b"\xd0" + struct.pack(">II", 4 + len(deep), 1) + deep
    value = b"\xa1" + bytes((len(key),)) + key
    ours = b"\xb3" + struct.pack(">I", len(key)) + key + b"\x41"
    entries = ours + b"\xa3\x01d" + deep + b"\xa3\x01v" + value
    message = Stamped(b"\x00\x53\x72\xd1" + struct.pack(">II", 4 + len(entries), 6) + entries)
    assert STAMP.write([message]) == []
    whole = Message(message.header_bytes + message.body)
    whole.check_sections()
    (count,) = struct.unpack_from(">I", whole.data, 8)
    assert count == 8 and whole.data.count(key) == 2 and whole.data.endswith(deep + b"\xa3\x01v" + value)
