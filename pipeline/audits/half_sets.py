"""Sets of half messages and the epochs that commit them: the transactions of sinks.

A set is sealed with a count, an epoch of a producer is decided once and in rising order, and what becomes
visible of a set is all of it, or nothing. How many of a set became visible is known only where its
destinations log events.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, together
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.audits.transactions import AUDIT, UNRESOLVED_AFTER_MS

_EPOCH: Final = ["group", "producer", "epoch"]
_KEY: Final = "group {group} producer {producer} epoch {epoch}"


def findings(events: DataFrame, span: Span, *, unresolved_after_ms: int = UNRESOLVED_AFTER_MS) -> DataFrame:
    """What is wrong with sets and epochs."""
    decided = events.where("type = 'decide' AND epoch IS NOT NULL AND half_id IS NULL")
    epochs = decided.groupBy(*_EPOCH).agg(
        F.count(F.lit(1)).alias("decides"), F.min("lsn").alias("decide_lsn")
    )
    return together(_sets(_set_rows(events), epochs, span, unresolved_after_ms), _epochs(epochs))


def _set_rows(events: DataFrame) -> DataFrame:
    kind, lsn = F.col("type"), F.col("lsn")
    seal, available = kind == "seal", kind == "publish"
    return (
        events.where(F.col("set_id").isNotNull() & kind.isin("seal", "publish", "void"))
        .groupBy("group", "set_id")
        .agg(
            F.max("producer").alias("producer"),
            F.max("epoch").alias("epoch"),
            F.count_if(seal).alias("seals"),
            F.max(F.when(seal, F.col("count"))).alias("sealed"),
            F.max(F.when(seal, lsn)).alias("seal_lsn"),
            F.max(F.when(seal, F.unix_micros("time"))).alias("seal_us"),
            F.count_if(available).alias("visible"),
            F.min(F.when(available, lsn)).alias("visible_lsn"),
            F.count_if(kind == "void").alias("voids"),
            F.max(F.when(kind == "void", lsn)).alias("void_lsn"),
        )
    )


def _sets(sets: DataFrame, epochs: DataFrame, span: Span, unresolved_after_ms: int) -> DataFrame:
    seen = sets.where("visible > 0").select("group", "producer").distinct().withColumn("seen", F.lit(True))
    known = sets.join(epochs, _EPOCH, "left").join(F.broadcast(seen), ["group", "producer"], "left")
    known = known.withColumn("open_us", F.lit(span.end_us) - F.col("seal_us"))
    return judge(
        known.withColumn("complete", F.lit(span.complete)), AUDIT, f"{_KEY} set {{set_id}}",
        "sealed lsn {seal_lsn}, decided lsn {decide_lsn}, visible lsn {visible_lsn}, void lsn {void_lsn}",
        Rule("set-torn", "visible > 0 AND visible != sealed",
             "sealed with {sealed} messages, {visible} became visible"),
        Rule("set-unsealed", "visible > 0 AND seals = 0 AND complete", "visible, and never sealed"),
        Rule("set-undecided", "visible > 0 AND decides IS NULL", "visible, and its epoch was never decided"),
        Rule("set-void-and-visible", "visible > 0 AND voids > 0", "given up, and visible too"),
        Rule("set-left", "decides IS NOT NULL AND visible = 0 AND voids = 0 AND sealed > 0 AND seen",
             "its epoch was decided, and it is neither visible nor void"),
        Rule("set-unresolved",
             f"decides IS NULL AND visible = 0 AND voids = 0 AND open_us > {unresolved_after_ms * 1000}",
             "sealed, and not decided for {floor(open_us / 1000000)} s"),
    )  # fmt: skip


def _epochs(epochs: DataFrame) -> DataFrame:
    before = "lag(epoch) OVER (PARTITION BY group, producer ORDER BY decide_lsn) AS before"
    return judge(
        epochs.selectExpr("*", before), AUDIT, _KEY, "lsn {decide_lsn}",
        Rule("epoch-twice", "decides > 1", "decided {decides} times", example="first lsn {decide_lsn}"),
        Rule("epoch-order", "epoch < before", "decided after epoch {before}"),
    )  # fmt: skip
