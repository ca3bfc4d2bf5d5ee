"""Is the log itself whole? An audit of a log with holes proves nothing, so this comes first."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, together
from amqp_broker.pipeline.audits.gaps import gaps
from amqp_broker.pipeline.event_schema import EVENT_TYPES

AUDIT: Final = "log"


def findings(events: DataFrame) -> DataFrame:
    """Numbers of the log that are missing or there twice, and events of a type that nobody knows."""
    missing = Rule("events-missing", "kind = 'missing'", "{last - first + 1} events are missing from the log",
                   example="between lsn {first - 1} and lsn {last + 1}")  # fmt: skip
    double = Rule("events-double", "kind = 'double'", "an event is more than once in the archive")
    strange = events.where(f"coalesce(type, '') NOT IN {EVENT_TYPES}")
    kinds = strange.groupBy("type").agg(F.count(F.lit(1)).alias("n"), F.min("lsn").alias("lsn"))
    unknown = Rule("type-unknown", "true", "{n} events of a type that this audit does not know")
    numbers = gaps(events.select("lsn"), [], "lsn").withColumn(
        "place", F.expr("if(kind = 'double', string(first), concat(first, ' to ', last))")
    )
    return together(
        judge(numbers, AUDIT, "lsn {place}", "lsn {first} to {last}", missing, double),
        judge(kinds, AUDIT, "type {type}", "lsn {lsn}", unknown),
    )
