"""Rows a second of the Spark source for one executor core, against a real broker process.

    python -m tests.benchmarks.pipeline_source [--messages N] [--no-spark]

    decode     encoded messages to Arrow record batches, all 15 columns
    body       the same, but only the body and its place (includeSections=body)
    place      only address, offset and time (includeSections=none)
    receive    a range over the wire, without making rows of it
    read       receive and decode, what a task does
    spark      count() of a batch with one task at a time, the JVM and the pipes included

CPU is that of this process (its client and its decoder), so that a busy machine does not change it much.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amqp_broker.client import connect, message
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.offsets import Range
from amqp_broker.pipeline.options import read_options
from amqp_broker.pipeline.retained_client import RangeReader, RetainedClient
from amqp_broker.pipeline.rows import Messages
from amqp_broker.pipeline.session import spark_session
from tests.benchmarks.harness import options, told
from tests.pipeline.spark.pipeline_broker import PipelineBroker

ADDRESS = "in.benchmark"


def order(number: int) -> Any:
    """What a shop would send: an id, a subject, three application properties, 120 octets of body."""
    return message(
        b"x" * 120,
        message_id=f"order-{number}",
        subject="order",
        content_type="application/octet-stream",
        application_properties={"region": "north", "customer": number % 1_000, "amount": 12.5},
    )


def main() -> None:
    """Measures all."""
    arguments = options(__doc__, messages=200_000, no_spark=False)
    count = arguments.messages
    spark = spark_session("benchmark", cores=1, settings={"spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory() as folder:
        broker = PipelineBroker(Path(folder))
        try:
            with connect(broker.url) as connection:
                sender = connection.open_sender(ADDRESS)
                told("send", count, lambda: sender.send_many(map(order, range(count)), window=2_000))
            measure(spark, broker.url, count, arguments.no_spark)
        finally:
            broker.process.terminate()
            broker.process.wait()
            spark.stop()


def measure(spark: Any, url: str, count: int, no_spark: bool) -> None:
    """Each step, on messages 0 to `count`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from amqp_broker.pipeline.arrow_rows import RowBatches
    from amqp_broker.pipeline.source import GC_OBJECTS

    gc.set_threshold(GC_OBJECTS)  # as in a worker

    def frame(**options: str) -> Any:
        reader = spark.read.format("amqp").option("amqp.url", url).option("subscribe", ADDRESS)
        return reader.options(**options).load()

    options = read_options({"amqp.url": url, "subscribe": ADDRESS}, "source")
    log = RetainedClient(options.broker).describe().store_id
    whole = to_arrow_schema(frame().schema, timezone="UTC")
    body = to_arrow_schema(frame(includeSections="body").schema, timezone="UTC")
    place = to_arrow_schema(frame(includeSections="none").schema, timezone="UTC")

    def receive() -> Iterator[Messages]:
        return RangeReader(connection_to(options.broker), Range(ADDRESS, 0, count), log, 60).batches()

    payloads = [payload for batch in receive() for payload in batch.payloads]
    chunks = [payloads[at : at + 4_096] for at in range(0, count, 4_096)]
    told("decode", count, lambda: [RowBatches(whole).batch(Messages(ADDRESS, chunk)) for chunk in chunks])
    told("body", count, lambda: [RowBatches(body).batch(Messages(ADDRESS, chunk)) for chunk in chunks])
    told("place", count, lambda: [RowBatches(place).batch(Messages(ADDRESS, chunk)) for chunk in chunks])
    told("receive", count, lambda: sum(len(batch) for batch in receive()))
    batches = RowBatches(whole)
    told("read", count, lambda: [batches.batch(batch) for batch in receive()])
    if not no_spark:
        told("spark", count, lambda: frame().selectExpr("count(offset)", "max(body)").collect())
        told("spark", count, lambda: frame().selectExpr("count(offset)", "max(body)").collect())


if __name__ == "__main__":
    main()
