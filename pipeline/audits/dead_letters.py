"""Messages that were given up: how many and why, and what contradicts it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge
from amqp_broker.pipeline.audits.messages import KEY, PLACES, beside_others
from amqp_broker.pipeline.audits.span import Span

AUDIT: Final = "dead letters"


def findings(messages: DataFrame, span: Span) -> DataFrame:
    """What was given up and accepted as well, given up twice, delivered afterwards, unknown, or given up
    without a reason.
    """
    gone = beside_others(messages, span).where("dead_lsn IS NOT NULL")
    return judge(
        gone, AUDIT, KEY, f"{PLACES}, given up lsn {{dead_lsn}}",
        Rule("dead-and-accepted", "accepts > 0", "given up, and accepted too"),
        Rule("dead-twice", "deads > 1 OR expires > 1", "given up {deads} times, expired {expires} times"),
        Rule("delivered-after-death", "last_deliver_lsn > dead_lsn", "given up and delivered afterwards"),
        Rule("dead-unknown", "puts = 0 AND seen", "given up, and never put"),
        Rule("dead-without-reason", "silent_deads > 0", "nobody said why"),
    )  # fmt: skip


def table(events: DataFrame) -> DataFrame:
    """Rows (address, reason, n, first, last): how many were given up and why; an expiry says `expired`."""
    gone = events.where("type IN ('dead', 'expire')")
    reason = F.expr("if(type = 'expire', 'expired', coalesce(reason, ''))").alias("reason")
    return gone.groupBy("address", reason).agg(
        F.count(F.lit(1)).alias("n"), F.min("time").alias("first"), F.max("time").alias("last")
    )
