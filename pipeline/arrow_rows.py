"""Messages as Arrow record batches: a builder for each column, which is given the sections of all messages.

Everything that can be said once for a batch is: an address is one value repeated, equal headers are decoded
once and taken by number, columns without a single value are one array of nulls. Imports pyarrow: only for
what runs with Spark.
"""

from __future__ import annotations

import decimal
import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from amqp_broker.frames import DecodeError
from amqp_broker.frames.columns import DATA_CODE, ColumnGroup, lay_out, properties_layout
from amqp_broker.frames.message_parts import read_properties
from amqp_broker.pipeline.arrow_maps import Entries, variants
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.packed_variants import variants_layout
from amqp_broker.pipeline.rows import (
    BODY_TYPES,
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

PROPERTY_NAMES: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip
SAMPLE_ROWS: Final = 64
REPEATS_MIN: Final = 4
"""Sections are looked up where each comes so often: among the first SAMPLE_ROWS, and then among all."""
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


def _repeated(
    field: pa.Field, batch: _Batch, parts: Sequence[bytes | None], make: Callable[..., pa.Array]
) -> pa.Array:
    """The column of `make` from all parts. Where most are like others, each is decoded once."""
    if len(set(parts[:SAMPLE_ROWS])) * REPEATS_MIN <= len(parts[:SAMPLE_ROWS]):
        numbers = {part: number for number, part in enumerate(dict.fromkeys(parts))}
        if len(numbers) * REPEATS_MIN <= len(parts):
            try:
                values = make(field, batch, list(numbers))
            except PipelineError:
                pass  # the whole says of which message it is
            else:
                return values.take(pa.array(list(map(numbers.__getitem__, parts)), pa.int32()))
    return make(field, batch, parts)


def _in_order(found: pa.Array, rows: Sequence[int]) -> pa.Array:
    """An array whose values are those of `rows`, in the order of the rows."""
    if isinstance(rows, range):
        return found
    places = array("i", bytes(4 * len(rows)))
    for place, row in enumerate(rows):
        places[row] = place
    return found.take(pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(places)]))


def _all_rows(groups: Sequence[ColumnGroup], left: Sequence[int], absent: Sequence[int]) -> Sequence[int]:
    if len(groups) == 1 and not left and not absent:
        return groups[0].rows
    return list(itertools.chain(*(group.rows for group in groups), left, absent))


def _properties(field: pa.Field, batch: _Batch) -> pa.Array:
    if not any(batch.properties):
        return pa.nulls(len(batch), field.type)
    return _repeated(field, batch, batch.properties, _properties_of)


def _properties_of(field: pa.Field, batch: _Batch, parts: Sequence[bytes | None]) -> pa.Array:
    """Group by group, and what is in none row by row."""
    groups, left = lay_out(parts, properties_layout)
    absent = [row for row, part in enumerate(parts) if part is None] if None in parts else []
    found = [(len(group.rows), _group_values(group)) for group in groups]
    rows = batch.decoded("properties", read_properties, [parts[row] for row in left], left)
    if rows:
        found.append((len(rows), _row_values(rows)))
    if absent:
        found.append((len(absent), {}))
    values: dict[str, Sequence[Any]] = {}
    for name in {name for _, each in found for name in each}:
        columns = [each.get(name) or (None,) * count for count, each in found]
        values[name] = columns[0] if len(columns) == 1 else list(itertools.chain(*columns))
    for name in ("absolute_expiry_time", "creation_time"):
        if name in values:
            values[name] = clamped(values[name])
    fields = list(field.type)
    arrays = [
        _plain(values[each.name], each.type) if each.name in values else pa.nulls(len(parts), each.type)
        for each in fields
    ]
    mask = None
    if absent:
        mask = pa.array([False] * (len(parts) - len(absent)) + [True] * len(absent), pa.bool_())
    return _in_order(
        pa.StructArray.from_arrays(arrays, fields=fields, mask=mask), _all_rows(groups, left, absent)
    )


def _group_values(group: ColumnGroup) -> dict[str, Sequence[Any]]:
    values: dict[str, Sequence[Any]] = {}
    for (name, _, _), column in zip(group.layout.values, group.columns, strict=True):
        plain, _, kind = name.partition(":")
        values[plain] = column
        if plain in ("message_id", "correlation_id"):
            values[f"{plain}_type"] = (kind or "string",) * len(column)
    return values


def _row_values(rows: list[Any]) -> dict[str, Sequence[Any]]:
    """The columns of the properties, by name, from rows with 13 fields each."""
    columns = dict(zip(PROPERTY_NAMES, zip(*rows, strict=True), strict=True))
    values: dict[str, Sequence[Any]] = {
        name: column for name, column in columns.items() if column.count(None) < len(rows)
    }
    for name in ("message_id", "correlation_id"):
        if name in values:
            values[name], values[f"{name}_type"] = id_columns(values[name])
    for name in ("to", "reply_to"):
        if name in values:
            values[name] = texts(values[name])
    return values


def _seq(field: pa.Field, batch: _Batch) -> pa.Array:
    # An octet between two of them, so that nothing is found across.
    texts_of_all = b" ".join(filter(None, batch.application_properties))
    if b"seq_" not in texts_of_all and not any(batch.messages.others):
        return pa.nulls(len(batch), field.type)
    pairs = zip(batch.message_annotations, batch.application_properties, strict=True)
    return _struct(field.type, batch.decoded("seq", lambda pair: seq_fields(*pair), list(pairs)))


def _txn(field: pa.Field, batch: _Batch) -> pa.Array:
    if not any(batch.messages.others):
        return pa.nulls(len(batch), field.type)
    return _struct(field.type, batch.decoded("txn", txn_fields, batch.message_annotations))


def _map(field: pa.Field, batch: _Batch, parts: Sequence[bytes | None]) -> pa.Array:
    if not any(parts):
        return pa.nulls(len(parts), field.type)
    return _repeated(field, batch, parts, _map_of)


def _map_of(field: pa.Field, batch: _Batch, parts: Sequence[bytes | None]) -> pa.Array:
    """Group by group, and what is in none row by row."""
    kind = field.type
    as_variants = pa.types.is_struct(kind.item_type)
    groups: list[ColumnGroup] = []
    left: Sequence[int] = [row for row, part in enumerate(parts) if part is not None]
    if as_variants:
        groups, left = lay_out(parts, variants_layout)
        left = sorted(left)
    absent = [row for row, part in enumerate(parts) if part is None] if None in parts else []
    entries = Entries(kind)
    for group in groups:
        entries.add_group(group)
    if left:
        chosen = [parts[row] for row in left]
        if not (as_variants and entries.add_flat(chosen)):
            decode = map_variants if as_variants else map_texts
            entries.add_rows(batch.decoded(field.name, decode, chosen, left))
    found = entries.maps(len(absent))
    return _in_order(found, _all_rows(groups, left, absent))


def _message_annotations(field: pa.Field, batch: _Batch) -> pa.Array:
    if not any(batch.messages.others):
        return pa.nulls(len(batch), field.type)
    return _map(field, batch, batch.decoded(field.name, without_stamp, batch.message_annotations))


def _body_type(field: pa.Field, batch: _Batch) -> pa.Array:
    codes = set(batch.body_codes)
    if len(codes) == 1:
        return pa.repeat(pa.scalar(BODY_TYPES[codes.pop()], field.type), len(batch))
    return pa.array([BODY_TYPES[code] for code in batch.body_codes], field.type)


def _body(field: pa.Field, batch: _Batch) -> pa.Array:
    if batch.body_codes.count(DATA_CODE) == len(batch):
        return pa.array(batch.bodies, field.type)
    octets = [
        body if code == DATA_CODE else None for code, body in zip(batch.body_codes, batch.bodies, strict=True)
    ]
    return pa.array(octets, field.type)


def _body_value(field: pa.Field, batch: _Batch) -> pa.Array:
    if set(batch.body_codes) <= {0, DATA_CODE}:
        return pa.nulls(len(batch), field.type)
    pairs = [
        None if code in (0, DATA_CODE) else (code, body)
        for code, body in zip(batch.body_codes, batch.bodies, strict=True)
    ]
    if not pa.types.is_struct(field.type):
        return pa.array(batch.decoded(field.name, lambda pair: json_of(body_value(*pair)), pairs), field.type)
    rows = batch.decoded(field.name, lambda pair: body_variant(*pair), pairs)
    mask = pa.array([row is None for row in rows], pa.bool_())
    filled = [row or (b"", b"") for row in rows]
    values = pa.array([row[0] for row in filled], pa.binary())
    return variants(field.type, values, [row[1] for row in filled], mask)


def _raw(field: pa.Field, batch: _Batch) -> pa.Array:
    bounds = zip(batch.messages.payloads, batch.bare_at, batch.bare_end, strict=True)
    return pa.array([payload[at:end] for payload, at, end in bounds], field.type)


_MAKERS: Final[dict[str, Callable[[pa.Field, _Batch], pa.Array]]] = {
    "address": lambda field, batch: pa.repeat(pa.scalar(batch.messages.address, field.type), len(batch)),
    "partition": lambda field, batch: pa.repeat(pa.scalar(batch.messages.partition, field.type), len(batch)),
    "offset": lambda field, batch: pa.array(batch.messages.offsets, field.type),
    "enqueued_at": lambda field, batch: times(batch.messages.times_ms, field.type),
    "header": _header,
    "delivery_annotations": lambda field, batch: _map(field, batch, batch.delivery_annotations),
    "message_annotations": _message_annotations,
    "properties": _properties,
    "application_properties": lambda field, batch: _map(field, batch, batch.application_properties),
    "body_type": _body_type,
    "body": _body,
    "body_value": _body_value,
    "footer": lambda field, batch: _map(field, batch, batch.footers),
    "raw": _raw,
    "txn": _txn,
    "seq": _seq,
}
