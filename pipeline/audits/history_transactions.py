"""How each transaction of a history ended, and whether all or nothing of it was found.

discharge answered accepted                         --> committed
answered rejected, fail asked for, never discharged --> absent
commit sent, no answer                              --> what the question was answered; else unknown
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge, text

COMMITTED: Final = "committed"
ABSENT: Final = "absent"
UNKNOWN: Final = "unknown"


def fates(history: DataFrame) -> DataFrame:
    """One row for each transaction: fate, commit_sent_at, ended_at (when the discharge was answered, or the
    question), and what was said.
    """
    kind, order = F.col("kind"), F.col("order")
    told = F.when(kind == "told", F.col("word"))
    commit_sent, accepted, rejected = F.col("commit_sent_at"), F.col("accepts"), F.col("rejects")
    said = (
        history.where(F.col("txn").isNotNull())
        .groupBy("txn")
        .agg(
            F.min(F.when(kind == "commit_sent", order)).alias("commit_sent_at"),
            F.min(F.when(kind == "rollback_sent", order)).alias("rollback_sent_at"),
            F.min(F.when(kind.isin("discharge_accepted", "told"), order)).alias("ended_at"),
            F.count_if(kind == "discharge_accepted").alias("accepts"),
            F.count_if(kind == "discharge_rejected").alias("rejects"),
            F.count_if(told == "committed").alias("told_committed"),
            F.count_if(told == "not-committed").alias("told_absent"),
        )
    )
    return said.withColumn(
        "fate",
        F.when(commit_sent.isNull() | (rejected > 0), ABSENT)
        .when(accepted > 0, COMMITTED)
        .when(F.col("told_committed") > 0, COMMITTED)
        .when(F.col("told_absent") > 0, ABSENT)
        .otherwise(UNKNOWN),
    )


def findings(stories: DataFrame, fates: DataFrame, audit: str) -> DataFrame:
    """Transactions of which a part is there, or too much; those of which two things were said; and
    messages that were seen before anybody committed them.
    """
    there = (F.coalesce(F.col("puts"), F.lit(0)) > 0) | F.col("first_seen_at").isNotNull()
    posted = stories.where(F.col("txn").isNotNull())
    whole = posted.groupBy("txn", "fate").agg(
        F.count(F.lit(1)).alias("posts"),
        F.count_if(there).alias("there"),
        F.min(F.when(~there, F.col("message_id"))).alias("missing"),
        F.min(F.when(there, F.col("message_id"))).alias("present"),
    )
    names = {name: name for name in ("txn", "fate", "posts", "there", "missing", "present")}
    key = text("transaction {txn}", txn="txn")
    places = text("there: {present}, not there: {missing}", **names)
    detail = text("{fate}: {there} of {posts} messages are there", **names)
    rules = [
        Rule("transaction-torn", (F.col("there") > 0) & (F.col("there") < F.col("posts")), key, detail,
             places),
        Rule("commit-lost", (F.col("fate") == COMMITTED) & (F.col("there") == 0), key, detail, places),
        Rule("rollback-visible", (F.col("fate") == ABSENT) & (F.col("there") == F.col("posts")), key,
             detail, places),
    ]  # fmt: skip
    early = Rule(
        "seen-uncommitted",
        F.col("first_seen_at") < F.col("commit_sent_at"),
        text("{address} message-id {message_id}", address="address", message_id="message_id"),
        text("seen, and the commit of transaction {txn} had not been sent", txn="txn"),
        text("order: seen {seen}, commit sent {sent}", seen="first_seen_at", sent="commit_sent_at"),
    )
    return (
        judge(whole, audit, rules)
        .unionByName(judge(posted, audit, [early]))
        .unionByName(_answers(fates, audit))
    )


def _answers(fates: DataFrame, audit: str) -> DataFrame:
    """What was said of one transaction must agree."""
    names = ("accepts", "rejects", "told_committed", "told_absent")
    key = text("transaction {txn}", txn="txn")
    said = text(
        "discharge accepted {accepts} times, rejected {rejects} times; "
        "told committed {told_committed} times, not-committed {told_absent} times",
        **{name: name for name in names},
    )
    yes = (F.col("accepts") > 0) | (F.col("told_committed") > 0)
    no = (F.col("rejects") > 0) | (F.col("told_absent") > 0)
    rolled_back = F.col("rollback_sent_at").isNotNull()
    rules = [
        Rule("answers-contradict", ~rolled_back & yes & no, key,
             text("it was called committed and not committed"), said),
        Rule("rollback-refused", rolled_back & (F.col("rejects") > 0), key,
             text("a discharge with fail was rejected"), said),
        Rule("fate-unknown", F.col("fate") == UNKNOWN, key,
             text("its commit was never answered, and nobody asked"), said, WARNING),
    ]  # fmt: skip
    return judge(fates, audit, rules)
