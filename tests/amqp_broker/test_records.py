"""Records keep the bare message octet for octet; the header is rebuilt for each delivery (3.2)."""

from __future__ import annotations

import sys

import pytest

from amqp_broker.frames import (
    DecodeError,
    Header,
    Message,
    Properties,
    Symbol,
    encode_composite,
    encode_message,
)
from amqp_broker.persistence import Record
from amqp_broker.records import annotate, annotated, changed, octets, prepare, record_of

NOW = 1_000_000


def header_of(record: Record, now_ms: int = NOW) -> Header:
    prepare([record], now_ms)
    return Message(record.header_bytes + record.body).header


def test_the_bare_message_is_kept_octet_for_octet() -> None:
    """Everything after the header goes out as the bytes that came in."""
    payload = encode_message(
        header=Header(durable=True, priority=7),
        properties=Properties(message_id="m", to="q"),
        application_properties={"a": 1},
        body=b"hello",
    )
    record = record_of(payload, 0, NOW, 1, True)
    assert record.durable and record.priority == 7
    assert payload.endswith(record.body)
    assert Message(record.body).bare == Message(payload).bare


def test_the_first_delivery_says_first_acquirer_and_later_ones_do_not() -> None:
    """first-acquirer is true only while nobody else has acquired the message (3.2.1)."""
    record = record_of(encode_message(header=Header(durable=True), body=b"x"), 0, NOW, 1, True)
    assert header_of(record).first_acquirer is True
    record.acquired_before = True
    record.delivery_count = 2
    changed(record)
    header = header_of(record)
    assert (header.first_acquirer, header.delivery_count, header.durable) == (False, 2, True)


def test_the_ttl_is_what_is_left_of_it() -> None:
    """A message is delivered with the rest of its time to live (3.2.1)."""
    record = record_of(encode_message(header=Header(ttl=5_000), body=b"x"), 0, NOW, 1, True)
    assert record.expires_at_ms == NOW + 5_000
    assert header_of(record, NOW + 2_000).ttl == 3_000


def test_a_temporary_queue_makes_nothing_durable() -> None:
    """Where nothing is stored the delivered header does not claim it."""
    record = record_of(encode_message(header=Header(durable=True), body=b"x"), 0, NOW, 1, False)
    assert not record.durable
    assert not header_of(record).durable


def test_delivery_annotations_end_at_the_broker() -> None:
    """They speak from one peer to the next (3.2.2) and are not passed on; message-annotations are."""
    payload = encode_message(
        header=Header(durable=False),
        delivery_annotations={"x-opt-hop": 1},
        message_annotations={"x-opt-kept": 2},
        body=b"x",
    )
    message = Message(record_of(payload, 0, NOW, 1, True).body)
    assert message.delivery_annotations is None
    assert list(message.message_annotations or {}) == [Symbol("x-opt-kept")]


def test_annotations_of_a_modified_outcome_are_merged() -> None:
    """The outcome's message-annotations win over the message's, others stay; the bare message is untouched
    (3.4.5).
    """
    payload = encode_message(message_annotations={"x-opt-a": "old", "x-opt-b": "kept"}, body=b"x")
    record = record_of(payload, 0, NOW, 1, True)
    bare = Message(record.body).bare
    annotate(record, annotated(record, {"x-opt-a": "new"}, 1_000))
    message = Message(record.body)
    assert message.message_annotations == {Symbol("x-opt-a"): "new", Symbol("x-opt-b"): "kept"}
    assert message.bare == bare
    assert record.annotations is not None and record.body.startswith(record.annotations)


def test_a_header_says_no_more_than_its_fields_can() -> None:
    """A count of tries at its end stays there; a clock that went back makes no ttl longer than it can be."""
    most = 2**32 - 1
    payload = encode_message(header=Header(ttl=most, delivery_count=most), body=b"x")
    record = record_of(payload, 0, NOW, 1, True)
    record.delivery_count += 1
    prepare([record], NOW - 1_000)
    header = Message(record.header_bytes).header
    assert (header.delivery_count, header.ttl) == (most, most)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x75\xa0\x05hi",
        b"noise",
        encode_message(body=b"x") + encode_composite(Header(durable=True)),
        encode_composite(Header(durable=True)) * 2 + encode_message(body=b"x"),
        b"\x00\x53\x99\xa0\x01x",
    ],
    ids=["truncated", "noise", "header-after-body", "two-headers", "unknown-section"],
)
def test_malformed_sections_are_refused(payload: bytes) -> None:
    """Truncated, repeated, misplaced and unknown sections are a decode error (3.2)."""
    with pytest.raises(DecodeError):
        record_of(payload, 0, NOW, 1, True)


def test_the_size_of_a_small_message_is_asked_with_few_calls() -> None:
    """Each message of a run is asked, where a consumer has a limit."""
    record = record_of(encode_message(body=b"x"), 0, NOW, 1, True)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, made: calls.append(event) if event.endswith("call") else None)
    try:
        size = octets(record, 1_000, NOW)
    finally:
        sys.setprofile(None)
    assert size == len(record.body)
    assert len(calls) <= 5, "octets, size_of, len, isinstance, and the end of the profile"
