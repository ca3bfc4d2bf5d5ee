"""Tables that the report shows of a whole log: who sent and received, and which messages were given up."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.event_schema import AVAILABLE

MOST: Final = 1_000
"""Rows of the table: those with the most messages."""
BACK: Final = ("released", "modified")


def clients(events: DataFrame) -> DataFrame:
    """Rows (address, container, sent, bytes, delivered, accepted, rejected, given_back, first, last). What a
    sink wrote in sets is sent by its producer.
    """
    kind, outcome = F.col("type"), F.col("outcome")
    put, settle = kind.isin(*AVAILABLE), kind == "settle"
    who = F.coalesce("container", F.when(put, F.col("producer"))).alias("container")
    mine = events.where((put | kind.isin("deliver", "settle")) & F.col("address").isNotNull())
    rows = mine.groupBy("address", who).agg(
        F.count_if(put).alias("sent"),
        F.sum(F.when(put, F.col("bytes")).otherwise(0)).alias("bytes"),
        F.count_if(kind == "deliver").alias("delivered"),
        F.count_if(settle & (outcome == "accepted")).alias("accepted"),
        F.count_if(settle & (outcome == "rejected")).alias("rejected"),
        F.count_if(settle & outcome.isin(*BACK)).alias("given_back"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    known = rows.where("container IS NOT NULL")
    return known.orderBy(F.desc(F.col("sent") + F.col("delivered")), "address", "container").limit(MOST)


def deaths(events: DataFrame) -> DataFrame:
    """Rows (address, reason, n, first, last): how many were given up and why; an expiry says `expired`."""
    gone = events.where("type IN ('dead', 'expire')")
    reason = F.expr("if(type = 'expire', 'expired', coalesce(reason, ''))").alias("reason")
    return gone.groupBy("address", reason).agg(
        F.count(F.lit(1)).alias("n"), F.min("time").alias("first"), F.max("time").alias("last")
    )
