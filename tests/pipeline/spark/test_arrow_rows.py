"""Messages as record batches: what is read by layouts is what the general readers read, row by row."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import (
    Float,
    Header,
    Int,
    OffsetStamp,
    Properties,
    Symbol,
    Timestamp,
    Ulong,
    encode_section,
    encode_value,
)
from amqp_broker.pipeline import arrow_rows, rows
from amqp_broker.pipeline.arrow_rows import RowBatches
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.rows import Messages

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
MAP = pa.map_(TEXT, VARIANT)
IDS = ("message_id", "message_id_type", "correlation_id", "correlation_id_type")
TEXTS = ("to", "subject", "reply_to", "content_type", "content_encoding", "group_id", "reply_to_group_id")
SCHEMA = pa.schema(
    [
        ("address", TEXT), ("partition", pa.int32()), ("offset", pa.int64()), ("enqueued_at", TIME),
        ("header", pa.struct([
            ("durable", pa.bool_()), ("priority", pa.int16()), ("ttl", pa.int64()),
            ("first_acquirer", pa.bool_()), ("delivery_count", pa.int64()),
        ])),
        ("delivery_annotations", MAP), ("message_annotations", MAP),
        ("properties", pa.struct([
            *((name, TEXT) for name in IDS), ("user_id", pa.binary()), *((name, TEXT) for name in TEXTS),
            ("absolute_expiry_time", TIME), ("creation_time", TIME), ("group_sequence", pa.int64()),
        ])),
        ("application_properties", MAP), ("body_type", TEXT), ("body", pa.binary()), ("body_value", VARIANT),
        ("footer", MAP), ("raw", pa.binary()),
        ("txn", pa.struct([
            ("half_id", TEXT), ("group", TEXT), ("set_id", TEXT), ("epoch", pa.int64()),
        ])),
        ("seq", pa.struct([
            ("stream", TEXT), ("id", pa.decimal128(20, 0)), ("no", pa.int64()), ("prev", pa.int64()),
        ])),
    ]
)  # fmt: skip
AS_TEXT = pa.schema(
    [("offset", pa.int64())]
    + [(name, pa.map_(TEXT, TEXT)) for name in ("application_properties", "footer")]
    + [("body_value", TEXT)]
)
stamp = OffsetStamp("x-stream-offset", "x-opt-enqueued-time")


class Stored:
    """A message as a node keeps it."""

    def __init__(self, offset: int, body: bytes) -> None:
        self.offset = offset
        self.enqueued_at_ms = 1_700_000_000_000 + offset
        self.header_bytes = encode_section("header", Header(durable=True))
        self.body = body


def payload(offset: int, sections: bytes) -> bytes:
    """The message as a reader gets it."""
    message = Stored(offset, sections)
    stamp.write([message])
    return message.header_bytes + message.body


# --- messages: a few shapes that repeat, of which each value is another

texts = st.text(st.characters(codec="utf-8"), max_size=4) | st.text("a", min_size=60, max_size=70)
numbers = st.integers(-200, 200) | st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "name": st.sampled_from(["a", "b"]),
    "number": numbers,
    "int": st.integers(-(2**31), 2**31 - 1).map(Int),
    "ulong": st.integers(0, 2**64 - 1).map(Ulong),
    "float": st.floats(allow_nan=False),
    "flag": st.booleans() | st.none(),
    "octets": st.binary(max_size=3),
    "time": st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    "symbol": st.sampled_from(["x", "yy"]).map(Symbol),
    "rare": st.lists(st.integers(0, 3), max_size=2) | st.just(Float(1.5)) | st.just(uuid.UUID(int=5)),
}
IDENTIFIERS = texts | st.integers(0, 2**64 - 1).map(Ulong) | st.uuids() | st.binary(max_size=3)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "message_id": IDENTIFIERS,
    "user_id": st.binary(max_size=2),
    "to": texts,
    "subject": st.sampled_from(["order", "payment"]),
    "correlation_id": IDENTIFIERS,
    "content_type": st.just("text/plain"),
    "creation_time": st.integers(-(2**63), 2**63 - 1),
    "group_sequence": st.integers(0, 2**32 - 1),
}


@st.composite
def sections(draw: Any) -> list[bytes]:
    """The messages of a batch: of some shapes each, in any order."""
    made: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        fields = draw(st.none() | st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=4))
        kinds = draw(st.none() | st.lists(st.sampled_from(sorted(VALUES)), max_size=4))
        value = draw(st.sampled_from(["data", "amqp-value", "amqp-sequence"]))
        names = [f"k{at}" for at in range(len(kinds or ()))]
        footer = draw(st.booleans())
        annotated = draw(st.booleans())
        for _ in range(draw(st.integers(1, 14))):
            parts = []
            if annotated:
                parts.append(encode_section("message-annotations", {Symbol("mine"): draw(numbers)}))
            if fields is not None:
                values: dict[str, Any] = {name: draw(FIELDS[name]) for name in fields}
                parts.append(encode_section("properties", Properties(**values)))
            if kinds is not None:
                entries = {name: draw(VALUES[kind]) for name, kind in zip(names, kinds, strict=True)}
                keyed = {Symbol(name) if footer else name: entry for name, entry in entries.items()}
                parts.append((b"\0\x53\x78" if footer else b"\0\x53\x74") + encode_value(keyed))
            body = draw(st.binary(max_size=3)) if value == "data" else draw(st.lists(numbers, max_size=2))
            parts.insert(len(parts) - (footer and kinds is not None), encode_section(value, body))
            made.append(b"".join(parts))
    return draw(st.permutations(made)) if draw(st.booleans()) else made


def read(payloads: list[bytes], schema: pa.Schema) -> Any:
    """The record batch, or what the error says."""
    try:
        batch = RowBatches(schema).batch(Messages("q", list(payloads)))
    except PipelineError as error:
        return str(error)
    batch.validate(full=True)
    return batch


def read_generally(payloads: list[bytes], schema: pa.Schema) -> Any:
    """The same, section by section and message by message."""
    from amqp_broker.frames.message_parts import split_many

    def split_each(payloads: list[bytes]) -> list[Any]:
        return [split_many([payload])[0] for payload in payloads]

    def nothing_laid_out(parts: list[Any], learn: Any) -> Any:
        return [], [row for row, part in enumerate(parts) if part is not None]

    with (
        mock.patch.object(arrow_rows, "lay_out", nothing_laid_out),
        mock.patch.object(arrow_rows, "REPEATS_MIN", 10**9),
        mock.patch.object(rows, "split_many", split_each),
        mock.patch.object(rows, "_read_stamps", lambda parts: None),
    ):
        return read(payloads, schema)


def same(payloads: list[bytes]) -> None:
    """Both ways, all columns; with values as VARIANT and as JSON."""
    for schema in (SCHEMA, AS_TEXT):
        found, expected = read(payloads, schema), read_generally(payloads, schema)
        assert type(found) is type(expected), (found, expected)
        if isinstance(found, str):
            assert found == expected
        else:
            assert found.equals(expected), [
                (name, found[name], expected[name])
                for name in schema.names
                if not found[name].equals(expected[name])
            ]


@settings(max_examples=100, deadline=None)
@given(sections())
def test_every_row_is_what_the_general_readers_make_of_it(made: list[bytes]) -> None:
    """Whatever shapes there are, and however they mix."""
    same([payload(offset, octets) for offset, octets in enumerate(made)])


@settings(max_examples=100, deadline=None)
@given(sections(), st.data())
def test_what_is_malformed_is_told_alike(made: list[bytes], data: st.DataObject) -> None:
    """One octet of one message is another: the same rows, or the same error with the same offset."""
    row = data.draw(st.integers(0, len(made) - 1))
    at = data.draw(st.integers(0, len(made[row]) - 1))
    broken = bytearray(made[row])
    broken[at] = data.draw(st.integers(0, 255))
    try:
        payloads = [payload(offset, octets) for offset, octets in enumerate([*made[:row], bytes(broken)])]
        Messages("q", payloads)
    except Exception:
        return  # not a message any more: no node has it, and the reader says so before there are rows
    same(payloads + [payload(row + 1 + more, octets) for more, octets in enumerate(made[row + 1 :])])


def test_messages_that_repeat_and_messages_that_do_not() -> None:
    """Enough of them for every way that there is: one layout, several, sections looked up, absent ones."""
    made = []
    for number in range(200):
        parts = [
            encode_section("properties", Properties(message_id=f"order-{number}", subject="order")),
            encode_section("application-properties", {"region": "north", "customer": number * 300}),
            encode_section("data", b"x" * (number % 7)),
        ]
        made.append(b"".join(parts[number % 11 == 0 : 3]))
        made.append(encode_section("application-properties", {"like": "others"}) + parts[2])
    same([payload(offset, octets) for offset, octets in enumerate(made)])
