"""What came and went in each step of time, how long it took, how many waited, and where it stood still."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge
from amqp_broker.pipeline.audits.span import Span

AUDIT: Final = "traffic"
SECOND_US: Final = 1_000_000
STEPS_S: Final = (1, 10, 60)
"""Steps of the table: the first with which a log has no more than STEPS of them, else the last."""
STEPS: Final = 240
STALLED_MINUTES: Final = 10


def step_s_of(span: Span) -> int:
    """The step for a log of this length, in seconds."""
    length_s = (span.end_us - span.begin_us) / SECOND_US
    return next((step for step in STEPS_S if length_s <= step * STEPS), STEPS_S[-1])


def table(messages: DataFrame, step_s: int = STEPS_S[-1]) -> DataFrame:
    """Rows (address, step, came, bytes, went, redelivered, p50_ms, p95_ms, p99_ms, max_ms, backlog).

    `step` counts steps of `step_s` seconds from the Unix epoch. A message counts as come with its put and as
    gone with its end, and the latencies are those of the messages that went, from put to end; what a log
    archives waits for nobody, is gone with its put, and has none. `backlog` is what waits at the end of the
    step, of what the log has seen come.
    """
    came = messages.where("puts > 0").select(
        "address", _step("put_us", step_s), F.lit(1).alias("came"),
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.lit(0).alias("went"), F.lit(0).alias("redelivered"), F.lit(None).cast("bigint").alias("took_us"),
    )  # fmt: skip
    went = messages.where(F.col("end_lsn").isNotNull() & (F.col("puts") > 0)).select(
        "address", _step("end_us", step_s), F.lit(0), F.lit(0), F.lit(1),
        F.greatest(F.col("deliveries") - 1, F.lit(0)),
        F.when(F.col("archive_lsn").isNull(), F.col("end_us") - F.col("put_us")),
    )  # fmt: skip
    percentiles = F.percentile_approx("took_us", [0.5, 0.95, 0.99], 200)
    steps = (
        came.union(went)
        .groupBy("address", "step")
        .agg(
            F.sum("came").alias("came"), F.sum("bytes").alias("bytes"), F.sum("went").alias("went"),
            F.sum("redelivered").alias("redelivered"), percentiles.alias("p"),
            F.max("took_us").alias("max_us"),
        )
    )  # fmt: skip
    until_now = Window.partitionBy("address").orderBy("step")
    return steps.select(
        "address", "step", "came", "bytes", "went", "redelivered",
        *(_ms(F.col("p")[at]).alias(name) for at, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))),
        _ms(F.col("max_us")).alias("max_ms"),
        F.sum(F.col("came") - F.col("went")).over(until_now).alias("backlog"),
    )  # fmt: skip


def findings(
    steps: DataFrame, span: Span, *, step_s: int = STEPS_S[-1], stalled_minutes: int = STALLED_MINUTES
) -> DataFrame:
    """`steps` is the table; addresses at which nothing moved though messages waited, between two steps in
    which something went, or since the last one.
    """
    end = span.end_us // (step_s * SECOND_US)
    in_turn = Window.partitionBy("address").orderBy("step")
    moved = steps.where("went > 0 OR backlog > 0").withColumn(
        "until", F.coalesce(F.lead("step").over(in_turn), F.lit(end))
    )
    # Runs of rows in which nothing goes: each row belongs to the last one before it that moved something.
    row = F.when(F.col("went") > 0, F.col("step"))
    since = F.coalesce(F.max(row).over(in_turn), F.min("step").over(in_turn))
    runs = (
        moved.withColumn("since", since)
        .where("backlog > 0")
        .groupBy("address", "since")
        .agg(F.max("until").alias("until"), F.max("backlog").alias("backlog"))
    )
    known = runs.withColumns({
        "stood_s": (F.col("until") - F.col("since")) * step_s,
        "since": _clock("since", step_s),
        "until": _clock("until", step_s),
    })  # fmt: skip
    return judge(
        known, AUDIT, "{address} since {since}", "from {since} to {until}",
        Rule("stalled", f"stood_s > {stalled_minutes * 60}",
             "nothing went for {floor(stood_s / 60)} minutes, and up to {backlog} messages waited", WARNING),
    )  # fmt: skip


def _step(column: str, step_s: int) -> Column:
    return F.floor(F.col(column) / (step_s * SECOND_US)).cast("bigint").alias("step")


def _clock(step: str, step_s: int) -> Column:
    return F.date_format(F.timestamp_seconds(F.col(step) * step_s), "yyyy-MM-dd HH:mm")


def _ms(microseconds: Column) -> Column:
    return F.round(microseconds / 1000, 3)
