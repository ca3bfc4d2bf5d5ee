"""Rows a second of the Spark sink for one executor core, against a real broker process.

    python -m tests.benchmarks.pipeline_sink [--rows N] [--no-spark]

    encode     Arrow record batches to encoded messages: body, properties, three application properties
    bodies     the same with the column body alone
    send       encode and send, at least once
    stage      encode, stage and seal, exactly once: what a task does
    commit     the epoch of all these rows: one message, one commit of the store
    spark      a batch with one task at a time, the JVM, the pipes and the commit included

CPU is that of this process (its encoder and its client), so that a busy machine does not change it much.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.pipeline.epochs import Written, decide_epoch, send_all, write_sets
from amqp_broker.pipeline.messages_of_rows import RowEncoder
from amqp_broker.pipeline.session import spark_session
from amqp_broker.pipeline.set_brokers import SetBrokers
from amqp_broker.pipeline.sink import encoded_batches
from tests.benchmarks.harness import options, told
from tests.pipeline.spark.pipeline_broker import PipelineBroker

BATCH = 10_000  # rows in a record batch, Spark's default
ROWS = """
    cast(repeat('x', 120) as binary) as body,
    named_struct('message_id', concat('order-', id), 'subject', 'order') as properties,
    map('region', 'north', 'customer', cast(id % 1000 as string), 'amount', '12.5') as application_properties
"""


def main() -> None:
    """Measures all."""
    arguments = options(__doc__, rows=200_000, no_spark=False)
    spark = spark_session("benchmark", cores=1, settings={"spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory() as folder:
        broker = PipelineBroker(Path(folder))
        try:
            with connect(broker.url) as connection:
                measure(spark, connection, arguments.rows)
            if not arguments.no_spark:
                through_spark(spark, broker.url, arguments.rows)
        finally:
            broker.stop()
            spark.stop()


def measure(spark: Any, connection: BlockingConnection, count: int) -> None:
    """Each step, on the same rows."""
    frame = spark.range(count).selectExpr(*ROWS.strip().split(",\n"))
    kinds = [(field["name"], field["type"]) for field in frame.schema.jsonValue()["fields"]]
    batches = frame.toArrow().to_batches(BATCH)
    encoder = RowEncoder(kinds, "out")
    bodies = RowEncoder(kinds[:1], "out")

    def encoded() -> Iterator[Any]:
        return encoded_batches(encoder, batches)

    told("encode", count, lambda: sum(len(batch.rests) for batch in encoded()))
    told("bodies", count, lambda: sum(len(batch.rests) for batch in encoded_batches(bodies, batches)))
    told("send", count, lambda: send_all(lambda number: connection, encoded(), "out"))
    brokers = SetBrokers(["the broker"], "spark", lambda number: connection, lambda number: None)
    written: Written = told("stage", count, lambda: write_sets(brokers, "bench", 0, encoded(), "out"))
    told("commit", count, lambda: decide_epoch(brokers, [written], 60_000))


def through_spark(spark: Any, url: str, count: int) -> None:
    """The whole, twice: the first starts Python's workers."""
    frame = spark.range(count).selectExpr(*ROWS.strip().split(",\n"))
    for guarantee in ("exactly-once", "exactly-once", "at-least-once"):
        writer = frame.write.format("amqp").mode("append").option("amqp.url", url).option("address", "out")
        told(f"spark, {guarantee}", count, writer.option("guarantee", guarantee).save)


if __name__ == "__main__":
    main()
