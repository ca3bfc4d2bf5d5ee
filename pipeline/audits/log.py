"""Is the log itself whole? An audit of a log with holes proves nothing, so this comes first."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.audits.gaps import gaps
from amqp_broker.pipeline.event_schema import EVENT_TYPES

AUDIT: Final = "log"


def findings(events: DataFrame) -> DataFrame:
    """Numbers of the log that are missing or there twice, and events of a type that nobody knows."""
    first, last = F.col("first"), F.col("last")
    place = text("lsn {first} to {last}", first=first, last=last)
    numbers = judge(
        gaps(events.select("lsn"), [], "lsn"),
        AUDIT,
        [
            Rule(
                "events-missing",
                F.col("kind") == "missing",
                place,
                text("{n} events are missing from the log", n=last - first + 1),
                text(
                    "between lsn {before} and lsn {after}", before=F.col("first") - 1, after=F.col("last") + 1
                ),
            ),
            Rule(
                "events-double",
                F.col("kind") == "double",
                text("lsn {first}", first="first"),
                text("an event is more than once in the archive"),
                place,
            ),
        ],
    )
    strange = events.where(~F.coalesce(F.col("type"), F.lit("")).isin(*EVENT_TYPES)).select("type", "lsn")
    return numbers.unionByName(
        judge(
            strange.groupBy("type").agg(F.count(F.lit(1)).alias("n"), F.min("lsn").alias("lsn")),
            AUDIT,
            [
                Rule(
                    "type-unknown",
                    F.lit(True),
                    text("type {type}", type="type"),
                    text("{n} events of a type that this audit does not know", n="n"),
                    text("lsn {lsn}", lsn="lsn"),
                )
            ],
        )
    )
