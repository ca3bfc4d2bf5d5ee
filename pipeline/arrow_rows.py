"""Messages as Arrow record batches: a builder for each column, which is given the sections of all messages.

Everything that can be said once for a batch is: an address is one value repeated, equal headers are decoded
once and taken by number, columns without a single value are one array of nulls. Imports pyarrow: only for
what runs with Spark.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from amqp_broker.frames import DecodeError, extend_from_map, read_properties
from amqp_broker.pipeline.rows import (
    BODY_TYPES,
    DATA_CODE,
    Messages,
    body_value,
    body_variant,
    header_fields,
    id_columns,
    json_of,
    map_texts,
    map_variants,
    seq_fields,
    texts,
    txn_fields,
    without_stamp,
)
from amqp_broker.pipeline.rows import times as clamped
from amqp_broker.pipeline.variants import EMPTY_METADATA, scalar_variants

PROPERTY_NAMES: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip
_NO_PROPERTIES: Final = (None,) * len(PROPERTY_NAMES)
MAX_MEMO_ENTRIES: Final = 1_024  # different headers of one reader that are kept decoded
_DECIMAL: Final = decimal.Decimal


class RowBatches:
    """Makes record batches of one schema. `schema` is Arrow's, as Spark makes it of ours: names say what each
    column is.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._headers: dict[bytes, tuple[Any, ...]] = {}
        self._makers: list[tuple[pa.Field, Callable[[pa.Field, _Batch], pa.Array]]] = [
            (field, _MAKERS[field.name]) for field in schema
        ]

    def batch(self, messages: Messages) -> pa.RecordBatch:
        """The rows of these messages, of which there is at least one."""
        sections = _Batch(messages, self._headers)
        arrays = [make(field, sections) for field, make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Batch:
    """The messages of one batch, section by section."""

    def __init__(self, messages: Messages, headers: dict[bytes, tuple[Any, ...]]) -> None:
        self.messages = messages
        self.decoded = messages.decoded
        self.known_headers = headers
        (
            self.headers, self.delivery_annotations, self.message_annotations, self.properties,
            self.application_properties, self.body_codes, self.bodies, self.footers, self.bare_at,
            self.bare_end,
        ) = zip(*messages.splits, strict=True)  # fmt: skip

    def __len__(self) -> int:
        return len(self.messages)


def times(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Milliseconds as Spark's timestamps."""
    return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(kind)


def _address(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.repeat(pa.scalar(batch.messages.address, field.type), len(batch))


def _partition(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.repeat(pa.scalar(batch.messages.partition, field.type), len(batch))


def _offset(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.array(batch.messages.offsets, field.type)


def _enqueued_at(field: pa.Field, batch: _Batch) -> pa.Array:
    return times(batch.messages.times_ms, field.type)


def _header(field: pa.Field, batch: _Batch) -> pa.Array:
    """Headers repeat: each is decoded once, and the rows take them by number."""
    known = batch.known_headers
    numbers: dict[bytes | None, int | None] = {None: None}
    distinct: list[tuple[Any, ...]] = []
    for section in set(batch.headers) - {None}:
        if section not in known:
            if len(known) >= MAX_MEMO_ENTRIES:
                known.clear()
            try:
                known[section] = header_fields(section)
            except DecodeError:
                batch.decoded("header", header_fields, batch.headers)  # which says where
                raise
        numbers[section] = len(distinct)
        distinct.append(known[section])
    if not distinct:
        return pa.nulls(len(batch), field.type)
    values = _struct(field.type, distinct)
    return values.take(pa.array([numbers[section] for section in batch.headers], pa.int32()))


def _struct(kind: pa.StructType, rows: Sequence[tuple[Any, ...] | None]) -> pa.Array:
    """A struct column from tuples in the order of its fields; None is a null."""
    if not any(row is not None for row in rows):
        return pa.nulls(len(rows), kind)
    absent = (None,) * kind.num_fields
    columns = zip(*(absent if row is None else row for row in rows), strict=True)
    fields = list(kind)
    arrays = [_plain(values, field.type) for values, field in zip(columns, fields, strict=True)]
    mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return times(values, kind)
    if pa.types.is_decimal(kind):
        values = [None if value is None else _DECIMAL(value) for value in values]
    return pa.array(values, kind)


def _properties(field: pa.Field, batch: _Batch) -> pa.Array:
    rows = batch.decoded("properties", read_properties, batch.properties)
    count = len(rows)
    absent = rows.count(None)
    if absent == count:
        return pa.nulls(count, field.type)
    columns = list(zip(*(_NO_PROPERTIES if row is None else row for row in rows), strict=True))
    ids = {name: id_columns(columns[at]) for name, at in (("message_id", 0), ("correlation_id", 5))}
    values: dict[str, Sequence[Any]] = {
        name: columns[at] for at, name in enumerate(PROPERTY_NAMES) if columns[at].count(None) < count
    }
    for name, (found, kinds) in ids.items():
        if name in values:
            values[name], values[f"{name}_type"] = found, kinds
    for name in ("to", "reply_to"):
        if name in values:
            values[name] = texts(values[name])
    for name in ("absolute_expiry_time", "creation_time"):
        if name in values:
            values[name] = clamped(values[name])
    fields = list(field.type)
    arrays = [
        _plain(values[each.name], each.type) if each.name in values else pa.nulls(count, each.type)
        for each in fields
    ]
    mask = pa.array([row is None for row in rows], pa.bool_()) if absent else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _seq(field: pa.Field, batch: _Batch) -> pa.Array:
    others = any(batch.messages.others)
    if not others and not any(part is not None and b"seq_" in part for part in batch.application_properties):
        return pa.nulls(len(batch), field.type)
    pairs = zip(batch.message_annotations, batch.application_properties, strict=True)
    return _struct(field.type, batch.decoded("seq", lambda pair: seq_fields(*pair), list(pairs)))


def _txn(field: pa.Field, batch: _Batch) -> pa.Array:
    if not any(batch.messages.others):
        return pa.nulls(len(batch), field.type)
    return _struct(field.type, batch.decoded("txn", txn_fields, batch.message_annotations))


def _map(field: pa.Field, batch: _Batch, parts: Sequence[bytes | None]) -> pa.Array:
    if not any(part is not None for part in parts):
        return pa.nulls(len(parts), field.type)
    kind = field.type
    as_variants = pa.types.is_struct(kind.item_type)
    flat = _flat_map(kind, parts) if as_variants else None
    if flat is not None:
        return flat
    rows = batch.decoded(field.name, map_variants if as_variants else map_texts, parts)
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + (0 if row is None else len(row)))
    entries = [entry for row in rows if row is not None for entry in row]
    keys = pa.array([entry[0] for entry in entries], kind.key_type)
    if as_variants:
        values = _variants(
            kind.item_type, [entry[1] for entry in entries], [entry[2] for entry in entries], None
        )
    else:
        values = pa.array([entry[1] for entry in entries], kind.item_type)
    mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values, type=kind, mask=mask)


def _flat_map(kind: pa.MapType, parts: Sequence[bytes | None]) -> pa.Array | None:
    """Maps of scalars only; None where one is not."""
    keys: list[str] = []
    values: list[Any] = []
    offsets = [0]
    for part in parts:
        if part is not None and extend_from_map(part, keys, values) < 0:
            return None
        offsets.append(len(keys))
    octets = pa.array(scalar_variants(values), pa.binary())
    metadata = pa.repeat(pa.scalar(EMPTY_METADATA, pa.binary()), len(values))
    items = pa.StructArray.from_arrays([octets, metadata], fields=list(kind.item_type))
    names = pa.array(keys, kind.key_type)
    mask = pa.array([part is None for part in parts], pa.bool_()) if None in parts else None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, items, type=kind, mask=mask)


def _variants(kind: pa.StructType, values: list[bytes], metadata: list[bytes], mask: Any) -> pa.Array:
    arrays = [pa.array(values, pa.binary()), pa.array(metadata, pa.binary())]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def _delivery_annotations(field: pa.Field, batch: _Batch) -> pa.Array:
    return _map(field, batch, batch.delivery_annotations)


def _message_annotations(field: pa.Field, batch: _Batch) -> pa.Array:
    if not any(batch.messages.others):
        return pa.nulls(len(batch), field.type)
    return _map(field, batch, batch.decoded(field.name, without_stamp, batch.message_annotations))


def _application_properties(field: pa.Field, batch: _Batch) -> pa.Array:
    return _map(field, batch, batch.application_properties)


def _footer(field: pa.Field, batch: _Batch) -> pa.Array:
    return _map(field, batch, batch.footers)


def _body_type(field: pa.Field, batch: _Batch) -> pa.Array:
    codes = set(batch.body_codes)
    if len(codes) == 1:
        return pa.repeat(pa.scalar(BODY_TYPES[codes.pop()], field.type), len(batch))
    return pa.array([BODY_TYPES[code] for code in batch.body_codes], field.type)


def _body(field: pa.Field, batch: _Batch) -> pa.Array:
    octets = [
        body if code == DATA_CODE else None for code, body in zip(batch.body_codes, batch.bodies, strict=True)
    ]
    return pa.array(octets, field.type)


def _body_value(field: pa.Field, batch: _Batch) -> pa.Array:
    pairs = [
        None if code in (0, DATA_CODE) else (code, body)
        for code, body in zip(batch.body_codes, batch.bodies, strict=True)
    ]
    if not any(pairs):
        return pa.nulls(len(batch), field.type)
    if not pa.types.is_struct(field.type):
        return pa.array(batch.decoded(field.name, lambda pair: json_of(body_value(*pair)), pairs), field.type)
    rows = batch.decoded(field.name, lambda pair: body_variant(*pair), pairs)
    mask = pa.array([row is None for row in rows], pa.bool_())
    filled = [row or (b"", b"") for row in rows]
    return _variants(field.type, [row[0] for row in filled], [row[1] for row in filled], mask)


def _raw(field: pa.Field, batch: _Batch) -> pa.Array:
    bounds = zip(batch.messages.payloads, batch.bare_at, batch.bare_end, strict=True)
    return pa.array([payload[at:end] for payload, at, end in bounds], field.type)


_MAKERS: Final[dict[str, Callable[[pa.Field, _Batch], pa.Array]]] = {
    "address": _address,
    "partition": _partition,
    "offset": _offset,
    "enqueued_at": _enqueued_at,
    "header": _header,
    "delivery_annotations": _delivery_annotations,
    "message_annotations": _message_annotations,
    "properties": _properties,
    "application_properties": _application_properties,
    "body_type": _body_type,
    "body": _body,
    "body_value": _body_value,
    "footer": _footer,
    "raw": _raw,
    "txn": _txn,
    "seq": _seq,
}
