"""Messages that were given up: how many, where and why."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def table(events: DataFrame) -> DataFrame:
    """Rows (address, reason, n, first, last): how many were given up and why; an expiry says `expired`."""
    gone = events.where("type IN ('dead', 'expire')")
    reason = F.expr("if(type = 'expire', 'expired', coalesce(reason, ''))").alias("reason")
    return gone.groupBy("address", reason).agg(
        F.count(F.lit(1)).alias("n"), F.min("time").alias("first"), F.max("time").alias("last")
    )
