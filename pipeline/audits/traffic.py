"""What came and went each minute, how long messages took, how many waited, and where it stood still."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge, words
from amqp_broker.pipeline.audits.ledger import message_key, message_places
from amqp_broker.pipeline.audits.span import Span

AUDIT: Final = "traffic"
MINUTE_US: Final = 60 * 1_000_000
STALLED_MINUTES: Final = 10


def table(messages: DataFrame) -> DataFrame:
    """Rows (address, minute, came, bytes, went, redelivered, p50_ms, p95_ms, p99_ms, max_ms, backlog).

    `minute` counts from the Unix epoch. A message counts as come with its put and as gone with its end, and
    the latencies are those of the messages that went, from put to end. `backlog` is what waits at the end of
    the minute, of what the log has seen come.
    """
    came = messages.where("puts > 0").select(
        "address", _minute("put_us"), F.lit(1).alias("came"), F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.lit(0).alias("went"), F.lit(0).alias("redelivered"), F.lit(None).cast("bigint").alias("took_us"),
    )  # fmt: skip
    went = messages.where(F.col("end_lsn").isNotNull() & (F.col("puts") > 0)).select(
        "address", _minute("end_us"), F.lit(0), F.lit(0), F.lit(1),
        F.greatest(F.col("deliveries") - 1, F.lit(0)), F.col("end_us") - F.col("put_us"),
    )  # fmt: skip
    percentiles = F.percentile_approx("took_us", [0.5, 0.95, 0.99], 200)
    minutes = (
        came.union(went)
        .groupBy("address", "minute")
        .agg(
            F.sum("came").alias("came"), F.sum("bytes").alias("bytes"), F.sum("went").alias("went"),
            F.sum("redelivered").alias("redelivered"), percentiles.alias("p"),
            F.max("took_us").alias("max_us"),
        )
    )  # fmt: skip
    until_now = Window.partitionBy("address").orderBy("minute")
    return minutes.select(
        "address", "minute", "came", "bytes", "went", "redelivered",
        *(_ms(F.col("p")[at]).alias(name) for at, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))),
        _ms(F.col("max_us")).alias("max_ms"),
        F.sum(F.col("came") - F.col("went")).over(until_now).alias("backlog"),
    )  # fmt: skip


def findings(
    messages: DataFrame, minutes: DataFrame, span: Span, *, stalled_minutes: int = STALLED_MINUTES
) -> DataFrame:
    """`minutes` is the table; messages that ended before they came, more that went than came, and
    addresses at which nothing moved though messages waited.
    """
    backwards = Rule(
        "clock-backwards",
        F.col("end_us") < F.col("put_us"),
        message_key(),
        words("ended {ms} ms before it came", ms=_ms(F.col("put_us") - F.col("end_us"))),
        message_places(),
        WARNING,
    )
    return judge(messages, AUDIT, [backwards]).unionByName(_stands(minutes, span, stalled_minutes))


def _stands(minutes: DataFrame, span: Span, stalled_minutes: int) -> DataFrame:
    """Between two minutes in which something went, or since the last one."""
    end = span.end_us // MINUTE_US
    in_turn = Window.partitionBy("address").orderBy("minute")
    moved = minutes.where("went > 0 OR backlog > 0").withColumn(
        "until", F.coalesce(F.lead("minute").over(in_turn), F.lit(end))
    )
    # Runs of rows in which nothing goes: each row belongs to the last one before it that moved something.
    row = F.when(F.col("went") > 0, F.col("minute"))
    since = F.coalesce(F.max(row).over(in_turn), F.min("minute").over(in_turn))
    runs = (
        moved.withColumn("since", since)
        .where("backlog > 0")
        .groupBy("address", "since")
        .agg(F.max("until").alias("until"), F.max("backlog").alias("backlog"))
    )
    stood = F.col("until") - F.col("since")
    rule = Rule(
        "stalled",
        stood > stalled_minutes,
        words("{address} since {at}", address="address", at=_clock("since")),
        words("nothing went for {n} minutes, and up to {b} messages waited", n=stood, b="backlog"),
        words("minutes {at} to {until}", at=_clock("since"), until=_clock("until")),
        WARNING,
    )
    return judge(runs, AUDIT, [rule])


def _minute(column: str) -> Column:
    return F.floor(F.col(column) / MINUTE_US).cast("bigint").alias("minute")


def _clock(minute: str) -> Column:
    return F.date_format(F.timestamp_seconds(F.col(minute) * 60), "yyyy-MM-dd HH:mm")


def _ms(microseconds: Column) -> Column:
    return F.round(microseconds / 1000, 3)
