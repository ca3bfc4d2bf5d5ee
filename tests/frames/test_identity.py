"""What names a message, read without decoding it: the same as the decoded properties say."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given

from amqp_broker.frames import Header, Properties, Ulong, encode_message, peek_header, peek_identity
from amqp_broker.frames.identity import _decoded
from tests.strategies import messages, mutated

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
