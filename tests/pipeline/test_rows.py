"""What of a message becomes which column, and values as VARIANT, by their octets."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Array,
    Described,
    Header,
    Long,
    Properties,
    Symbol,
    Timestamp,
    Ulong,
    decode_value,
    encode_message,
    encode_section,
    encode_value,
)
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.rows import (
    TIME_MAX_MS,
    Messages,
    body_value,
    body_variant,
    columns_of,
    ddl_of,
    id_columns,
    json_of,
    map_texts,
    map_variants,
    seq_fields,
    texts,
    times,
    txn_fields,
    without_stamp,
)
from amqp_broker.pipeline.variants import EMPTY_METADATA, scalar_variants, variant_of


def stamp(offset: int, time_ms: int = 1_000, **others: Any) -> dict[Any, Any]:
    """Message annotations as a retaining node sends them."""
    ours = {Symbol("x-stream-offset"): Ulong(offset), Symbol("x-opt-enqueued-time"): Timestamp(time_ms)}
    return ours | {Symbol(name): value for name, value in others.items()}


def test_columns_are_those_that_are_asked_for() -> None:
    """In the documented order; values are VARIANT or JSON."""
    names = [name for name, _ in columns_of(("body", "header"), True, "variant")]
    assert names == [
        "address", "partition", "offset", "enqueued_at", "header", "body_type", "body", "body_value", "raw",
    ]  # fmt: skip
    kinds = dict(columns_of(("body", "footer"), False, "json"))
    assert kinds["body_value"] == "string" and kinds["footer"] == "map<string,string>"
    assert ddl_of((("a", "string"), ("b", "int"))) == "`a` string, `b` int"


def test_messages_have_the_place_that_the_broker_wrote() -> None:
    """Whichever way it is encoded; layouts that are rare are read all the same."""
    usual = encode_message(message_annotations=stamp(5, 7), body=b"x")
    beside = encode_message(message_annotations=stamp(6, 8, mine="v"), body=AmqpSequence([1, "a"]))
    found = Messages("q", [usual])
    found.extend(Messages("q", [beside]))
    assert (found.offsets, found.times_ms, found.others) == ([5, 6], [7, 8], [True, True])
    assert found.splits[0][5:7] == (0x75, b"x")
    assert found.splits[1][5:7] == (0x76, [Long(1), "a"])
    assert len(found) == 2


def test_rare_layouts_have_the_same_sections() -> None:
    """A message with symbolic descriptors, encoded anew."""
    symbolic = (
        b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41"
        + encode_section("message-annotations", stamp(5))
        + encode_section("properties", Properties(message_id="m"))
        + encode_section("application-properties", {"a": 1})
        + b"\x00\xa3\x10amqp:data:binary\xa0\x01x"
        + encode_section("footer", {Symbol("f"): 1})
    )
    header, delivery, annotations, properties, application, code, body, footer, at, end = Messages(
        "q", [symbolic]
    ).splits[0]
    assert header == encode_section("header", Header(durable=True)) and delivery is None
    assert annotations is not None and properties == encode_section("properties", Properties(message_id="m"))
    assert (application, code, body) == (encode_value({"a": 1}), 0x75, b"x")
    assert footer == encode_value({Symbol("f"): 1})
    assert symbolic[at:end].endswith(b"amqp:data:binary\xa0\x01x")


def test_a_message_without_a_place_is_told() -> None:
    """It is not from a broker that retains."""
    with pytest.raises(PipelineError, match="x-stream-offset and x-opt-enqueued-time"):
        Messages("q", [encode_message(body=b"x")])
    with pytest.raises(PipelineError, match="x-stream-offset"):
        Messages("q", [encode_message(message_annotations={Symbol("x-stream-offset"): 5}, body=b"x")])


def test_a_malformed_section_is_told_with_its_offset_and_a_way_on() -> None:
    """Only where it is decoded."""
    good, bad = encode_value({"a": 1}), b"\xc1\x03\x02\xa1\x05"
    messages = Messages("q", [encode_message(message_annotations=stamp(n), body=b"") for n in (41, 42)])
    with pytest.raises(PipelineError, match="offset 42 of 'q' .*application_properties.*includeSections"):
        messages.decoded("application_properties", map_variants, [good, bad])
    assert messages.decoded("x", map_texts, [good, None]) == [[("a", "1")], None]


def test_annotations_are_shown_without_what_the_broker_added() -> None:
    """None where nothing else was there."""
    assert without_stamp(encode_value(stamp(5))) is None
    left = without_stamp(encode_value(stamp(5, mine="v")))
    assert left is not None and decode_value(left)[0] == {Symbol("mine"): "v"}


def test_ids_are_texts_with_their_type() -> None:
    """All four types of the standard (3.2.11 to 3.2.14)."""
    name = uuid.uuid4()
    found, kinds = id_columns([None, "a", 7, name, b"\x01\xff"])
    assert list(found) == [None, "a", "7", str(name), "01ff"]
    assert kinds == [None, "string", "ulong", "uuid", "binary"]
    assert id_columns(["a", None]) == (["a", None], ["string", None])
    assert texts(["a", None, 5]) == ["a", None, "5"]


def test_times_that_spark_does_not_have_become_the_furthest() -> None:
    """A sender may write any 64 bits."""
    assert times([None, 5, 2**63 - 1, -(2**63)]) == [None, 5, TIME_MAX_MS, -TIME_MAX_MS]


def test_the_place_in_a_sequence_comes_from_either_section() -> None:
    """Annotations or application properties; None without."""
    by_annotation = encode_value(
        {Symbol("x-opt-seq-stream"): "s", Symbol("x-opt-seq-id"): Ulong(2**63), Symbol("x-opt-seq-no"): 2}
    )
    by_property = encode_value({"seq_stream": "s", "seq_id": 1, "seq_no": 2, "seq_prev": 1})
    assert seq_fields(by_annotation, None) == ("s", 2**63, 2, None)
    assert seq_fields(None, by_property) == ("s", 1, 2, 1)
    assert seq_fields(by_annotation, by_property) == ("s", 2**63, 2, 1)
    assert seq_fields(encode_value(stamp(1)), encode_value({"a": 1})) is None
    assert seq_fields(None, encode_value({"seq_id": 1})) is None


def test_the_transaction_is_what_annotations_say() -> None:
    """None without."""
    found = encode_value({Symbol("x-opt-half-id"): "h", Symbol("x-opt-half-group"): "g"})
    assert txn_fields(found) == ("h", "g", None, None)
    assert txn_fields(encode_value(stamp(1))) is None and txn_fields(None) is None


def test_bodies_that_are_values() -> None:
    """A sequence is one list; data has no value."""
    assert body_value(0x77, encode_value("x")) == "x"
    assert body_value(0x76, [1, 2]) == [1, 2]
    assert body_value(0x75, b"x") is None
    assert body_variant(0x77, encode_value({"a": 1})) == body_variant(0x77, encode_value({"a": 1}))


def test_json_is_plain() -> None:
    """Binaries in base64, times in ISO 8601; what a date cannot be stays a number."""
    name = uuid.uuid4()
    value = {
        "b": b"\x00\xff", Symbol("t"): Timestamp(1_000), "far": Timestamp(2**62), "u": name, "l": [Ulong(1),
        None], "d": Described(Symbol("x"), AmqpValue), "a": Array("uint", [Ulong(3)]),
    }  # fmt: skip
    value.pop("d")
    assert json.loads(json_of(value)) == {
        "b": "AP8=", "t": "1970-01-01T00:00:01+00:00", "far": 2**62, "u": str(name), "l": [1, None], "a": [3],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (None, b"\x00"),
        (True, b"\x04"),
        (False, b"\x08"),
        (5, b"\x0c\x05"),
        (-129, b"\x10\x7f\xff"),
        (70_000, b"\x14\x70\x11\x01\x00"),
        (2**40, b"\x18\x00\x00\x00\x00\x00\x01\x00\x00"),
        (Ulong(2**63), b"\x28\x00" + (2**63).to_bytes(16, "little")),
        ("hi", b"\x09hi"),
        (Symbol("hi"), b"\x09hi"),
        ("x" * 64, b"\x40\x40\x00\x00\x00" + b"x" * 64),
        (b"hi", b"\x3c\x02\x00\x00\x00hi"),
        (0.5, b"\x1c\x00\x00\x00\x00\x00\x00\xe0\x3f"),
        (Timestamp(1), b"\x30\xe8\x03\x00\x00\x00\x00\x00\x00"),
        ([1, "a"], b"\x03\x02\x00\x02\x04\x0c\x01\x05a"),
    ],
)
def test_variants_are_the_octets_of_spark(value: Any, octets: bytes) -> None:
    """By the format's own text: type in the low bits, little-endian numbers."""
    assert variant_of(value) == (octets, EMPTY_METADATA)


def test_an_object_has_its_names_in_the_metadata() -> None:
    """Sorted, each once, however deep; the fields refer to them by number."""
    octets, metadata = variant_of({"b": {"a": 1}, "a": 2})
    assert metadata == b"\x01\x02\x00\x01\x02ab"
    inner = b"\x02\x01\x00\x00\x02\x0c\x01"
    assert octets == b"\x02\x02\x00\x01\x00\x02" + bytes((2 + len(inner),)) + b"\x0c\x02" + inner


def test_fields_are_in_the_order_in_which_spark_looks_for_them() -> None:
    """That of UTF-16: it halves objects of many fields, where another order would hide some."""
    octets, _ = variant_of({"\uffee": 1, "\U0001f600": 2})
    assert octets == b"\x02\x02\x01\x00\x00\x02\x04\x0c\x02\x0c\x01"
    assert variant_of({"b": 1, "a": 2}) == variant_of({"a": 2, "b": 1})


def test_scalars_in_one_go() -> None:
    """As one by one; True and 1 are not the same."""
    values = [1, True, "a", None, 1.0]
    assert scalar_variants(values) == [variant_of(value)[0] for value in values]
    with pytest.raises(KeyError):
        scalar_variants([[]])
