"""Histories of clients against each other, and against the events: what the broker promised from outside.

The words are those of the checks after a kill: nothing lost, nothing unexpected, what is settled never comes
again, each discharge all or nothing, nothing of an undischarged transaction is seen, order for each producer
link, deliveries within credit, half messages once; what was never answered is wholly there or wholly absent.
history_file.py says what a history is, history_links.py judges its order.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits import history_links
from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge, together
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE, COMMITTED
from amqp_broker.pipeline.history_file import KINDS

AUDIT: Final = "history"
KEY: Final = "{address} message-id {message_id}"
"""How findings name a message."""
_MESSAGE: Final = ["address", "message_id"]
_HALF: Final = ["group", "half_id"]


def findings(history: DataFrame, events: DataFrame | None, *, drained: bool = False) -> DataFrame:
    """Everything that is wrong with `history`. `events`: a log that begins before it, or None; `drained`:
    at its end everything was received and settled.
    """
    transactions = _fates(history)
    lines = history.join(transactions, "txn", "left")
    stories = _with_events(_stories(lines), events)
    return together(
        _messages(stories, drained),
        _transactions(stories),
        _answers(transactions),
        history_links.findings(lines, AUDIT, KEY),
        _halves(history, events),
        _strange(history),
    )


def _fates(history: DataFrame) -> DataFrame:
    """One row for each transaction: its `fate`, commit_sent_at, ended_at (when the discharge was answered, or
    the question), and what was said.

    discharge answered accepted                         --> committed
    answered rejected, fail asked for, never discharged --> absent
    commit sent, no answer                              --> what the question was answered; else unknown
    """
    kind, order = F.col("kind"), F.col("order")
    told = F.when(kind == "told", F.col("word"))
    said = (
        history.where("txn IS NOT NULL")
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
    fate = """CASE WHEN commit_sent_at IS NULL OR rejects > 0 THEN 'absent'
        WHEN accepts > 0 OR told_committed > 0 THEN 'committed'
        WHEN told_absent > 0 THEN 'absent' ELSE 'unknown' END"""
    return said.withColumn("fate", F.expr(fate))


def _stories(lines: DataFrame) -> DataFrame:
    """One row for each message: what was done with it, and when (`..._at`, places in the history)."""
    kind, order, fate = F.col("kind"), F.col("order"), F.col("fate")
    sent, received = kind == "sent", kind == "received"
    retired = kind.isin("retired", "retired_settled")
    removed = kind.isin("accept_sent", "settled") | retired & (fate != "absent")
    settled = F.when(kind == "settled", order).when(retired & (fate == "committed"), F.col("ended_at"))
    of_sent = ("txn", "fate", "commit_sent_at", "producer", "number")
    return (
        lines.where("message_id IS NOT NULL AND half_id IS NULL")
        .groupBy(*_MESSAGE)
        .agg(
            F.count_if(sent).alias("sends"),
            F.min(F.when(sent, order)).alias("sent_at"),
            *(F.max(F.when(sent, F.col(name))).alias(name) for name in of_sent),
            F.count_if(kind == "accepted").alias("accepted"),
            F.count_if(kind == "refused").alias("refused"),
            F.count_if(received).alias("receipts"),
            F.min(F.when(received | (kind == "browsed"), order)).alias("first_seen_at"),
            F.max(F.when(received, order)).alias("last_received_at"),
            F.max(F.when(removed, order)).alias("removed_at"),
            F.min(settled).alias("settled_at"),
        )
    )


def _with_events(stories: DataFrame, events: DataFrame | None) -> DataFrame:
    """Columns puts and offset of the log, null where there is no log of this address, archived: it is for
    those who read by offset, and no consumer receives it; and whether it was `there`, by the log or a client.
    """
    if events is None:
        nothing = F.lit(None).cast("bigint")
        known = stories.withColumns({"puts": nothing, "offset": nothing, "archived": F.lit(False)})
    else:
        available = events.where(f"type IN {AVAILABLE}")
        heard_of = available.selectExpr("address", "0L AS heard_of").distinct()
        puts = available.groupBy(*_MESSAGE).agg(
            F.count(F.lit(1)).alias("found"),
            F.min("offset").alias("offset"),
            F.max(F.col("outcome") == ARCHIVED).alias("in_a_log"),
        )
        known = stories.join(puts, _MESSAGE, "left").join(F.broadcast(heard_of), "address", "left")
        known = known.selectExpr(
            "*", "coalesce(found, heard_of) AS puts", "coalesce(in_a_log, false) AS archived"
        )
    return known.selectExpr("*", "coalesce(puts, 0) > 0 OR first_seen_at IS NOT NULL AS there")


def _messages(stories: DataFrame, drained: bool) -> DataFrame:
    promised = "accepted > 0 AND txn IS NULL OR txn IS NOT NULL AND fate = 'committed'"
    rules = [
        Rule("lost", "promised AND puts = 0", "promised, and not in the log"),
        Rule("unexpected", "sends = 0 AND first_seen_at IS NOT NULL", "seen, and nobody had sent it"),
        Rule("seen-before-sent", "first_seen_at < sent_at", "seen before it was sent"),
        Rule("came-back", "last_received_at > settled_at",
             "received after its settlement had been confirmed"),
        Rule("accepted-twice", "accepted > sends", "sent {sends} times and accepted {accepted} times"),
        Rule("duplicated", "sends > 0 AND puts > sends", "sent {sends} times, and {puts} are in the log"),
        Rule("refused-and-there",
             "refused >= sends AND sends > 0 AND accepted = 0 AND txn IS NULL AND there",
             "refused, and it is there"),
    ]  # fmt: skip
    if drained:
        rules += [
            Rule("not-received", "promised AND coalesce(puts, 1) > 0 AND NOT archived AND receipts = 0",
                 "promised, and never received"),
            Rule("not-removed", "receipts > 0 AND removed_at IS NULL",
                 "received, given no outcome, and it did not come back"),
        ]  # fmt: skip
    places = (
        "order: sent {sent_at}, first seen {first_seen_at}, last received {last_received_at}, "
        "settled {settled_at}; offset {offset}"
    )
    return judge(stories.selectExpr("*", f"{promised} AS promised"), AUDIT, KEY, places, *rules)


def _transactions(stories: DataFrame) -> DataFrame:
    """Transactions of which a part is there, or too much; and messages that were seen before their commit."""
    posted = stories.where("txn IS NOT NULL")
    whole = posted.groupBy("txn", "fate").agg(
        F.count(F.lit(1)).alias("posts"),
        F.count_if("there").alias("found"),
        F.expr("min(if(NOT there, message_id, NULL))").alias("missing"),
        F.expr("min(if(there, message_id, NULL))").alias("present"),
    )
    detail = "{fate}: {found} of {posts} messages are there"
    early = Rule("seen-uncommitted", "first_seen_at < commit_sent_at",
                 "seen, and the commit of transaction {txn} had not been sent")  # fmt: skip
    return together(
        judge(
            whole, AUDIT, "transaction {txn}", "there: {present}, not there: {missing}",
            Rule("transaction-torn", "found > 0 AND found < posts", detail),
            Rule("commit-lost", "fate = 'committed' AND found = 0", detail),
            Rule("rollback-visible", "fate = 'absent' AND found = posts", detail),
        ),
        judge(posted, AUDIT, KEY, "order: seen {first_seen_at}, commit sent {commit_sent_at}", early),
    )  # fmt: skip


def _answers(transactions: DataFrame) -> DataFrame:
    """What was said of one transaction must agree."""
    rolled_back = "rollback_sent_at IS NOT NULL"
    contrary = "(accepts > 0 OR told_committed > 0) AND (rejects > 0 OR told_absent > 0)"
    return judge(
        transactions, AUDIT, "transaction {txn}",
        "discharge accepted {accepts} times, rejected {rejects} times; "
        "told committed {told_committed} times, not-committed {told_absent} times",
        Rule("answers-contradict", f"NOT {rolled_back} AND {contrary}",
             "it was called committed and not committed"),
        Rule("rollback-refused", f"{rolled_back} AND rejects > 0", "a discharge with fail was rejected"),
        Rule("fate-unknown", "fate = 'unknown'", "its commit was never answered, and nobody asked", WARNING),
    )  # fmt: skip


def _halves(history: DataFrame, events: DataFrame | None) -> DataFrame:
    """Half messages as their producers know them, against the events: decided once, and as was told."""
    kind = F.col("kind")
    accepted, word = kind == "resolve_accepted", F.col("word")
    told = _plain(history).groupBy(*_HALF).agg(
        F.count_if(kind == "half_accepted").alias("puts"),
        F.count_if(accepted & (word == "commit")).alias("commits"),
        F.count_if(accepted & (word == "rollback")).alias("rollbacks"),
        F.min("order").alias("first"),
        F.max("order").alias("last"),
    )  # fmt: skip
    rules = [Rule("half-both", "commits > 0 AND rollbacks > 0",
                  "its commit and its rollback were both accepted")]  # fmt: skip
    if events is not None:
        logged = _plain(events).groupBy(*_HALF).agg(
            F.expr("count_if(type = 'half')").alias("logged"),
            F.expr(f"count_if(type = 'decide' AND outcome = '{COMMITTED}')").alias("committed"),
            F.expr(f"count_if(type = 'decide' AND outcome != '{COMMITTED}')").alias("undone"),
        )  # fmt: skip
        told = told.join(logged, _HALF, "left").na.fill(0, ["logged", "committed", "undone"])
        rules += [
            Rule("half-lost", "puts > 0 AND logged = 0", "its put was accepted, and it is not in the log"),
            Rule("half-commit-lost", "commits > 0 AND rollbacks = 0 AND committed = 0",
                 "its commit was accepted, and the log has none"),
            Rule("half-rollback-lost", "rollbacks > 0 AND commits = 0 AND undone = 0",
                 "its rollback was accepted, and the log has none"),
        ]  # fmt: skip
    return judge(told, AUDIT, "group {group} half-id {half_id}", "order {first} to {last}", *rules)


def _plain(frame: DataFrame) -> DataFrame:
    """What is about half messages. The log says `string:order-17`, and a client, of most ids, `order-17`."""
    named = frame.where("half_id IS NOT NULL")
    return named.withColumn("half_id", F.regexp_replace("half_id", "^string:", ""))


def _strange(history: DataFrame) -> DataFrame:
    """Lines that are no history."""
    strange = history.where(f"coalesce(kind, '') NOT IN {KINDS} OR order IS NULL")
    counted = strange.groupBy("kind").agg(F.count(F.lit(1)).alias("n"), F.min("order").alias("first"))
    rule = Rule("line-unknown", "true", "{n} lines are no history")
    return judge(counted, AUDIT, "kind {kind}", "order {first}", rule)
