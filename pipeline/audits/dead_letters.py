"""Messages that were given up: how many and why, and what contradicts it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.audits.ledger import message_key, message_places
from amqp_broker.pipeline.audits.messages import addresses
from amqp_broker.pipeline.audits.span import Span

AUDIT: Final = "dead letters"


def findings(messages: DataFrame, span: Span) -> DataFrame:
    """What was given up and accepted as well, given up twice, delivered afterwards, unknown, or given up
    without a reason.
    """
    gone = messages.where(F.col("dead_lsn").isNotNull())
    known = gone.join(F.broadcast(addresses(messages)), "address")
    seen = F.lit(span.complete) | (F.col("offset") >= F.col("first_offset"))
    key = message_key()
    places = F.concat(message_places(), text(", given up lsn {dead}", dead="dead_lsn"))
    twice = (F.col("deads") > 1) | (F.col("expires") > 1)
    rules = [
        Rule("dead-and-accepted", F.col("accepts") > 0, key, text("given up, and accepted too"), places),
        Rule("dead-twice", twice, key,
             text("given up {d} times, expired {e} times", d="deads", e="expires"), places),
        Rule("delivered-after-death", F.col("last_deliver_lsn") > F.col("dead_lsn"), key,
             text("given up and delivered afterwards"), places),
        Rule("dead-unknown", (F.col("puts") == 0) & seen, key, text("given up, and never put"), places),
        Rule("dead-without-reason", F.col("silent_deads") > 0, key, text("nobody said why"), places),
    ]  # fmt: skip
    return judge(known, AUDIT, rules)


def table(events: DataFrame) -> DataFrame:
    """Rows (address, reason, n, first, last): how many were given up and why; an expiry says `expired`."""
    gone = events.where(F.col("type").isin("dead", "expire"))
    reason = F.when(F.col("type") == "expire", "expired").otherwise(F.coalesce("reason", F.lit("")))
    return gone.groupBy("address", reason.alias("reason")).agg(
        F.count(F.lit(1)).alias("n"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
