"""What a message says of its place: forms, types, contradictions; and what is not looked at."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.coordinator.sequences import Numbering
from amqp_broker.frames import (
    AmqpValue,
    Byte,
    Data,
    Error,
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
    encode_message,
    encode_value,
)
from amqp_broker.places import Place
from amqp_broker.sequences import fields as sequence_fields
from amqp_broker.sequences.fields import (
    MISSING,
    SEARCHED_OCTETS,
    STREAM_CHARACTERS,
    place_of,
    stream_property,
)
from tests.support.sequenced import annotated, stated

ANNOTATIONS: dict[Any, Any] = {
    Symbol("x-opt-seq-stream"): "s",
    Symbol("x-opt-seq-id"): Ulong(1),
    Symbol("x-opt-seq-no"): Uint(2),
    Symbol("x-opt-seq-prev"): Uint(1),
}
PROPERTIES: dict[str, Any] = {"seq_stream": "s", "seq_id": 1, "seq_no": 2, "seq_prev": 1}


def body_of(payload: bytes) -> bytes:
    """What a record keeps of a message."""
    return payload[Message(payload).after_header_offset :]


def found(payload: bytes, link_stream: str | None = None) -> tuple[str, int, int, int]:
    """The place of a message that has one."""
    place = place_of(body_of(payload), link_stream)
    assert isinstance(place, Place), place
    numbering = place.numbering
    return place.stream, numbering.seq_id, numbering.seq_no, numbering.seq_prev


def refused(payload: bytes, link_stream: str | None = None) -> str:
    """Why a message's fields are not taken."""
    error = place_of(body_of(payload), link_stream)
    assert isinstance(error, Error) and error.condition == "amqp:invalid-field", error
    return error.description or ""


def test_annotations_and_application_properties_say_the_same() -> None:
    """Each form by itself, and both when they agree; also in a long message."""
    assert found(annotated((1, 2, 1))) == ("s", 1, 2, 1)
    assert found(stated((1, 2, 1))) == ("s", 1, 2, 1)
    assert found(annotated((1, 2, 1), body=b"x" * 2 * SEARCHED_OCTETS)) == ("s", 1, 2, 1)
    both = encode_message(
        message_annotations=ANNOTATIONS,
        properties=Properties(message_id="m"),
        application_properties={**PROPERTIES, "other": True},
        body=Data(b"x"),
    )
    assert found(both) == ("s", 1, 2, 1)


def test_each_field_may_come_its_own_way() -> None:
    """The stream from the link, the id from an annotation, the numbers from properties."""
    payload = encode_message(
        message_annotations={Symbol("x-opt-seq-id"): Ulong(9)},
        application_properties={"seq_no": Int(4), "seq_prev": Int(3)},
        body=AmqpValue("text"),
    )
    assert found(payload, "of the link") == ("of the link", 9, 4, 3)


@pytest.mark.parametrize("integer", [Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long])
def test_any_integral_type_is_taken(integer: Any) -> None:
    """By its value."""
    assert found(stated((1, 2, 1), integer=integer)) == ("s", 1, 2, 1)


@pytest.mark.parametrize("value", ["2", True, 2.0, b"2", Timestamp(2), Symbol("2")])
def test_other_types_are_refused(value: Any) -> None:
    """With the type that came."""
    payload = encode_message(application_properties={**PROPERTIES, "seq_no": value}, body=Data(b"x"))
    assert "expected seq id, no and prev of integral types" in refused(payload)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("seq_id", 0, "seq id from 1"),
        ("seq_id", -1, "seq id from 1"),
        ("seq_no", 0, "seq number from 1"),
        ("seq_no", 2**32, "seq number from 1"),
        ("seq_prev", -1, "seq prev from 0"),
        ("seq_prev", 2, "below the number 2"),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: int, text: str) -> None:
    """Row 0 of the table, with what was expected."""
    payload = encode_message(application_properties={**PROPERTIES, name: Long(value)}, body=Data(b"x"))
    assert text in refused(payload)


@pytest.mark.parametrize(
    ("name", "value"), [("seq_stream", "t"), ("seq_id", 2), ("seq_no", 3), ("seq_prev", 0)]
)
def test_two_forms_that_differ_are_refused(name: str, value: object) -> None:
    """Nobody can tell which is meant."""
    payload = encode_message(
        message_annotations=ANNOTATIONS, application_properties={**PROPERTIES, name: value}, body=Data(b"x")
    )
    assert f"application property {name} says" in refused(payload)


def test_a_stream_that_is_not_the_links_is_refused() -> None:
    """The link named one for all its messages; the same again is harmless."""
    assert found(annotated((1, 2, 1)), "s") == ("s", 1, 2, 1)
    assert "the link is of stream 't'" in refused(annotated((1, 2, 1)), "t")


@pytest.mark.parametrize("missing", ["stream", "id", "no", "prev"])
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    """Some of the fields are not enough."""
    some = {key: value for key, value in ANNOTATIONS.items() if not key.value.endswith(f"-{missing}")}
    payload = encode_message(message_annotations=some, body=Data(b"x"))
    assert f"expected seq {missing}" in refused(payload)


def test_null_is_absent() -> None:
    """A property without a value says nothing."""
    payload = encode_message(
        message_annotations=ANNOTATIONS,
        application_properties={**dict.fromkeys(PROPERTIES)},
        body=Data(b"x"),
    )
    assert found(payload) == ("s", 1, 2, 1)


@pytest.mark.parametrize("stream", ["", "x" * (STREAM_CHARACTERS + 1), 7, Symbol("s"), b"s"])
def test_what_can_be_no_streams_name_is_refused(stream: Any) -> None:
    """In a message and at a link."""
    payload = encode_message(application_properties={**PROPERTIES, "seq_stream": stream}, body=Data(b"x"))
    assert "1 to 128 characters" in refused(payload)
    error = stream_property({"seq-stream": stream})
    assert isinstance(error, Error) and error.condition == "amqp:invalid-field"


def test_the_longest_stream_is_taken() -> None:
    """128 characters, whatever they are in UTF-8."""
    assert found(annotated((1, 2, 1), "\u00fc" * STREAM_CHARACTERS))[0] == "\u00fc" * STREAM_CHARACTERS
    assert stream_property({"seq-stream": "x" * STREAM_CHARACTERS}) == "x" * STREAM_CHARACTERS
    assert stream_property({"other": 1}) is None and stream_property(None) is None


@pytest.mark.parametrize(
    "payload",
    [
        encode_message(body=Data(b"x-opt-seq-id seq_id")),
        encode_message(properties=Properties(message_id="seq_id"), body=AmqpValue("x-opt-seq-stream")),
        encode_message(message_annotations={Symbol("x-opt-other"): 1}, body=Data(b"x")),
        encode_message(message_annotations={Symbol("x-opt-other"): "x-opt-seq-id"}, body=Data(b"x")),
        encode_message(application_properties={"seq_number": 1}, body=Data(b"x")),
        encode_message(delivery_annotations={Symbol("x-opt-seq-id"): Ulong(1)}, body=Data(b"x")),
        encode_message(body=Data(b"x"), footer={Symbol("x-opt-seq-id"): Ulong(1)}),
    ],
)
def test_other_messages_have_no_place(payload: bytes) -> None:
    """Words that look like a field elsewhere are none; on a link of a stream such a message is missing its
    place.
    """
    body = payload[Message(payload).after_delivery_annotations_offset :]
    assert place_of(body, None) is None
    assert place_of(body, "s") is MISSING


def test_sections_with_long_descriptors_are_read_too() -> None:
    """The descriptors as ulong with eight octets, and symbolic: rare, and valid."""
    for descriptor in (b"\x80" + (0x72).to_bytes(8, "big"), b"\xa3\x1camqp:message-annotations:map"):
        section = b"\x00" + descriptor + encode_value(ANNOTATIONS)
        place = place_of(section + encode_message(body=Data(b"x")), None)
        assert isinstance(place, Place) and place.numbering == Numbering(1, 2, 1)


def test_a_map_that_cannot_be_read_is_refused() -> None:
    """Its section is whole, what is inside is not."""
    payload = annotated((1, 2, 1))
    cut = payload.replace(encode_value(Symbol("x-opt-seq-no")), b"\xa3\xffx-opt-seq-no")
    assert "cannot be read" in refused(cut)


def test_nothing_is_decoded_where_no_name_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other annotations and properties cost a search in their bytes; in a long message, in those of their
    sections.
    """

    def never(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(sequence_fields, "decode_value", never)
    monkeypatch.setattr(sequence_fields, "read_entries", never)
    payload = encode_message(
        message_annotations={Symbol("x-opt-jms-msg-type"): Byte(5)},
        properties=Properties(message_id="m"),
        application_properties={"colour": "red", "weight": 3},
        body=AmqpValue("text"),
    )
    assert place_of(payload, None) is None
    long = encode_message(
        message_annotations={Symbol("x-opt-jms-msg-type"): Byte(5)},
        application_properties={"colour": "red"},
        body=Data(b"x-opt-seq-id seq_id " * SEARCHED_OCTETS),
    )
    assert place_of(long, None) is None
    with pytest.raises(AssertionError, match="decoded"):
        place_of(body_of(stated((1, 1, 0))), None)
