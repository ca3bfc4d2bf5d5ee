"""The broker's events as Arrow record batches, straight from the bodies of the messages of `$events`."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from amqp_broker.frames import DecodeError, decode_value
from amqp_broker.frames.columns import VALUE_CODE
from amqp_broker.frames.flat_maps import read_entries
from amqp_broker.pipeline.arrow_rows import times
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.rows import NODES_MAX, Messages
from amqp_broker.pipeline.variants import inner, key_of

LSN: Final = "lsn"
TIME: Final = "time"
# The place and the time of an event are those that each message of a retaining node has.
_FIELDS: Final = {name.encode("ascii"): name for name, _ in EVENT_COLUMNS if name not in (LSN, TIME)}


class EventBatches:
    """Makes record batches of the events' schema; as RowBatches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def batch(self, messages: Messages) -> pa.RecordBatch:
        """The rows of these messages, of which there is at least one."""
        events = [
            _fields(sections[5], sections[6], offset)
            for sections, offset in zip(messages.splits, messages.offsets, strict=True)
        ]
        arrays = []
        for field in self._schema:
            if field.name == LSN:
                arrays.append(pa.array(messages.offsets, field.type))
            elif field.name == TIME:
                arrays.append(times(messages.times_ms, field.type))
            else:
                arrays.append(_column(field, events))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _fields(code: int, body: Any, offset: int) -> dict[str, Any]:
    if code == VALUE_CODE:
        found = read_entries(body, 0, len(body), False, _FIELDS)
        if found is not None:
            return found
        try:
            value, _ = decode_value(body, 0, NODES_MAX)
        except DecodeError:
            value = None
        if isinstance(value, dict):
            return {key_of(key): inner(item) for key, item in value.items()}
    raise PipelineError(
        f"expected an event as a map at offset {offset} of the log, found another body: the option "
        "isolation=events reads $events of an amqp-broker only"
    )


def _column(field: pa.Field, events: list[dict[str, Any]]) -> pa.Array:
    name = field.name
    values = [event.get(name) for event in events]
    if pa.types.is_string(field.type):
        values = [value if value is None or type(value) is str else str(value) for value in values]
    return pa.array(values, field.type)
