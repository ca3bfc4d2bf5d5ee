"""Messages that a producer sent more than once, by what it called them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge
from amqp_broker.pipeline.audits.lives import LEDGER
from amqp_broker.pipeline.event_schema import AVAILABLE


def duplicates(events: DataFrame) -> DataFrame:
    """A producer may send again when it lost an answer, so this is for somebody to look at.

    Names are long and nearly all of them are there once: they are counted by their hashes first.
    """
    name = ["address", "container", "message_id"]
    named = events.where(f"type IN {AVAILABLE} AND message_id IS NOT NULL").select(
        *name, "offset", F.xxhash64(*name).alias("hash")
    )
    often = named.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).where("n > 1").select("hash")
    same = (
        named.join(F.broadcast(often), "hash", "left_semi")
        .groupBy(*name)
        .agg(F.count(F.lit(1)).alias("n"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    rule = Rule("duplicated", "n > 1 AND first != last", "{container} sent it {n} times", WARNING)
    return judge(same, LEDGER, "{address} message-id {message_id}", "offsets {first} and {last}", rule)
