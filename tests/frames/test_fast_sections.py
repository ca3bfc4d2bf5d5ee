"""Header and sections without decoding, against `Message`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import (
    MAPPED,
    PLAIN,
    UNSURE,
    AmqpValue,
    Data,
    DecodeError,
    Header,
    Message,
    Properties,
    body_shape,
    encode_composite,
    encode_message,
    find_maps,
    peek_header,
)
from amqp_broker.frames.fast_sections import MAX_MEMO_ENTRIES, _headers, skip_value
from tests.strategies import messages, mutated

DATA = encode_message(body=Data(b"body"))


@settings(max_examples=200)
@given(messages())
def test_the_header_is_what_the_message_says(data: bytes) -> None:
    """Every field, and where the header section ends."""
    message = Message(data)
    header = message.header
    assert peek_header(data) == (
        bool(header.durable), header.priority, header.ttl, bool(header.first_acquirer),
        header.delivery_count or 0, message.after_header_offset,
    )  # fmt: skip


@settings(max_examples=300)
@given(mutated(messages()))
def test_mutated_headers_raise_nothing_else(data: bytes) -> None:
    """A header section that is no header is a DecodeError, whatever it is."""
    try:
        expected = Message(data).header
    except DecodeError:
        expected = None
    try:
        found = peek_header(data)
    except DecodeError:
        return
    if expected is not None:
        assert (
            found[0] == bool(expected.durable) and found[1] == expected.priority and found[2] == expected.ttl
        )


@pytest.mark.parametrize(
    "data",
    [b"\x00\x53\x70", b"\x00\x53\x70\xc0\x05\x01\x41", b"\x00\x53\x70\x41", b"\x00\x53\x70\xc0\x02\x01\xa1"],
)
def test_a_malformed_header(data: bytes) -> None:
    """Cut off, too short, of another type."""
    with pytest.raises(DecodeError):
        peek_header(data)


def test_the_memo_is_bounded() -> None:
    """A peer that invents headers does not fill the memory."""
    for ttl in range(MAX_MEMO_ENTRIES + 10):
        assert peek_header(encode_composite(Header(ttl=ttl)))[2] == ttl
    assert len(_headers) <= MAX_MEMO_ENTRIES


@settings(max_examples=300)
@given(st.one_of(messages(), mutated(messages())))
def test_what_is_certain_is_true(data: bytes) -> None:
    """PLAIN and MAPPED are said of well-formed sections in order only, without delivery-annotations; where
    the maps are is what the message says.
    """
    try:
        body = data[peek_header(data)[5] :]
    except DecodeError:
        return
    shape = body_shape(body)
    if shape != UNSURE:
        message = Message(body)
        message.check_sections()
        assert message.after_delivery_annotations_offset == 0
        annotations, _, properties, _ = places = find_maps(body)
        assert (shape == MAPPED) is (annotations >= 0 or properties >= 0)
        assert (annotations >= 0) is (message._find(0x72) >= 0)
        assert (properties >= 0) is (message._find(0x74) >= 0)
        for start, end in (places[:2], places[2:]):
            assert start < 0 or skip_value(body, start, len(body)) == end


@pytest.mark.parametrize(
    "body",
    [
        DATA,
        encode_message(body=Data(b"x" * 300)),
        encode_message(body=AmqpValue("text")),
        encode_message(message_annotations={"x": 1}, properties=Properties(subject="s"), body=Data(b"x")),
        encode_message(application_properties={"k": "v"}, body=AmqpValue(None)),
        encode_message(body=Data(b"x"), footer={"x": 1}),
        DATA + DATA,
        b"",
        encode_message(properties=Properties()),
    ],
)
def test_what_clients_send_is_certain(body: bytes) -> None:
    """The shapes of real clients need no decoding; a message without a body is one of them."""
    maps = Message(body)
    shape = MAPPED if maps.message_annotations or maps.application_properties else PLAIN
    assert body_shape(body) == shape


@pytest.mark.parametrize(
    "body",
    [
        DATA[:-1],
        DATA + b"\0",
        DATA + encode_message(body=AmqpValue(1)),
        encode_message(body=AmqpValue(1)) + DATA,
        encode_message(body=AmqpValue(1)) * 2,
        DATA + encode_message(properties=Properties()),
        encode_message(delivery_annotations={"x": 1}, body=Data(b"x")),
        encode_composite(Header()) + DATA,
        b"\x00\x53\x75\x40",
        b"\x00\x53\x73\xa0\x00",
        b"\x00\x53\x79\x45",
        b"\x00",
        b"\x40",
    ],
)
def test_what_is_not_certain(body: bytes) -> None:
    """Cut off, out of order, repeated, of another type, or with delivery-annotations: the message decides."""
    assert body_shape(body) == UNSURE
