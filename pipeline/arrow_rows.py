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

from amqp_broker.pipeline.rows import (
    BODY_TYPES,
    DATA_CODE,
    Split,
    body_value,
    body_variant,
    decode_each,
    header_fields,
    json_of,
    map_texts,
    map_variants,
    property_fields,
    seq_fields,
    split,
    stamp_of,
    txn_fields,
    without_stamp,
)

MAX_MEMO_ENTRIES: Final = 1_024  # different headers of one reader that are kept decoded
_DECIMAL: Final = decimal.Decimal


class RowBatches:
    """Makes record batches of one schema from the messages of one address. `schema` is Arrow's, as Spark
    makes it of ours: names say what each column is.
    """

    def __init__(self, schema: pa.Schema, address: str) -> None:
        self._schema = schema
        self._address = address
        self._headers: dict[bytes, tuple[Any, ...]] = {}
        self._makers: list[tuple[pa.Field, Callable[[pa.Field, _Batch], pa.Array]]] = [
            (field, _MAKERS[field.name]) for field in schema
        ]

    def batch(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """The rows of these messages, of which there is at least one."""
        messages = _Batch(self._address, payloads, self._headers)
        arrays = [make(field, messages) for field, make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Batch:
    """The messages of one batch, section by section."""

    def __init__(
        self, address: str, payloads: Sequence[bytes], headers: dict[bytes, tuple[Any, ...]]
    ) -> None:
        self.address = address
        self.payloads = payloads
        self.known_headers = headers
        splits: list[Split] = [split(payload) for payload in payloads]
        (
            self.headers, self.delivery_annotations, self.message_annotations, self.properties,
            self.application_properties, self.body_codes, self.bodies, self.footers, self.bare_at,
            self.bare_end,
        ) = zip(*splits, strict=True)  # fmt: skip
        stamps = [stamp_of(annotations) for annotations in self.message_annotations]
        self.offsets = [offset for offset, _ in stamps]
        self.times_ms = [time_ms for _, time_ms in stamps]

    def __len__(self) -> int:
        return len(self.payloads)

    def decoded(self, column: str, decode: Callable[[Any], Any], parts: Any) -> list[Any]:
        """Each part decoded; an error says at which offset."""
        return decode_each(column, self.address, self.offsets, decode, parts)


def times(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Milliseconds as Spark's timestamps."""
    return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(kind)


def _address(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.repeat(pa.scalar(batch.address, field.type), len(batch))


def _partition(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.repeat(pa.scalar(0, field.type), len(batch))


def _offset(field: pa.Field, batch: _Batch) -> pa.Array:
    return pa.array(batch.offsets, field.type)


def _enqueued_at(field: pa.Field, batch: _Batch) -> pa.Array:
    return times(batch.times_ms, field.type)


def _header(field: pa.Field, batch: _Batch) -> pa.Array:
    """Headers repeat: each is decoded once, and the rows take them by number."""
    known = batch.known_headers
    numbers: dict[bytes | None, int | None] = {None: None}
    distinct: list[tuple[Any, ...]] = []
    for section in set(batch.headers) - {None}:
        if section not in known:
            if len(known) >= MAX_MEMO_ENTRIES:
                known.clear()
            known[section] = batch.decoded("header", header_fields, [section] * len(batch))[0]
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
    return _struct(field.type, batch.decoded("properties", property_fields, batch.properties))


def _seq(field: pa.Field, batch: _Batch) -> pa.Array:
    pairs = zip(batch.message_annotations, batch.application_properties, strict=True)
    return _struct(field.type, batch.decoded("seq", lambda pair: seq_fields(*pair), pairs))


def _txn(field: pa.Field, batch: _Batch) -> pa.Array:
    return _struct(field.type, batch.decoded("txn", txn_fields, batch.message_annotations))


def _map(field: pa.Field, batch: _Batch, parts: Sequence[bytes | None]) -> pa.Array:
    if not any(part is not None for part in parts):
        return pa.nulls(len(parts), field.type)
    kind = field.type
    as_variants = pa.types.is_struct(kind.item_type)
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


def _variants(kind: pa.StructType, values: list[bytes], metadata: list[bytes], mask: Any) -> pa.Array:
    arrays = [pa.array(values, pa.binary()), pa.array(metadata, pa.binary())]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def _delivery_annotations(field: pa.Field, batch: _Batch) -> pa.Array:
    return _map(field, batch, batch.delivery_annotations)


def _message_annotations(field: pa.Field, batch: _Batch) -> pa.Array:
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
    bounds = zip(batch.payloads, batch.bare_at, batch.bare_end, strict=True)
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
