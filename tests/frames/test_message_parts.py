"""Messages taken apart in one pass: the same as `Message` says of them, or nothing."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Data,
    DecodeError,
    Header,
    Message,
    Properties,
    Symbol,
    decode_value,
    encode_message,
    encode_section,
)
from amqp_broker.frames.declarations import DECLARATIONS
from amqp_broker.frames.message_parts import read_properties, split_many
from tests.frames.test_stamps import STAMP, Stamped
from tests.strategies import composites_of, messages


def plain(value: Any) -> Any:
    """Without the classes of the wire."""
    return getattr(value, "value", value)


@given(messages())
def test_sections_are_those_that_the_message_has(data: bytes) -> None:
    """Each is where the general decoder finds it, and the bare message has the same borders."""
    (found,) = split_many([data])
    message = Message(data)
    if found is None:
        return
    header, delivery, annotations, properties, application, code, body, footer, bare_at, bare_end = found
    assert data[bare_at:bare_end] == message.bare
    assert (header is None) == (message.after_header_offset == 0)
    for encoded, decoded in (
        (delivery, message.delivery_annotations),
        (annotations, message.message_annotations),
        (application, message.application_properties),
        (footer, message.footer),
    ):
        assert (None if encoded is None else decode_value(encoded, 0, 10_000)[0]) == decoded
    assert (properties is None) == (message.properties is None)
    sections = message.body_sections()
    if code == 0x75:
        assert body == b"".join(section.value for section in sections if isinstance(section, Data))
    elif code == 0x77:
        assert isinstance(sections[0], AmqpValue)
    else:
        assert not sections


@given(st.lists(messages(), max_size=6), st.lists(st.integers(0, 9), max_size=12))
def test_many_messages_are_split_as_each_of_them(pool: list[bytes], order: list[int]) -> None:
    """Whatever came before: stamped ones of one header among all others, cut ones, too."""
    stamped = []
    for number, data in enumerate([*pool, encode_message(header=Header(durable=True), body=b"x")]):
        header_bytes = Message(data).after_header_offset
        message = Stamped(data[header_bytes:], number, 7)
        message.header_bytes = data[:header_bytes]
        try:
            STAMP.write([message])
        except DecodeError:
            continue
        whole = message.header_bytes + message.body
        stamped += [whole, whole, whole[:20], whole[:60]]
    chosen = [(pool + stamped)[index % len(pool + stamped)] for index in order]
    assert split_many(chosen) == [split_many([data])[0] for data in chosen]
    assert split_many(stamped) == [split_many([data])[0] for data in stamped]


def test_the_usual_layouts_are_known() -> None:
    """None of them is left to the general decoder."""
    usual: list[dict[str, Any]] = [
        {"body": b""},
        {"body": b"x" * 300, "header": Header(durable=True)},
        {"body": AmqpValue({"a": 1}), "properties": Properties(message_id="m")},
        {"body": [Data(b"1"), Data(b"2")], "application_properties": {"a": "b"}},
        {"body": AmqpValue(None), "message_annotations": {Symbol("x"): 1}, "footer": {Symbol("y"): 2}},
    ]
    for fields in usual:
        assert split_many([encode_message(**fields)]) != [None], fields


def test_what_is_not_certain_is_left_to_the_message() -> None:
    """Sequences, other descriptors, wrong order, and every cut."""
    sequence = encode_message(body=AmqpSequence([1]))
    symbolic = b"\x00\xa3\x10amqp:data:binary\xa0\x01x"
    data = encode_section("data", b"x")
    disorder = data + encode_section("properties", Properties(message_id="m"))
    twice = encode_section("amqp-value", 1) * 2
    for odd in (
        sequence,
        symbolic,
        disorder,
        twice,
        data + encode_section("amqp-value", 1),
        b"\x00\x53\x79\x40",
    ):
        assert split_many([odd]) == [None]
    whole = encode_message(header=Header(durable=True), properties=Properties(message_id="m"), body=b"xyz")
    borders = {len(encode_section("header", Header(durable=True)))}
    borders.add(len(whole) - len(encode_section("data", b"xyz")))
    for end in set(range(1, len(whole))) - borders:
        assert split_many([whole[:end]]) == [None], end


@given(composites_of(DECLARATIONS[Properties]))
def test_properties_are_the_fields_of_the_composite(properties: Properties) -> None:
    """In order, whatever types the ids have."""
    expected = [plain(getattr(properties, field.attribute)) for field in DECLARATIONS[Properties].fields]
    assert read_properties(encode_section("properties", properties)) == expected


def test_malformed_properties_are_an_error() -> None:
    """As the general decoder says it."""
    whole = encode_section("properties", Properties(message_id=uuid.uuid4(), subject="s"))
    for wrong in (whole[:-1], whole[:6] + b"\x70" + whole[7:]):
        with pytest.raises(DecodeError):
            read_properties(wrong)
