"""The half log against the op log: what was put to be decided, what was asked, and what was decided.

`unresolved`: nobody decided for too long. `contradictory`, `decided-twice`: one decision is final.
`...-undecided`, `...-rolled-back`: it became visible without a commit. `not-available`: committed, and
invisible. Sets of half messages are judged in half_sets.py by the same rules.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.event_schema import AVAILABLE, COMMITTED, ROLLED_BACK

AUDIT: Final = "transactions"
UNRESOLVED_AFTER_MS: Final = 4 * 60 * 60 * 1000
"""The broker's own maximum age: what is older should have been decided by it."""
LATE_CHECK_US: Final = 60 * 1_000_000
"""A check may be noted a moment after the decision that overtook it, not a minute."""


def halves(events: DataFrame) -> DataFrame:
    """One row for each half message (group, half_id), with counts, places and times."""
    kind, lsn, outcome = F.col("type"), F.col("lsn"), F.col("outcome")
    decide = kind == "decide"
    commit, rollback = decide & (outcome == COMMITTED), decide & (outcome == ROLLED_BACK)
    half, available, at_us = kind == "half", kind == "publish", F.unix_micros("time")
    mine = events.where(F.col("half_id").isNotNull() & F.col("set_id").isNull())
    return mine.groupBy("group", "half_id").agg(
        F.count_if(half).alias("halves"),
        F.min(F.when(half, lsn)).alias("half_lsn"),
        F.max(F.when(half, at_us)).alias("half_us"),
        # A decision names the queue in which the message came to stand: it may be that of the dead letters.
        F.coalesce(F.max(F.when(decide, F.col("address"))), F.max(F.when(half, F.col("address")))).alias(
            "address"
        ),
        F.count_if(kind == "check").alias("checks"),
        F.max(F.when(kind == "check", at_us)).alias("check_us"),
        F.count_if(kind == "answer").alias("answers"),
        F.count_if(commit).alias("commits"),
        F.count_if(rollback).alias("rollbacks"),
        F.max(F.when(decide, lsn)).alias("decide_lsn"),
        F.max(F.when(decide, at_us)).alias("decide_us"),
        F.max(F.when(decide, F.col("resolver"))).alias("resolver"),
        F.max(F.when(kind == "park", lsn)).alias("park_lsn"),
        F.max(F.when(kind == "resume", lsn)).alias("resume_lsn"),
        F.count_if(available).alias("visible"),
        F.min(F.when(available, lsn)).alias("visible_lsn"),
    )


def findings(
    events: DataFrame, halves: DataFrame, span: Span, *, unresolved_after_ms: int = UNRESOLVED_AFTER_MS
) -> DataFrame:
    """What is wrong with single half messages."""
    heard_of = events.where(f"type IN {AVAILABLE}").selectExpr("address", "true AS heard_of").distinct()
    known = halves.join(F.broadcast(heard_of), "address", "left").withColumns({
        "complete": F.lit(span.complete),
        "age_us": F.lit(span.end_us) - F.col("half_us"),
        "parked": F.expr("coalesce(park_lsn > coalesce(resume_lsn, 0), false)"),
        "decided": F.expr("commits + rollbacks"),
        "both": F.expr("commits > 0 AND rollbacks > 0"),
        # A half-id may be used again once its decision is forgotten, so decisions are counted against puts.
        "once": F.expr("greatest(halves, 1)"),
    })  # fmt: skip
    return judge(
        known, AUDIT, "group {group} half-id {half_id}",
        "put lsn {half_lsn}, decided lsn {decide_lsn}, visible lsn {visible_lsn}",
        Rule("unresolved", f"halves > decided AND NOT parked AND age_us > {unresolved_after_ms * 1000}",
             "not decided for {floor(age_us / 1000000)} s"),
        Rule("contradictory", "both AND decided > once",
             "committed {commits} times and rolled back {rollbacks} times"),
        Rule("decided-twice", "NOT both AND decided > once", "decided {decided} times"),
        Rule("visible-undecided", "visible > 0 AND decided = 0", "it became visible and nobody had decided"),
        Rule("visible-rolled-back", "visible > 0 AND commits = 0 AND rollbacks > 0",
             "it became visible and was rolled back"),
        Rule("visible-twice", "visible > greatest(commits, 1)", "it became visible {visible} times"),
        Rule("not-visible", "commits > visible AND heard_of",
             "committed for {address}, and it never became visible"),
        Rule("decided-unknown", "halves = 0 AND decided > 0 AND complete", "decided, and never put"),
        Rule("answer-without-check", "answers > checks", "{answers} answers to {checks} checks"),
        Rule("asked-after-decision", f"check_us > decide_us + {LATE_CHECK_US} AND halves <= 1",
             "asked about, and it was decided"),
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
