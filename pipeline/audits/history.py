"""Histories of clients against each other, and against the events: what the broker promised from outside.

The words are those of the checks after a kill: nothing lost, nothing unexpected, what is settled never comes
again, each discharge all or nothing, nothing of an undischarged transaction is seen, order for each producer
link, deliveries within credit, half messages once; what was never answered is wholly there or wholly absent.
history_file.py says what a history is.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits import history_halves, history_order, history_transactions
from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.audits.history_transactions import ABSENT, COMMITTED
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE
from amqp_broker.pipeline.history_file import KINDS

AUDIT: Final = "history"
_MESSAGE: Final = ["address", "message_id"]


def findings(history: DataFrame, events: DataFrame | None, *, drained: bool = False) -> DataFrame:
    """Everything that is wrong with `history`. `events`: a log that begins before it, or None; `drained`:
    at its end everything was received and settled.
    """
    fates = history_transactions.fates(history)
    lines = history.join(fates, "txn", "left")
    stories = _with_events(_stories(lines), events)
    found = judge(stories, AUDIT, _rules(drained))
    for more in (
        history_transactions.findings(stories, fates, AUDIT),
        history_order.findings(lines, AUDIT),
        history_halves.findings(history, events, AUDIT),
        _strange(history),
    ):
        found = found.unionByName(more)
    return found


def _stories(lines: DataFrame) -> DataFrame:
    """One row for each message: what was done with it, and when (`..._at`, places in the history)."""
    kind, order, fate = F.col("kind"), F.col("order"), F.col("fate")
    sent, received = kind == "sent", kind == "received"
    seen = kind.isin("received", "browsed")
    retired = kind.isin("retired", "retired_settled")
    return (
        lines.where(F.col("message_id").isNotNull() & F.col("half_id").isNull())
        .groupBy(*_MESSAGE)
        .agg(
            F.count_if(sent).alias("sends"),
            F.min(F.when(sent, order)).alias("sent_at"),
            F.max(F.when(sent, F.col("txn"))).alias("txn"),
            F.max(F.when(sent, fate)).alias("fate"),
            F.max(F.when(sent, F.col("commit_sent_at"))).alias("commit_sent_at"),
            F.max(F.when(sent, F.col("producer"))).alias("producer"),
            F.max(F.when(sent, F.col("number"))).alias("number"),
            F.count_if(kind == "accepted").alias("accepted"),
            F.count_if(kind == "refused").alias("refused"),
            F.count_if(received).alias("receipts"),
            F.min(F.when(seen, order)).alias("first_seen_at"),
            F.max(F.when(received, order)).alias("last_received_at"),
            F.max(F.when(kind.isin("accept_sent", "settled") | retired & (fate != ABSENT), order)).alias(
                "removed_at"
            ),
            F.min(
                F.when(kind == "settled", order).when(retired & (fate == COMMITTED), F.col("ended_at"))
            ).alias("settled_at"),
        )
    )


def _with_events(stories: DataFrame, events: DataFrame | None) -> DataFrame:
    """Columns puts and offset of the log, null where there is no log of this address, and archived: it is for
    those who read by offset, and no consumer receives it.
    """
    if events is None:
        nothing = F.lit(None).cast("bigint")
        stories = stories.withColumn("puts", nothing).withColumn("offset", nothing)
        return stories.withColumn("archived", F.lit(False))
    available = events.where(F.col("type").isin(*AVAILABLE))
    heard_of = available.select("address").distinct().withColumn("heard_of", F.lit(0).cast("bigint"))
    puts = available.groupBy(*_MESSAGE).agg(
        F.count(F.lit(1)).alias("found"),
        F.min("offset").alias("offset"),
        F.max(F.col("outcome") == ARCHIVED).alias("in_a_log"),
    )
    return (
        stories.join(puts, _MESSAGE, "left")
        .join(F.broadcast(heard_of), "address", "left")
        .withColumn("puts", F.coalesce("found", "heard_of"))
        .withColumn("archived", F.coalesce("in_a_log", F.lit(False)))
    )


def story_key() -> Column:
    """How findings name a message."""
    return text("{address} message-id {message_id}", address="address", message_id="message_id")


def story_places() -> Column:
    """Where history and log tell about a message."""
    names = ("sent_at", "first_seen_at", "last_received_at", "settled_at", "offset")
    return text(
        "order: sent {sent_at}, first seen {first_seen_at}, last received {last_received_at}, "
        "settled {settled_at}; offset {offset}",
        **{name: name for name in names},
    )


def _rules(drained: bool) -> list[Rule]:
    key, places = story_key(), story_places()
    in_txn = F.col("txn").isNotNull()
    promised = ((F.col("accepted") > 0) & ~in_txn) | (in_txn & (F.col("fate") == COMMITTED))
    there = (F.coalesce(F.col("puts"), F.lit(0)) > 0) | F.col("first_seen_at").isNotNull()
    never = F.col("receipts") == 0
    rules = [
        Rule("lost", promised & (F.col("puts") == 0), key, text("promised, and not in the log"), places),
        Rule("unexpected", (F.col("sends") == 0) & F.col("first_seen_at").isNotNull(), key,
             text("seen, and nobody had sent it"), places),
        Rule("seen-before-sent", F.col("first_seen_at") < F.col("sent_at"), key,
             text("seen before it was sent"), places),
        Rule("came-back", F.col("last_received_at") > F.col("settled_at"), key,
             text("received after its settlement had been confirmed"), places),
        Rule("accepted-twice", F.col("accepted") > F.col("sends"), key,
             text("sent {s} times and accepted {a} times", s="sends", a="accepted"), places),
        Rule("duplicated", (F.col("sends") > 0) & (F.col("puts") > F.col("sends")), key,
             text("sent {s} times, and {p} are in the log", s="sends", p="puts"), places),
        Rule("refused-and-there", (F.col("refused") >= F.col("sends")) & (F.col("sends") > 0)
             & (F.col("accepted") == 0) & ~in_txn & there, key,
             text("refused, and it is there"), places),
    ]  # fmt: skip
    if drained:
        gone = promised & (F.coalesce(F.col("puts"), F.lit(1)) > 0) & ~F.col("archived")
        rules += [
            Rule("not-received", gone & never, key, text("promised, and never received"), places),
            Rule("not-removed", ~never & F.col("removed_at").isNull(), key,
                 text("received, given no outcome, and it did not come back"), places),
        ]  # fmt: skip
    return rules


def _strange(history: DataFrame) -> DataFrame:
    """Lines that are no history."""
    strange = history.where(~F.coalesce(F.col("kind"), F.lit("")).isin(*KINDS) | F.col("order").isNull())
    counted = strange.groupBy("kind").agg(F.count(F.lit(1)).alias("n"), F.min("order").alias("first"))
    rule = Rule("line-unknown", F.lit(True), text("kind {kind}", kind="kind"),
                text("{n} lines are no history", n="n"), text("order {first}", first="first"))  # fmt: skip
    return judge(counted, AUDIT, [rule])
