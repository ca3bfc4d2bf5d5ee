"""The driver of a streaming query, as a process that is killed: source -> transformation -> sink.

It reads what is there, in micro-batches, and ends: with 0 when all is done, with 1 when the query failed.
"""

from __future__ import annotations

import argparse

from amqp_broker.pipeline.listener import CursorListener
from amqp_broker.pipeline.session import spark_session
from tests.pipeline.spark.class_archive import short_life
from tests.pipeline.spark.faulty_source import NAME, FaultySource, Killer
from tests.pipeline.spark.queries import run_to_end

SUBSCRIPTION = "enrich"


def main() -> int:
    """Runs the query to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--subscribe", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--to", required=True, help="the brokers to write to")
    parser.add_argument("--rows", required=True, help="in a micro-batch")
    parser.add_argument("--master", default=None)
    parser.add_argument("--partitions", default="1", help="tasks of a micro-batch, at least")
    parser.add_argument("--tries", type=int, default=1, help="starts of the query, while it fails")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of Spark's")
    parsed = parser.parse_args()
    spark = spark_session(
        "crash points",
        cores=2,
        master=parsed.master,
        settings={
            "spark.sql.execution.arrow.maxRecordsPerBatch": "25",
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {short_life()}",
        }
        | dict(setting.split("=", 1) for setting in parsed.set),
    )
    spark.dataSource.register(FaultySource)
    spark.streams.addListener(Killer("C6"))
    spark.streams.addListener(CursorListener(parsed.url, SUBSCRIPTION))
    rows = (
        spark.readStream.format(NAME)
        .option("amqp.url", parsed.url)
        .option("subscribe", parsed.subscribe)
        .option("subscription", SUBSCRIPTION)
        .option("maxOffsetsPerTrigger", parsed.rows)
        .option("minPartitions", parsed.partitions)
        .load()
    )
    stream = (
        rows.selectExpr(
            "upper(cast(body as string)) as body", "map('from', address) as application_properties"
        )
        .writeStream.format(NAME)
        .option("amqp.url", parsed.to)
        .option("address", parsed.address)
        .option("producerGroup", "spark")
        .option("commitTimeoutMs", "4000")
        .option("checkpointLocation", parsed.checkpoint)
        .trigger(availableNow=True)
    )
    for _ in range(parsed.tries):
        try:
            run_to_end(stream.start)
            return 0
        except Exception as error:
            print(f"the query failed: {str(error)[:2_000]}", flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
