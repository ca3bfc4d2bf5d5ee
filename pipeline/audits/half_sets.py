"""Sets of half messages and the epochs that commit them: the transactions of sinks.

A set is sealed with a count, an epoch of a producer is decided once and in rising order, and what becomes
visible of a set is all of it, or nothing. How many of a set became visible is known only where its
destinations log events.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.audits.transactions import AUDIT, UNRESOLVED_AFTER_MS

_EPOCH: Final = ["group", "producer", "epoch"]


def findings(events: DataFrame, span: Span, *, unresolved_after_ms: int = UNRESOLVED_AFTER_MS) -> DataFrame:
    """What is wrong with sets and epochs."""
    decided = events.where(
        (F.col("type") == "decide") & F.col("epoch").isNotNull() & F.col("half_id").isNull()
    )
    epochs = decided.groupBy(*_EPOCH).agg(
        F.count(F.lit(1)).alias("decides"), F.min("lsn").alias("decide_lsn")
    )
    return _sets(_set_rows(events), epochs, span, unresolved_after_ms).unionByName(_epochs(epochs))


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
    names = {n: n for n in ("group", "producer", "epoch", "set_id", "seal_lsn", "visible_lsn", "void_lsn")}
    key = text("group {group} producer {producer} epoch {epoch} set {set_id}", **names)
    places = text(
        "sealed lsn {seal_lsn}, decided lsn {decide_lsn}, visible lsn {visible_lsn}, void lsn {void_lsn}",
        decide_lsn="decide_lsn", **names,
    )  # fmt: skip
    visible, voids, sealed = F.col("visible"), F.col("voids"), F.col("sealed")
    decided = F.col("decides").isNotNull()
    open_us = F.lit(span.end_us) - F.col("seal_us")
    rules = [
        Rule("set-torn", (visible > 0) & (visible != sealed), key,
             text("sealed with {sealed} messages, {visible} became visible",
                   sealed=sealed, visible=visible), places),
        Rule("set-unsealed", (visible > 0) & (F.col("seals") == 0) & F.lit(span.complete), key,
             text("visible, and never sealed"), places),
        Rule("set-undecided", (visible > 0) & ~decided, key,
             text("visible, and its epoch was never decided"), places),
        Rule("set-void-and-visible", (visible > 0) & (voids > 0), key,
             text("given up, and visible too"), places),
        Rule("set-left", decided & (visible == 0) & (voids == 0) & (sealed > 0) & F.col("seen"), key,
             text("its epoch was decided, and it is neither visible nor void"), places),
        Rule("set-unresolved", ~decided & (visible == 0) & (voids == 0)
             & (open_us > unresolved_after_ms * 1000), key,
             text("sealed, and not decided for {s} s", s=F.floor(open_us / 1_000_000)), places),
    ]  # fmt: skip
    return judge(known, AUDIT, rules)


def _epochs(epochs: DataFrame) -> DataFrame:
    rising = Window.partitionBy("group", "producer").orderBy("decide_lsn")
    steps = epochs.withColumn("before", F.lag("epoch").over(rising))
    names = {name: name for name in ("group", "producer", "epoch", "decide_lsn", "before", "decides")}
    key = text("group {group} producer {producer} epoch {epoch}", **names)
    rules = [
        Rule("epoch-twice", F.col("decides") > 1, key, text("decided {decides} times", **names),
             text("first lsn {decide_lsn}", **names)),
        Rule("epoch-order", F.col("epoch") < F.col("before"), key,
             text("decided after epoch {before}", **names), text("lsn {decide_lsn}", **names)),
    ]  # fmt: skip
    return judge(steps, AUDIT, rules)
