"""Messages as rows: which columns there are, and what of a message becomes each.

    address STRING, partition INT, offset BIGINT, enqueued_at TIMESTAMP                          always
    header STRUCT, delivery_annotations MAP, message_annotations MAP, properties STRUCT,
    application_properties MAP, body_type STRING, body BINARY, body_value VARIANT, footer MAP,
    txn STRUCT, seq STRUCT                                                    by the option includeSections
    raw BINARY: the bare message, octet for octet                             by the option includeRaw

What is not asked for is not decoded. The two annotations that the broker adds on the way (offset and time)
are columns of their own and no message annotations. A null column says that the section is not there.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Data,
    DecodeError,
    Message,
    OffsetStamp,
    Timestamp,
    decode_value,
    encode_section,
    encode_value,
)
from amqp_broker.frames.columns import DATA_CODE, SEQUENCE_CODE, VALUE_CODE
from amqp_broker.frames.flat_maps import read_flat_map
from amqp_broker.frames.message_parts import split_many
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.variants import EMPTY_METADATA, Variant, inner, key_of, scalar_variant, variant_of

OFFSET_ANNOTATION: Final = "x-stream-offset"
TIME_ANNOTATION: Final = "x-opt-enqueued-time"
NODES_MAX: Final = 100_000
"""Values inside of one section; the broker takes no more in a frame of its own."""
BODY_TYPES: Final = {0: None, DATA_CODE: "data", SEQUENCE_CODE: "sequence", VALUE_CODE: "value"}

_HEADER: Final = (
    "struct<durable:boolean,priority:smallint,ttl:bigint,first_acquirer:boolean,delivery_count:bigint>"
)
_PROPERTIES: Final = (
    "struct<message_id:string,message_id_type:string,user_id:binary,`to`:string,subject:string,"
    "reply_to:string,correlation_id:string,correlation_id_type:string,content_type:string,"
    "content_encoding:string,absolute_expiry_time:timestamp,creation_time:timestamp,group_id:string,"
    "group_sequence:bigint,reply_to_group_id:string>"
)
_TXN: Final = "struct<half_id:string,`group`:string,set_id:string,epoch:bigint>"
_SEQ: Final = "struct<stream:string,id:decimal(20,0),no:bigint,prev:bigint>"
PLACE: Final = (
    ("address", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("enqueued_at", "timestamp"),
)

# Column, its type ({} is that of a value), the section that asks for it; raw is asked for by its own option.
COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("header", _HEADER, "header"),
    ("delivery_annotations", "map<string,{}>", "delivery-annotations"),
    ("message_annotations", "map<string,{}>", "message-annotations"),
    ("properties", _PROPERTIES, "properties"),
    ("application_properties", "map<string,{}>", "application-properties"),
    ("body_type", "string", "body"),
    ("body", "binary", "body"),
    ("body_value", "{}", "body"),
    ("footer", "map<string,{}>", "footer"),
    ("raw", "binary", "raw"),
    ("txn", _TXN, "txn"),
    ("seq", _SEQ, "seq"),
)


def columns_of(sections: tuple[str, ...], raw: bool, value_format: str) -> tuple[tuple[str, str], ...]:
    """Name and Spark type of each column, in order."""
    value = "variant" if value_format == "variant" else "string"
    asked = {*sections, "raw"} if raw else set(sections)
    return PLACE + tuple((name, kind.format(value)) for name, kind, section in COLUMNS if section in asked)


def ddl_of(columns: tuple[tuple[str, str], ...]) -> str:
    """The columns as a schema in Spark's words."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


Split = tuple[Any, Any, Any, Any, Any, int, Any, Any, int, int]
_stamps: Final = OffsetStamp(OFFSET_ANNOTATION, TIME_ANNOTATION)
_read_stamps: Final = _stamps.read_all


def _split_slowly(payload: bytes) -> Split:
    """For layouts that only the general decoder knows: the sections are encoded anew in the usual one."""
    message = Message(payload)
    message.check_sections()
    header = encode_section("header", message.header) if message.after_header_offset else None
    maps = [
        None if found is None else encode_value(found)
        for found in (
            message.delivery_annotations,
            message.message_annotations,
            message.application_properties,
        )
    ]
    properties = message.properties
    code = 0
    body: Any = None
    for section in message.body_sections():
        if isinstance(section, AmqpValue):
            code, body = VALUE_CODE, encode_value(section.value)
        elif isinstance(section, Data):
            code, body = DATA_CODE, (body or b"") + section.value
        elif isinstance(section, AmqpSequence):
            code, body = SEQUENCE_CODE, (body or []) + section.value
    return (
        header, maps[0], maps[1], None if properties is None else encode_section("properties", properties),
        maps[2], code, body, None if message.footer is None else encode_value(message.footer),
        message.after_message_annotations_offset, message.footer_offset,
    )  # fmt: skip


def stamp_of(annotations: bytes | None) -> tuple[int, int]:
    """Offset and time (ms since the epoch) that the broker wrote. Raises PipelineError where it did not."""
    found = _stamps.read(annotations)
    if found is not None:
        return found[0], found[1]
    entries = {} if annotations is None else _entries(annotations)
    try:
        return entries[OFFSET_ANNOTATION].value, entries[TIME_ANNOTATION].value
    except (KeyError, AttributeError):
        raise PipelineError(
            f"expected the message annotations {OFFSET_ANNOTATION} and {TIME_ANNOTATION}, but the broker "
            "sent a message without them: it is not one that retains (amqp-broker does)"
        ) from None


class Messages:
    """Some messages of one address, taken apart once; `offsets` and `times_ms` are those that the broker
    wrote.

    Raises DecodeError for a message whose sections are not whole, PipelineError where the broker wrote none.
    """

    __slots__ = ("address", "offsets", "others", "partition", "payloads", "splits", "times_ms")

    def __init__(self, address: str, payloads: list[bytes], partition: int = 0) -> None:
        self.address = address
        self.partition = partition
        self.payloads = payloads
        self.splits: list[Split] = [
            sections or _split_slowly(payload)
            for payload, sections in zip(payloads, split_many(payloads), strict=True)
        ]
        annotations = [sections[2] for sections in self.splits]
        stamps = _read_stamps(annotations)
        if stamps is None:
            pairs = [stamp_of(each) for each in annotations]
            stamps = [offset for offset, _ in pairs], [time_ms for _, time_ms in pairs], [True] * len(pairs)
        self.offsets, self.times_ms, self.others = stamps

    def __len__(self) -> int:
        return len(self.payloads)

    def extend(self, more: Messages) -> None:
        """Append other messages."""
        self.payloads += more.payloads
        self.splits += more.splits
        self.offsets += more.offsets
        self.times_ms += more.times_ms
        self.others += more.others

    def decoded(
        self, column: str, decode: Callable[[Any], Any], parts: Any, rows: Sequence[int] | None = None
    ) -> list[Any]:
        """`decode` of each part that is not None; `rows` says of which messages they are, if not of all.
        Raises PipelineError, which says at which offset.
        """
        try:
            return [None if part is None else decode(part) for part in parts]
        except DecodeError:
            pass
        offsets = self.offsets if rows is None else [self.offsets[row] for row in rows]
        for offset, part in zip(offsets, parts, strict=True):
            if part is not None:
                try:
                    decode(part)
                except DecodeError as error:
                    raise PipelineError(
                        f"the message at offset {offset} of {self.address!r} has a malformed section for the "
                        f"column {column}: {error.description}. Its sender has to be mended; to go on "
                        "without this column, leave its section out of the option includeSections "
                        "(includeRaw has all octets)"
                    ) from None
        raise AssertionError("one of the parts was malformed")


def header_fields(section: bytes) -> tuple[Any, ...]:
    """durable, priority, ttl, first_acquirer, delivery_count."""
    header = Message(section).header
    return header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count


def id_columns(values: Sequence[Any]) -> tuple[Any, list[str | None]]:
    """Ids as texts, and of which type each was (3.2.11 to 3.2.14)."""
    if set(map(type, values)) <= _TEXTS:
        return values, [None if value is None else "string" for value in values]
    pairs = [_id(value) for value in values]
    return [text for text, _ in pairs], [kind for _, kind in pairs]


def texts(values: Sequence[Any]) -> Any:
    """Addresses as texts."""
    return values if set(map(type, values)) <= _TEXTS else [_text(value) for value in values]


def times(values: Sequence[int | None]) -> list[int | None]:
    """Times that fit into Spark's."""
    return [None if value is None else max(-TIME_MAX_MS, min(TIME_MAX_MS, value)) for value in values]


_TEXTS: Final = {str, type(None)}


def _id(value: Any) -> tuple[str | None, str | None]:
    """A message-id as text, and of which type it was (3.2.11 to 3.2.14)."""
    if value is None:
        return None, None
    if isinstance(value, str):
        return value, "string"
    if isinstance(value, bytes):
        return value.hex(), "binary"
    return str(value), "uuid" if isinstance(value, uuid.UUID) else "ulong"


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(inner(value))


TIME_MAX_MS: Final = (1 << 63) // 1_000 - 1
"""Later times do not fit into Spark's microseconds; they become this one."""


def _entries(encoded: bytes) -> dict[str, Any]:
    """A map by the names of its keys. Raises DecodeError."""
    flat = read_flat_map(encoded)
    if flat is not None:
        return flat
    found, _ = decode_value(encoded, 0, NODES_MAX)
    assert isinstance(found, dict), "the section's constructor was looked at"
    return {key_of(key): value for key, value in found.items()}


def map_variants(encoded: bytes) -> list[tuple[str, bytes, bytes]]:
    """Key, value octets and metadata of each entry of a map, for VARIANT values."""
    entries = []
    for key, value in _entries(encoded).items():
        scalar = scalar_variant(value)
        if scalar is not None:
            entries.append((key, scalar, EMPTY_METADATA))
        else:
            entries.append((key, *variant_of(value)))
    return entries


def map_texts(encoded: bytes) -> list[tuple[str, str]]:
    """Key and JSON of each entry of a map."""
    return [(key, json_of(value)) for key, value in _entries(encoded).items()]


def without_stamp(encoded: bytes) -> bytes | None:
    """Message annotations without what the broker added; None where nothing is left."""
    found = _stamps.read(encoded)
    if found is not None and not found[2]:
        return None
    kept, _ = decode_value(encoded, 0, NODES_MAX)
    assert isinstance(kept, dict), "the section's constructor was looked at"
    left = {
        key: value for key, value in kept.items() if key_of(key) not in (OFFSET_ANNOTATION, TIME_ANNOTATION)
    }
    return encode_value(left) if left else None


def body_value(code: int, body: Any) -> Any:
    """What the column body_value holds; None for bodies of data and none at all."""
    if code == VALUE_CODE:
        return decode_value(body, 0, len(body) + NODES_MAX)[0]
    return body if code == SEQUENCE_CODE else None


def body_variant(code: int, body: Any) -> Variant:
    """The value of a body that is not data."""
    if code == VALUE_CODE:
        flat = read_flat_map(body)
        if flat is not None:
            return variant_of(flat)
    return variant_of(body_value(code, body))


def seq_fields(annotations: bytes | None, properties: bytes | None) -> tuple[Any, ...] | None:
    """stream, id, no, prev: the place in a sequence, by annotations or application properties."""
    in_properties = properties is not None and b"seq_" in properties
    in_annotations = annotations is not None and b"x-opt-seq-" in annotations
    if not (in_properties or in_annotations):
        return None
    found: dict[str, Any] = {}
    if properties is not None and in_properties:
        entries = _entries(properties)
        found = {name: entries.get(f"seq_{name}") for name in _SEQ_FIELDS}
    if annotations is not None and in_annotations:
        entries = _entries(annotations)
        found |= {
            name: entries[f"x-opt-seq-{name}"] for name in _SEQ_FIELDS if f"x-opt-seq-{name}" in entries
        }
    stream, *numbers = (inner(found.get(name)) for name in _SEQ_FIELDS)
    if not isinstance(stream, str):
        return None
    return stream, *(number if isinstance(number, int) else None for number in numbers)


def txn_fields(annotations: bytes | None) -> tuple[Any, ...] | None:
    """half_id, group, set_id, epoch: by which transaction the message came, as far as its annotations say."""
    if annotations is None or b"x-opt-half-" not in annotations:
        return None
    entries = _entries(annotations)
    half_id, group, set_id, epoch = (inner(entries.get(f"x-opt-half-{name}")) for name in _TXN_FIELDS)
    shown = (None if value is None else _id(value)[0] for value in (half_id, group, set_id))
    return *shown, epoch if isinstance(epoch, int) else None


_SEQ_FIELDS: Final = ("stream", "id", "no", "prev")
_TXN_FIELDS: Final = ("id", "group", "set", "epoch")


def json_of(value: Any) -> str:
    """A value as JSON: binaries in base64, times in ISO 8601, ids as text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return _iso(value.value)
    value = inner(value)
    if isinstance(value, dict):
        return {key_of(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, uuid.UUID):
        return str(value)
    return getattr(value, "value", value)


def _iso(time_ms: int) -> str | int:
    from datetime import UTC, datetime, timedelta

    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()
    except OverflowError:
        return time_ms
