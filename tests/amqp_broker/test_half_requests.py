"""What is read of a put and of a resolution without decoding them, against their sections."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqp_broker.coordinator import HalfSettings
from amqp_broker.frames import DecodeError, Header, Message, Properties, Ulong, encode_message
from amqp_broker.halves.requests import (
    Resolution,
    _put_by_bytes,
    _put_by_sections,
    _resolution_by_sections,
    resolution_by_bytes,
)
from tests.strategies import messages, mutated
from tests.support.examples import examples

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


@examples(300)
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
