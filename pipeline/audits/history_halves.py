"""Half messages as their producers know them, against the events: decided once, and as was told."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.event_schema import COMMITTED

_HALF = ["group", "half_id"]


def _plain(frame: DataFrame) -> DataFrame:
    """The log says `string:order-17`, and a client, of most ids, `order-17`."""
    return frame.withColumn("half_id", F.regexp_replace("half_id", "^string:", ""))


def findings(history: DataFrame, events: DataFrame | None, audit: str) -> DataFrame:
    """What the broker told about a half message, and what it did."""
    kind, word = F.col("kind"), F.col("word")
    accepted = kind == "resolve_accepted"
    told = _plain(history.where(F.col("half_id").isNotNull())).groupBy(*_HALF).agg(
        F.count_if(kind == "half_accepted").alias("puts"),
        F.count_if(accepted & (word == "commit")).alias("commits"),
        F.count_if(accepted & (word == "rollback")).alias("rollbacks"),
        F.min("order").alias("first"),
        F.max("order").alias("last"),
    )  # fmt: skip
    places = text("order {first} to {last}", first="first", last="last")
    key = text("group {group} half-id {half_id}", group="group", half_id="half_id")
    commits, rollbacks, puts = F.col("commits"), F.col("rollbacks"), F.col("puts")
    rules = [
        Rule("half-both", (commits > 0) & (rollbacks > 0), key,
             text("its commit and its rollback were both accepted"), places),
    ]  # fmt: skip
    if events is not None:
        told = told.join(_logged(events), _HALF, "left")
        logged, done = F.coalesce("logged", F.lit(0)), F.coalesce("committed", F.lit(0))
        undone = F.coalesce("undone", F.lit(0))
        rules += [
            Rule("half-lost", (puts > 0) & (logged == 0), key,
                 text("its put was accepted, and it is not in the log"), places),
            Rule("half-commit-lost", (commits > 0) & (rollbacks == 0) & (done == 0), key,
                 text("its commit was accepted, and the log has none"), places),
            Rule("half-rollback-lost", (rollbacks > 0) & (commits == 0) & (undone == 0), key,
                 text("its rollback was accepted, and the log has none"), places),
        ]  # fmt: skip
    return judge(told, audit, rules)


def _logged(events: DataFrame) -> DataFrame:
    decide = F.col("type") == "decide"
    committed = F.col("outcome") == COMMITTED
    return _plain(events.where(F.col("half_id").isNotNull())).groupBy(*_HALF).agg(
        F.count_if(F.col("type") == "half").alias("logged"),
        F.count_if(decide & committed).alias("committed"),
        F.count_if(decide & ~committed).alias("undone"),
    )  # fmt: skip
