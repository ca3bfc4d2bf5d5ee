"""What is read of messages without decoding them, against `Message`: header, request, names, identity."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amqp_broker.coordinator import HalfSettings
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
from amqp_broker.halves.requests import (
    Resolution,
    _put_by_bytes,
    _put_by_sections,
    _resolution_by_sections,
    resolution_by_bytes,
)
from tests.strategies import messages, mutated


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


SETTINGS = HalfSettings()
IDS: list[Any] = [
    "order-17",
    "é",
    "x" * 150,
    b"\x00\xff",
    uuid.UUID(int=5),
    Ulong(0),
    Ulong(200),
    Ulong(2**64 - 1),
]


def agree_on_put(payload: bytes) -> bool:
    """Whether the bytes were enough; if so, the sections say the same."""
    try:
        found = _put_by_bytes(payload, SETTINGS)
    except DecodeError:
        return False
    if found is not None:
        assert _put_by_sections(payload, SETTINGS) == found
        Message(found.body).application_properties  # noqa: B018 - what is stored can be decoded
    return found is not None


USUAL = st.sampled_from(IDS).map(lambda i: encode_message(
    properties=Properties(message_id=i, to="q", subject="s", creation_time=5, group_id="g"),
    application_properties={"a": 1, "b": "c"}, body=b"body",
))  # fmt: skip


@settings(max_examples=300)
@given(messages() | mutated(messages()) | mutated(USUAL))
def test_a_put_is_what_its_sections_say(payload: bytes) -> None:
    """In all encodings, with any sections around them, damaged or not: what the bytes are enough for, the
    sections are sound for.
    """
    agree_on_put(payload)


@pytest.mark.parametrize("half_id", IDS)
@pytest.mark.parametrize(
    "others",
    [
        {}, {"user_id": b"me"}, {"to": "q", "subject": ""}, {"creation_time": 5},
        {"content_type": "text/plain"},
        {"creation_time": 5, "group_id": "g"}, {"correlation_id": None, "reply_to": "r", "user_id": b"x"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", [None, {"a": 1, "b": "x" * 300, "c": None, "d": True, "e": b"x"}])
def test_the_usual_puts_need_no_decoding(half_id: Any, others: dict[str, Any], named: Any) -> None:
    """Ids of all types, with other properties and application-properties; the digest leaves out the same."""
    payload = encode_message(
        header=Header(durable=True, ttl=7, priority=3), properties=Properties(message_id=half_id, **others),
        application_properties=named, body=b"body",
    )  # fmt: skip
    assert agree_on_put(payload)


@pytest.mark.parametrize(
    "changes",
    [
        {"application_properties": {"half_id": "other"}}, {"application_properties": {"seq_id": 1}},
        {"message_annotations": {"x-opt-delivery-time": 1}}, {"footer": {"a": 1}}, {"body": [b"a", b"b"]},
        {"properties": Properties(message_id="")}, {"properties": Properties(subject="no id")},
        {"properties": Properties(message_id="x" * 256)},
    ],
)  # fmt: skip
def test_what_is_not_certain_is_decoded(changes: dict[str, Any]) -> None:
    """Reserved names, annotations, a footer, other bodies and what is no id."""
    parts: dict[str, Any] = {"properties": Properties(message_id="h"), "body": b"body", **changes}
    if isinstance(parts["body"], list):
        parts["body"] = [b"\x01", b"\x02"]
    payload = encode_message(**parts)
    found = _put_by_bytes(payload, SETTINGS)
    if found is not None:
        assert found == _put_by_sections(payload, SETTINGS)
    assert found is None or "body" in changes


def agree_on_resolution(payload: bytes) -> bool:
    """Whether the bytes were enough; if so, the sections say the same."""
    try:
        found = resolution_by_bytes(payload)
    except DecodeError:
        return False
    if found is not None:
        assert _resolution_by_sections(payload) == found
    return found is not None


@given(st.sampled_from(IDS), st.sampled_from(["commit", "rollback", "seal", "", None]), st.text(max_size=9))
@example("h", "commit", "")
def test_a_resolution_is_what_its_sections_say(half_id: Any, subject: str | None, to: str) -> None:
    """Ids of all types; other subjects are left to who decodes."""
    payload = encode_message(
        header=Header(durable=True),
        properties=Properties(message_id="m", to=to, correlation_id=half_id, subject=subject),
        body=b"",
    )
    assert agree_on_resolution(payload) == (subject in ("commit", "rollback"))


@given(mutated(st.sampled_from(IDS).map(lambda i: encode_message(
    properties=Properties(message_id="m", correlation_id=i, subject="commit"), body=b""))))  # fmt: skip
def test_a_damaged_resolution_is_not_taken_for_another(payload: bytes) -> None:
    """What the bytes are enough for, the sections are sound for."""
    agree_on_resolution(payload)


def test_a_reason_is_read_by_who_decodes() -> None:
    """It stands in the application-properties."""
    payload = encode_message(
        properties=Properties(correlation_id="h", subject="commit"),
        application_properties={"half_reason": "paid"}, body=b"",
    )  # fmt: skip
    assert resolution_by_bytes(payload) is None
    assert isinstance(_resolution_by_sections(payload), Resolution)


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
