"""What a worker of Spark does for one task: read a range, and make record batches of it.

Imports pyspark. The partitions are pickled: connections are made where they are needed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.errors import BrokerRefused, BrokerUnreachable, OffsetError, SchemaError
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.offsets import Range
from amqp_broker.pipeline.options import Options
from amqp_broker.pipeline.planning import tell_loss
from amqp_broker.pipeline.range_reader import Dropped, RangeReader
from amqp_broker.pipeline.retained_client import RETRY_S
from amqp_broker.pipeline.rows import Messages, columns_of, ddl_of

BATCH_ROWS: Final = 4_096
BATCH_BYTES: Final = 8 * 1_048_576
"""A record batch is full with so many rows or octets, whichever comes first."""
GC_OBJECTS: Final = 100_000


def columns(options: Options) -> tuple[tuple[str, str], ...]:
    """Name and Spark type of each column that these options make."""
    if options["isolation"] == "events":
        return EVENT_COLUMNS
    return columns_of(options["includeSections"], options["includeRaw"], options["valueFormat"])


def schema_of(options: Options) -> str:
    """The columns that these options make, as a schema."""
    return ddl_of(columns(options))


def check_schema(options: Options, schema: StructType) -> None:
    """Raises SchemaError for a column of the user's schema that there is not, or not of that type."""
    known = {name: kind.replace("`", "") for name, kind in columns(options)}
    for field in schema:
        expected = known.get(field.name)
        if expected is None:
            raise SchemaError(
                f"unknown column {field.name!r} in the schema: there are {', '.join(known)} (by the options "
                "includeSections and includeRaw)"
            )
        if field.dataType.simpleString() != expected:
            raise SchemaError(
                f"column {field.name!r} of the schema: expected {expected}, found "
                f"{field.dataType.simpleString()}"
            )


class AmqpRange(InputPartition):
    """One task: a range of one address at one broker, in the store `log`."""

    def __init__(self, wanted: Range, log: str) -> None:
        super().__init__(None)
        self.address = wanted.address
        self.low = wanted.low
        self.high = wanted.high
        self.broker = wanted.partition
        self.log = log

    @property
    def wanted(self) -> Range:
        """The range."""
        return Range(self.address, self.low, self.high, self.broker)


def read_range(options: Options, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """The record batches of one task. Runs in a worker."""
    if not isinstance(partition, AmqpRange):
        return  # nothing to read: Spark made one partition up
    from pyspark.sql.pandas.types import to_arrow_schema

    from amqp_broker.pipeline.arrow_rows import RowBatches
    from amqp_broker.pipeline.event_rows import EventBatches

    # Messages make many small objects and no cycles: looking for some takes a tenth of the time.
    gc.set_threshold(GC_OBJECTS)
    kind = EventBatches if options["isolation"] == "events" else RowBatches
    batches = kind(to_arrow_schema(schema, timezone="UTC"))
    for messages in _gathered(_messages(options, partition)):
        yield batches.batch(messages)


def _gathered(batches: Iterator[Messages]) -> Iterator[Messages]:
    """More of the same messages at a time: a record batch costs something however small it is."""
    gathered = None
    octets = 0
    for messages in batches:
        octets += sum(map(len, messages.payloads))
        if gathered is None:
            gathered = messages
        else:
            gathered.extend(messages)
        if len(gathered) >= BATCH_ROWS or octets >= BATCH_BYTES:
            yield gathered
            gathered, octets = None, 0
    if gathered is not None:
        yield gathered


def _messages(options: Options, partition: AmqpRange) -> Iterator[Messages]:
    """All messages of the range, over a new connection where one breaks, and past what is lost where the
    option failOnDataLoss allows it.
    """
    wanted = partition.wanted
    broker = options.brokers[wanted.partition]
    patience_s = broker.timeout_ms / 1_000
    deadline = None
    while len(wanted):
        position = wanted.low
        try:
            reader = RangeReader(connection_to(broker), wanted, partition.log, patience_s)
            for messages in reader.batches():
                position = reader.position
                deadline = time.monotonic() + patience_s
                yield messages
            return
        except Dropped as lost:
            if options["failOnDataLoss"] or lost.first is None or lost.first <= lost.position:
                raise
            position = min(lost.first, wanted.high)
            tell_loss(Range(wanted.address, lost.position, position, wanted.partition))
        except (BrokerUnreachable, BrokerRefused, OffsetError) as error:
            # Only where it was reached before: a wrong URL is told at once.
            again = isinstance(error, BrokerUnreachable) and deadline is not None
            if not again or deadline is None or time.monotonic() > deadline:
                if len(options.brokers) > 1:
                    error.args = (f"the broker at {broker}: {error}",)
                raise
            time.sleep(RETRY_S)
        wanted = attrs.evolve(wanted, low=position)
