"""Header and sections without decoding, against `Message`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import (
    UNSURE,
    AmqpValue,
    Byte,
    Data,
    Declare,
    DecodeError,
    Discharge,
    Header,
    Int,
    Long,
    Message,
    Properties,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode_value,
    encode_composite,
    encode_message,
    encode_value,
    find_maps,
    peek_header,
    read_entries,
    read_request,
)
from amqp_broker.frames.fast_sections import MAPPED, MAX_MEMO_ENTRIES, PLAIN, _headers, body_shape
from amqp_broker.frames.field_readers import skip_value
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
        places = find_maps(body)
        assert places is not None
        annotations, _, properties, _ = places
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


NAMES = {b"one": "one", b"two": "two", b"text": "text"}


@settings(max_examples=300)
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


@settings(max_examples=300)
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


requests = st.one_of(
    st.just(Declare()),
    st.builds(Discharge, txn_id=st.binary(max_size=40), fail=st.sampled_from([None, True, False])),
)


def general(payload: bytes) -> object:
    """What the general codec makes of a message: its amqp-value, or nothing."""
    try:
        (section,) = Message(payload).body_sections()
    except (DecodeError, ValueError):
        return None
    return section.value if isinstance(section, AmqpValue) else None


@given(requests, st.data())
def test_a_request_is_read_as_the_general_codec_reads_it(
    request: Declare | Discharge, data: st.DataObject
) -> None:
    """Also when a byte of it is changed, or more follows."""
    encoded = bytearray(encode_message(body=AmqpValue(request)))
    assert read_request(bytes(encoded)) in (None, request)
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for each in (bytes(encoded), bytes(encoded[:-1]), bytes(encoded) + b"\x42"):
        fast = read_request(each)
        if fast is not None:
            assert fast == general(each)


def test_the_usual_requests_take_the_fast_path() -> None:
    """What our own codec and the clients of conformance/clients write."""
    assert read_request(b"\x00\x53\x77\x00\x53\x31\x45") == Declare()
    assert read_request(b"\x00\x53\x77\x00\x53\x32\xc0\x07\x02\xa0\x03abc\x41") == Discharge(
        txn_id=b"abc", fail=True
    )
    assert read_request(encode_message(body=AmqpValue(Discharge(txn_id=b"a" * 16, fail=False)))) is not None
