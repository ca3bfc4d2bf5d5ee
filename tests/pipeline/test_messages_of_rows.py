"""Rows to messages: what each column becomes, and what is said when it cannot be sent."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Byte,
    Data,
    Decimal128,
    Float,
    Int,
    Message,
    Properties,
    Short,
    Symbol,
    Timestamp,
    Ulong,
    encode_message,
    encode_section,
)
from amqp_broker.pipeline.amqp_values import converter
from amqp_broker.pipeline.errors import SchemaError
from amqp_broker.pipeline.message_sections import body_of, by_row, properties_of, section_map
from amqp_broker.pipeline.messages_of_rows import POSITIONS, Encoded, RowEncoder

NOON = datetime.datetime(2026, 5, 1, 12, 0, 0, 123_456, tzinfo=datetime.UTC)
NOON_MS = 1_777_636_800_123
STRINGS = {"type": "map", "keyType": "string", "valueType": "string"}


def struct(**fields: Any) -> dict[str, Any]:
    """A STRUCT as Spark writes it in JSON."""
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def encoded(kinds: dict[str, Any], rows: list[dict[str, Any]], address: str | None = "orders") -> Encoded:
    """The messages of rows that are given as dictionaries."""
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    return RowEncoder(kinds.items(), address).encode(columns, len(rows))


def one(kinds: dict[str, Any], **row: Any) -> Message:
    """The message of a single row."""
    made = encoded(kinds, [row])
    found = Message(made.heads[0] + made.rests[0])
    found.check_sections()
    return found


def refused(kinds: dict[str, Any], address: str | None = "orders") -> str:
    """What is said when a plan is made for a schema that cannot be sent."""
    with pytest.raises(SchemaError) as caught:
        RowEncoder(kinds.items(), address)
    return str(caught.value)


def test_a_body_is_a_data_section_and_the_message_durable() -> None:
    """BINARY goes as it is, STRING as UTF-8; nobody said otherwise, so the broker has to keep it."""
    assert one({"body": "binary"}, body=b"x" * 300).body_sections() == [Data(b"x" * 300)]
    found = one({"body": "string"}, body="Grüße")
    assert found.body_sections() == [Data("Grüße".encode())]
    assert found.header.durable is True


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, True),
        ("byte", -5, Byte(-5)),
        ("short", 300, Short(300)),
        ("integer", 70_000, Int(70_000)),
        ("long", 1 << 40, 1 << 40),
        ("float", 0.5, Float(0.5)),
        ("double", 0.1, 0.1),
        ("string", "a", "a"),
        ("binary", b"\0", b"\0"),
        ("timestamp", NOON, Timestamp(NOON_MS)),
        ("decimal(20,0)", Decimal((1 << 64) - 1), Ulong((1 << 64) - 1)),
        ({"type": "array", "elementType": "integer", "containsNull": True}, [1, None], [Int(1), None]),
        (struct(a="long", b=struct(c="string")), {"a": 1, "b": {"c": None}}, {"a": 1, "b": {"c": None}}),
        ({"type": "map", "keyType": "string", "valueType": "byte"}, [("k", 1)], {"k": Byte(1)}),
    ],
)
def test_values_have_the_amqp_type_of_their_spark_type(kind: Any, value: Any, expected: Any) -> None:
    """Every type that AMQP has too keeps its width, also inside of lists and maps."""
    assert converter(kind, "c")(value) == expected
    assert encoded({"body_value": kind}, [{"body_value": value}]).rests == [
        encode_message(body=AmqpValue(expected))
    ]


def test_a_decimal_with_a_fraction_is_a_decimal128() -> None:
    """In the binary integer encoding: -12.5 is the coefficient 125 with the exponent -1."""
    found = converter("decimal(10,1)", "c")(Decimal("-12.5"))
    assert found == Decimal128((1 << 127 | (6176 - 1) << 113 | 125).to_bytes(16, "big"))


def test_properties_take_their_fields_from_a_struct() -> None:
    """Times are whole milliseconds, ids any of the four kinds, and a null field is left out."""
    kinds = {
        "body": "binary",
        "properties": struct(
            message_id="decimal(20,0)", correlation_id="string", subject="string", creation_time="timestamp",
            user_id="binary", group_sequence="long", content_type="string",
        ),
    }  # fmt: skip
    value = {
        "message_id": Decimal(7), "correlation_id": "c", "subject": None, "creation_time": NOON,
        "user_id": b"u", "group_sequence": 3, "content_type": "text/plain",
    }  # fmt: skip
    found = one(kinds, body=b"", properties=value).properties
    assert found == Properties(
        message_id=Ulong(7), correlation_id="c", creation_time=NOON_MS, user_id=b"u", group_sequence=3,
        content_type="text/plain",
    )  # fmt: skip


def test_ids_become_again_what_the_source_made_text_of() -> None:
    """The source tells ids as text, and their kind beside it."""
    kinds = {"body": "binary", "properties": struct(message_id="string", message_id_type="string")}
    ids = [("7", "ulong"), ("00" * 16, "uuid"), ("ff00", "binary"), ("a", "string"), ("b", None)]
    rows = [{"body": b"", "properties": {"message_id": text, "message_id_type": kind}} for text, kind in ids]
    found = [Message(rest).properties for rest in encoded(kinds, rows).rests]
    expected = [Ulong(7), UUID(int=0), b"\xff\x00", "a", "b"]
    assert [each.message_id for each in found if each is not None] == expected
    with pytest.raises(SchemaError, match="column properties, row 0"):
        encoded(kinds, [{"body": b"", "properties": {"message_id": "x", "message_id_type": "ulong"}}])


def test_maps_become_annotations_and_application_properties() -> None:
    """Keys of annotations are symbols; a null leaves the section out."""
    kinds = {
        "body": "binary",
        "message_annotations": STRINGS,
        "application_properties": struct(kind="string", size="integer"),
        "footer": STRINGS,
    }
    row = {"message_annotations": [("x-opt-a", "1")], "application_properties": {"kind": "new", "size": 3}}
    found = one(kinds, body=b"", **row)
    assert found.message_annotations == {Symbol("x-opt-a"): "1"}
    assert found.application_properties == {"kind": "new", "size": Int(3)}
    assert found.footer is None


def test_the_checksummed_part_begins_after_the_delivery_annotations() -> None:
    """Header and delivery annotations are a part of their own: brokers change them."""
    kinds = {
        "body": "binary", "header": struct(durable="boolean", priority="byte", ttl="long"),
        "delivery_annotations": STRINGS, "message_annotations": STRINGS,
    }  # fmt: skip
    row = {
        "body": b"b", "header": {"durable": False, "priority": 7, "ttl": 1_000},
        "delivery_annotations": [("x-d", "1")], "message_annotations": [("x-m", "2")],
    }  # fmt: skip
    made = encoded(kinds, [row, {"body": b"c"}])
    first = Message(made.heads[0] + made.rests[0])
    assert (first.header.durable, first.header.priority, first.header.ttl) == (False, 7, 1_000)
    assert first.delivery_annotations == {Symbol("x-d"): "1"}
    assert first.after_delivery_annotations_offset == len(made.heads[0])
    assert made.rests[1] == encode_message(body=b"c")
    assert Message(made.heads[1] + made.rests[1]).header.durable is True


def test_body_type_says_which_column_is_the_body() -> None:
    """Rows as the source gives them go back as they came: data, a value, or a sequence."""
    kinds = {
        "body": "binary",
        "body_value": {"type": "array", "elementType": "long", "containsNull": True},
        "body_type": "string",
    }
    rows: list[dict[str, Any]] = [
        {"body": b"d", "body_type": "data"},
        {"body_value": [1], "body_type": "value"},
        {"body_value": [1, 2], "body_type": "sequence"},
        {"body_type": "value"},
        {"body": b"e"},
        {"body_value": [3]},
    ]
    assert encoded(kinds, [{}]).rests == [b""]
    bodies = [Data(b"d"), AmqpValue([1]), AmqpSequence([1, 2]), AmqpValue(None), Data(b"e"), AmqpValue([3])]
    assert encoded(kinds, rows).rests == [encode_message(body=body) for body in bodies]


def test_raw_goes_as_it_is_and_is_looked_at() -> None:
    """The bare message keeps its octets; what is none would be refused by the broker, and is named here."""
    bare = encode_message(properties=Properties(subject="s"), body=b"b")
    assert encoded({"raw": "binary"}, [{"raw": bare}]).rests == [bare]
    with pytest.raises(SchemaError, match=r"column raw, row 1 of its batch"):
        encoded({"raw": "binary"}, [{"raw": bare}, {"raw": b"\x00\x53\x70\x45" + bare}])
    with pytest.raises(SchemaError, match="column raw, row 0"):
        encoded({"raw": "binary"}, [{"raw": b"octets of another kind"}])


def test_the_address_is_a_column_or_an_option_and_the_option_wins() -> None:
    """A copy of rows that were read goes where the option says, not where they came from."""
    kinds = {"body": "binary", "address": "string"}
    rows = [{"body": b"1", "address": "a"}, {"body": b"2", "address": "b"}]
    assert encoded(kinds, rows, address=None).addresses == ["a", "b"]
    assert encoded(kinds, rows, address="orders").addresses is None
    with pytest.raises(SchemaError, match="column address, row 1: expected an address, found None"):
        encoded(kinds, [rows[0], {"body": b"2"}], address=None)
    assert "column address, or the option address" in refused({"body": "binary"}, address=None)


def test_an_unknown_column_is_named() -> None:
    """Nothing is left out in silence."""
    text = refused({"body": "binary", "colour": "string"})
    assert text.startswith("columns colour: expected only address, raw, header")
    for name in POSITIONS:
        assert f"columns {name}: they tell where a message was read" in refused(
            {"body": "binary", name: "long"}
        )


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"address": "string"}, "expected a column body, raw or body_value, found address"),
        ({"raw": "binary", "body": "binary"}, "columns body: column raw has all of them already"),
        ({"body": "long"}, "column body: expected BINARY or STRING, found LONG"),
        ({"body_value": "date"}, "column body_value: expected a type that AMQP has too, found DATE"),
        ({"body_value": "timestamp_ntz"}, "cast it to TIMESTAMP"),
        ({"body": "binary", "properties": struct(hue="string")}, "column properties.hue: expected only"),
        ({"body": "binary", "properties": struct(to="long")}, "column properties.to: expected STRING"),
        ({"body": "binary", "properties": "string"}, "column properties: expected STRUCT, found STRING"),
        ({"body": "binary", "header": struct(ttl="string")}, "column header.ttl: expected INTEGER or LONG"),
        (
            {"raw": "binary", "footer": STRINGS | {"valueType": "interval"}},
            "column footer[]: expected a type that AMQP has too, found INTERVAL",
        ),
        (
            {"body": "binary", "application_properties": STRINGS | {"valueType": STRINGS}},
            "column application_properties[]: expected a simple type, found MAP",
        ),
        (
            {"body": "binary", "footer": STRINGS | {"keyType": "long"}},
            "column footer: expected STRING as the keys of the map, found long",
        ),
        ({"body": "binary", "footer": "string"}, "column footer: expected MAP<STRING, ...> or STRUCT"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_sent_is_told_before_a_row_is(kinds: dict[str, Any], said: str) -> None:
    """The error names the column and its type, and what would do."""
    assert said in refused(kinds)


@pytest.mark.parametrize(
    ("kinds", "row", "said"),
    [
        ({"body": "binary"}, {}, "column body, row 0 of its batch: expected a value, found null"),
        (
            {"body": "binary", "body_value": "long"},
            {"body": b"", "body_value": 1},
            "column body, row 0 of its batch: expected one of body and body_value, found two",
        ),
        (
            {"body": "binary", "body_type": "string"},
            {"body": b"", "body_type": "text"},
            "column body_type, row 0 of its batch: expected data, value or sequence",
        ),
        (
            {"body": "binary", "header": struct(priority="long")},
            {"body": b"", "header": {"priority": 300}},
            "column header, row 0",
        ),
        (
            {"body": "binary", "properties": struct(group_sequence="long")},
            {"body": b"", "properties": {"group_sequence": -1}},
            "column properties, row 0",
        ),
        (
            {"body": "binary", "properties": struct(content_type="string")},
            {"body": b"", "properties": {"content_type": "ü"}},
            "column properties, row 0",
        ),
        (
            {"body": "binary", "properties": struct(message_id="long")},
            {"body": b"", "properties": {"message_id": -1}},
            "column properties, row 0",
        ),
        (
            {"body_value": "timestamp"},
            {"body_value": datetime.datetime(2026, 5, 1)},
            "column body_value, row 0 of its batch: expected a time with a zone",
        ),
        ({"body_value": "string"}, {"body_value": "\ud800"}, "column body_value, row 0"),
    ],
)
def test_a_value_that_cannot_be_sent_names_its_column_and_row(
    kinds: dict[str, Any], row: dict[str, Any], said: str
) -> None:
    """A worker's error tells where to look."""
    with pytest.raises(SchemaError) as caught:
        encoded(kinds, [row])
    assert said in str(caught.value)


def string_or_error(make: Any, value: Any) -> Any:
    """The octets, or what the error says."""
    try:
        return make({"column": [value]})
    except SchemaError as error:
        return str(error)


TEXT_OR_NULL = st.none() | st.text(max_size=6) | st.text("xé\ud800", min_size=80, max_size=300)
NAMES = ["message_id", "to", "subject", "reply_to", "correlation_id", "content_type", "reply_to_group_id"]


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, TEXT_OR_NULL)), st.permutations(NAMES))
def test_properties_that_are_texts_are_as_the_general_way_makes_them(
    value: dict[str, Any], order: list[str]
) -> None:
    """Octet for octet, also what is wrong with them."""
    fields = [{"name": name, "type": "string"} for name in order]
    quick = properties_of({"type": "struct", "fields": fields})
    # A field that tells the type of an id takes the general way.
    typed = properties_of(
        {"type": "struct", "fields": [*fields, {"name": "message_id_type", "type": "string"}]}
    )
    assert string_or_error(by_row("column", quick), value) == string_or_error(
        by_row("column", typed), value | {"message_id_type": None}
    )


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(max_size=4) | st.text("é\ud800", min_size=100, max_size=200), TEXT_OR_NULL)
    | st.dictionaries(st.text(max_size=4), st.none() | st.integers(-(2**63), 2**63 - 1))
)
def test_application_properties_of_texts_and_longs_are_as_the_general_way_makes_them(
    value: dict[str, Any],
) -> None:
    """Octet for octet, also what is wrong with them."""
    kind = "string" if any(isinstance(item, str) for item in value.values()) else "long"
    quick = section_map("application_properties", STRINGS | {"valueType": kind}, simple=True)
    # A map of any other kind takes the general way.
    expected = by_row(
        "application_properties", lambda pairs: encode_section("application-properties", dict(pairs))
    )
    columns = {"application_properties": [list(value.items())]}
    found = []
    for make in (quick, expected):
        try:
            found.append(make(columns))
        except SchemaError as error:
            found.append([str(error).encode()])
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [0, 1, 255, 256])
def test_bodies_of_every_size_are_data_sections(size: int) -> None:
    """The short form up to 255 octets."""
    body = b"x" * size
    assert body_of({"body": "binary"})({"body": [body]}) == [encode_section("data", body)]


def test_rows_are_routed_by_partition_then_group_then_task() -> None:
    """A null goes on to the next; a broker that there is not is an error, and so is the column with one
    broker.
    """
    properties = {"type": "struct", "fields": [{"name": "group_id", "type": "string"}]}
    fields = [("body", "binary"), ("partition", "integer"), ("properties", properties)]
    columns: dict[str, list[Any]] = {
        "body": [b"x"] * 4,
        "partition": [2, None, None, None],
        "properties": [{"group_id": "b"}, {"group_id": "b"}, {"group_id": None}, None],
    }
    # CRC-32 of "b" is 0x71BEEFF9, which is 2 modulo 3 and 1 modulo 4.
    assert RowEncoder(fields, "q", 3).encode(columns, 4, task=4).shards == [2, 2, 1, 1]
    assert RowEncoder(fields, "q", 4).encode(columns, 4, task=4).shards == [2, 1, 0, 0]
    assert RowEncoder(fields[:1], "q", 3).encode(columns, 4, task=5).shards == [2] * 4
    assert RowEncoder(fields[:1], "q").encode(columns, 4, task=5).shards is None
    with pytest.raises(SchemaError, match="column partition, row 0 .* 0 to 1, found 2"):
        RowEncoder(fields, "q", 2).encode(columns, 4)
    with pytest.raises(SchemaError, match="column partition: expected BYTE or SHORT or INT"):
        RowEncoder([("body", "binary"), ("partition", "string")], "q", 2)
    with pytest.raises(SchemaError, match="columns partition: they tell where a message was read"):
        RowEncoder(fields, "q")
