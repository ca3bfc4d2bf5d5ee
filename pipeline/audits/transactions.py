"""The half log against the op log: what was put to be decided, what was asked, and what was decided.

`unresolved`: nobody decided for too long. `contradictory`, `decided-twice`: one decision is final.
`...-undecided`, `...-rolled-back`: it became visible without a commit. `not-available`: committed, and
invisible. Sets of half messages are judged in half_sets.py by the same rules.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
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
    heard_of = events.where(F.col("type").isin(*AVAILABLE)).select("address").distinct()
    known = halves.join(F.broadcast(heard_of.withColumn("heard_of", F.lit(True))), "address", "left")
    names = {name: name for name in ("half_lsn", "decide_lsn", "visible_lsn", "resolver")}
    key = text("group {group} half-id {half_id}", group="group", half_id="half_id")
    places = text("put lsn {half_lsn}, decided lsn {decide_lsn}, visible lsn {visible_lsn}", **names)
    return judge(known, AUDIT, [*_decisions(key, places, span, unresolved_after_ms), *_checks(key, places)])


def _decisions(key: Column, places: Column, span: Span, unresolved_after_ms: int) -> list[Rule]:
    halves, commits, rollbacks = F.col("halves"), F.col("commits"), F.col("rollbacks")
    visible, decided = F.col("visible"), F.col("commits") + F.col("rollbacks")
    age_us = F.lit(span.end_us) - F.col("half_us")
    parked = F.coalesce(F.col("park_lsn") > F.coalesce("resume_lsn", F.lit(0)), F.lit(False))
    # A half-id may be used again once its decision is forgotten, so decisions are counted against puts.
    once = F.greatest(halves, F.lit(1))
    contrary = (commits > 0) & (rollbacks > 0)
    return [
        Rule("unresolved", (halves > decided) & ~parked & (age_us > unresolved_after_ms * 1000), key,
             text("not decided for {s} s", s=F.floor(age_us / 1_000_000)), places),
        Rule("contradictory", contrary & (decided > once), key,
             text("committed {c} times and rolled back {r} times", c=commits, r=rollbacks), places),
        Rule("decided-twice", ~contrary & (decided > once), key,
             text("decided {n} times", n=decided), places),
        Rule("visible-undecided", (visible > 0) & (decided == 0), key,
             text("it became visible and nobody had decided"), places),
        Rule("visible-rolled-back", (visible > 0) & (commits == 0) & (rollbacks > 0), key,
             text("it became visible and was rolled back"), places),
        Rule("visible-twice", visible > F.greatest(commits, F.lit(1)), key,
             text("it became visible {n} times", n=visible), places),
        Rule("not-visible", (commits > visible) & F.col("heard_of"), key,
             text("committed for {address}, and it never became visible", address="address"), places),
        Rule("decided-unknown", (halves == 0) & (decided > 0) & F.lit(span.complete), key,
             text("decided, and never put"), places),
    ]  # fmt: skip


def _checks(key: Column, places: Column) -> list[Rule]:
    late = (F.col("check_us") > F.col("decide_us") + LATE_CHECK_US) & (F.col("halves") <= 1)
    return [
        Rule("answer-without-check", F.col("answers") > F.col("checks"), key,
             text("{a} answers to {c} checks", a="answers", c="checks"), places),
        Rule("asked-after-decision", late, key, text("asked about, and it was decided"), places),
    ]  # fmt: skip


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
