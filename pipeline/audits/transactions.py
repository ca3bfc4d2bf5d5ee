"""Half messages: who decided them, how, and how long that took."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.suspects import PLAIN_HALF, half_columns
from amqp_broker.pipeline.event_schema import COMMITTED, ROLLED_BACK


def halves(events: DataFrame) -> DataFrame:
    """One row for each half message (group, half_id) with its counts and times; suspect: whether its life is
    not plain.
    """
    kind, at_us = F.col("type"), F.unix_micros("time")
    half, decide = kind == "half", kind == "decide"
    mine = events.where(F.col("half_id").isNotNull() & F.col("group").isNotNull())
    gathered = mine.groupBy("group", "half_id").agg(
        F.count_if(half).alias("halves"),
        F.max(F.when(half, at_us)).alias("half_us"),
        F.count_if(kind == "check").alias("checks"),
        F.count_if(decide & (F.col("outcome") == COMMITTED)).alias("commits"),
        F.count_if(decide & (F.col("outcome") == ROLLED_BACK)).alias("rollbacks"),
        F.max(F.when(decide, at_us)).alias("decide_us"),
        F.max(F.when(decide, F.col("resolver"))).alias("resolver"),
        *half_columns(),
    )
    return gathered.withColumn("suspect", F.expr(f"NOT coalesce({PLAIN_HALF}, false)")).select(
        "group", "half_id", "halves", "half_us", "checks", "commits", "rollbacks", "decide_us", "resolver",
        "suspect",
    )  # fmt: skip


def table(halves: DataFrame) -> DataFrame:
    """Rows (resolver, outcome, n, checks, p50_ms, p95_ms, p99_ms): from the put to the decision."""
    decided = halves.where("commits + rollbacks > 0 AND halves > 0")
    outcome = F.when(F.col("commits") > 0, COMMITTED).otherwise(ROLLED_BACK)
    took_ms = (F.col("decide_us") - F.col("half_us")) / 1000
    percentiles = F.percentile_approx(took_ms, [0.5, 0.95, 0.99], 1000)
    return (
        decided.groupBy(F.coalesce("resolver", F.lit("-")).alias("resolver"), outcome.alias("outcome"))
        .agg(F.count(F.lit(1)).alias("n"), F.sum("checks").alias("checks"), percentiles.alias("p"))
        .select(
            "resolver", "outcome", "n", "checks",
            F.col("p")[0].alias("p50_ms"), F.col("p")[1].alias("p95_ms"), F.col("p")[2].alias("p99_ms"),
        )
    )  # fmt: skip
