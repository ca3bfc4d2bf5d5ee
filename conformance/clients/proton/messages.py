"""The checks of what a message carries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import values
from client import Check, Client, check, expect
from proton import Message, symbol, ulong

PROPERTIES = (
    "id",
    "user_id",
    "address",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
"""What proton calls the fields of the properties section."""


def value_check(value: Any) -> Check:
    def run(client: Client) -> None:
        received = client.round_trip(Message(body=value, inferred=False))
        expect("amqp-value", values.shape(value), values.shape(received.body))
        expect("inferred", False, received.inferred)

    return run


for _name, _value in values.SIMPLE + values.COMPOUND:
    check(f"amqp-value {_name}")(value_check(_value))


@check("amqp-value null")
def null_body(client: Client) -> None:
    received = client.round_trip(Message(body=None, subject="null"))
    expect("subject, body", ("null", None), (received.subject, received.body))


@check("application-properties of every simple type")
def application_properties(client: Client) -> None:
    sent = dict(values.SIMPLE) | {"null": None}
    received = client.round_trip(Message(body="b", properties=sent))
    expect("application-properties", values.shape(sent), values.shape(received.properties))


@check("message-annotations of every type")
def message_annotations(client: Client) -> None:
    sent = {symbol(f"x-opt-{name}"): value for name, value in values.SIMPLE + values.COMPOUND}
    received = client.round_trip(Message(body="b", annotations=sent))
    kept = {key: value for key, value in received.annotations.items() if key in sent}
    expect("message-annotations", values.shape(sent), values.shape(kept))


@check("body data")
def data_body(client: Client) -> None:
    for body in (b"", b"\x00\x01\xff", values.LONG_BINARY):
        received = client.round_trip(Message(body=body, inferred=True))
        expect("data", (True, body), (received.inferred, bytes(received.body)))


@check("body amqp-sequence")
def sequence_body(client: Client) -> None:
    for body in ([], [1, "two", None, [symbol("three")]]):
        received = client.round_trip(Message(body=body, inferred=True))
        expect("amqp-sequence", (True, values.shape(body)), (received.inferred, values.shape(received.body)))


@check("properties: all fields")
def properties(client: Client) -> None:
    sent = Message(
        body="b",
        id="message-1",
        user_id=b"user\x00id",
        address="somewhere",
        subject="subject",
        reply_to="replies",
        correlation_id="correlation-1",
        content_type=symbol("text/plain"),
        content_encoding=symbol("gzip"),
        expiry_time=4_000_000_000.125,
        creation_time=1_700_000_000.25,
        group_id="group",
        group_sequence=2**32 - 1,
        reply_to_group_id="reply-group",
    )
    received = client.round_trip(sent)
    for field in PROPERTIES:
        expect(field, getattr(sent, field), getattr(received, field))


def identity_shape(identity: Any) -> Any:
    """proton hands out a message-id of type ulong as a plain int; no other number may stand there."""
    return values.shape(ulong(identity) if isinstance(identity, int) else identity)


@check("properties: message-id and correlation-id of every type")
def message_ids(client: Client) -> None:
    for identity in (ulong(0), ulong(2**64 - 1), UUID(int=2**128 - 2), b"\x00binary", "", "string"):
        received = client.round_trip(Message(body="b", id=identity, correlation_id=identity))
        expect("message-id", identity_shape(identity), identity_shape(received.id))
        expect("correlation-id", identity_shape(identity), identity_shape(received.correlation_id))


@check("header: durable, priority, ttl")
def header(client: Client) -> None:
    received = client.round_trip(Message(body="b", durable=True, priority=9, ttl=600.0))
    expect("durable, priority", (True, 9), (received.durable, received.priority))
    expect("0 < ttl <= 600 s", True, 0 < received.ttl <= 600.0)
    received = client.round_trip(Message(body="b", durable=False, priority=0))
    expect("durable, priority, ttl", (False, 0, 0.0), (received.durable, received.priority, received.ttl))
