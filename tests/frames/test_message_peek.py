"""What is read of messages without decoding them, against `Message`: header, request, names, identity."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpValue,
    Declare,
    DecodeError,
    Discharge,
    Header,
    Message,
    Properties,
    Ulong,
    encode_composite,
    encode_message,
)
from amqp_broker.frames.message_peek import (
    MAX_MEMO_ENTRIES,
    _decoded,
    _headers,
    peek_answer,
    peek_header,
    peek_identity,
    peek_named,
    read_request,
)
from tests.strategies import messages, mutated
from tests.support.examples import examples


@examples(200)
@given(messages())
def test_the_header_is_what_the_message_says(data: bytes) -> None:
    """Every field, and where the header section ends."""
    message = Message(data)
    header = message.header
    assert peek_header(data) == (
        bool(header.durable), header.priority, header.ttl, bool(header.first_acquirer),
        header.delivery_count or 0, message.after_header_offset,
    )  # fmt: skip


@examples(300)
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


NOBODY = (None, None, None)
NEVER_STORED = (b"\x00\x53\x70", b"\x00\x53\x71")  # a header, delivery-annotations


def body_of(payload: bytes) -> bytes:
    """What is stored of a message: everything behind its header."""
    return payload[peek_header(payload)[5] :]


@given(messages())
def test_equals_what_the_properties_say(payload: bytes) -> None:
    """In all encodings, with any sections around them."""
    body = body_of(payload)
    if body[:3] not in NEVER_STORED:
        assert peek_identity(body) == _decoded(body)


@given(mutated(messages()))
def test_never_fails(body: bytes) -> None:
    """Whatever the octets are; what can be decoded is not read otherwise."""
    peek_answer(body)
    with contextlib.suppress(DecodeError):
        peek_named(body)
    found, decoded = peek_identity(body), _decoded(body)
    if decoded != NOBODY and body[:3] not in NEVER_STORED:
        assert found == decoded


@pytest.mark.parametrize(
    ("message_id", "shown"),
    [
        ("order-17", "order-17"), ("", ""), ("é" * 200, "é" * 200), (Ulong(0), "0"), (Ulong(200), "200"),
        (Ulong(2**64 - 1), str(2**64 - 1)), (uuid.UUID(int=5), str(uuid.UUID(int=5))), (b"\x00\xff", "00ff"),
        (b"x" * 300, "78" * 300), (None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("annotated", [True, False])
def test_ids_of_all_types(message_id: Any, shown: str | None, annotated: bool) -> None:
    """As strings, with annotations before and other properties behind them."""
    for others in ({}, {"subject": "s"}, {"group_id": "g", "group_sequence": 7}):
        properties = Properties(message_id=message_id, **others)
        payload = encode_message(
            header=Header(durable=True), message_annotations={"x-a": 1} if annotated else None,
            properties=properties, application_properties={"a": 1}, body=b"body",
        )  # fmt: skip
        group = ("g", 7) if "group_id" in others else (None, None)
        assert peek_identity(body_of(payload)) == (shown, *group)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x00", b"\x00\x53\x75\xa0\x00", b"\x00\x53\x73\x45", b"\x00\x53\x73", b"\x00\x53\x73\xc0",
        b"\x00\x53\x73\xc0\x01\x00", b"\x00\x53\x73\xc0\x02\x01\x40", b"\x00\x53\x73\xc0\x03\x01\xa1\x05",
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff", b"\x00\x53\x73\xc0\x02\x01\x98", b"\x00\x53\x72\xc1",
        b"\x00\x53\x73\xd0\x00\x00", b"\x00\x53\x73\xc0\x02\x01\x56",
    ],
)  # fmt: skip
def test_what_has_none(body: bytes) -> None:
    """No properties, none in them, or octets that are cut off or of a wrong type."""
    assert peek_identity(body) == NOBODY
