"""Order for each producer link, one holder at a time, and deliveries within credit."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, text
from amqp_broker.pipeline.audits.history_transactions import COMMITTED

_MESSAGE = ["address", "message_id"]


def findings(lines: DataFrame, audit: str) -> DataFrame:
    """`lines` are those of the history with the fate of their transaction."""
    return _order(lines, audit).unionByName(_held(lines, audit)).unionByName(_credit(lines, audit))


def _order(lines: DataFrame, audit: str) -> DataFrame:
    """On one receiving link the messages of one producer link come as they were discharged and sent, those
    apart that were given back.
    """
    kind = F.col("kind")
    # Whatever may have put a message back into its queue: it may come out of order then.
    back = kind.isin("released", "modified") | (F.col("txn").isNotNull() & kind.isin(
        "received", "retired", "retired_settled") & (F.col("fate") != COMMITTED))  # fmt: skip
    # What was posted in a transaction is in its queue from the discharge on.
    discharged_at = F.coalesce("commit_sent_at", "order")
    by_message = Window.partitionBy(*_MESSAGE)
    place = F.struct(F.col("sent_at"), F.col("number"))
    taken = (
        lines.where(F.col("message_id").isNotNull())
        .withColumn("returned", F.max(back.cast("int")).over(by_message))
        .withColumn(
            "lives", F.size(F.collect_set(F.when(kind == "received", F.col("life"))).over(by_message))
        )
        .withColumn("from", F.max(F.when(kind == "sent", F.col("producer"))).over(by_message))
        .withColumn("sent_at", F.max(F.when(kind == "sent", discharged_at)).over(by_message))
        .withColumn("number", F.max(F.when(kind == "sent", F.col("number"))).over(by_message))
        .where((kind == "received") & (F.col("returned") == 0) & (F.col("lives") == 1))
        .where(F.col("from").isNotNull() & F.col("number").isNotNull())
        .select("life", "link", "from", "order", *_MESSAGE, place.alias("place"))
    )
    in_turn = Window.partitionBy("life", "link", "from").orderBy("order")
    steps = taken.withColumn("before", F.lag("place").over(in_turn))
    rule = Rule(
        "order",
        F.col("place") < F.col("before"),
        text("{address} message-id {message_id}", address="address", message_id="message_id"),
        text("received on {link} after number {n} of {producer}", link="link", producer="from",
              n=F.col("before.number")),
        text("order {order}, number {n}", order="order", n=F.col("place.number")),
    )  # fmt: skip
    return judge(steps, audit, [rule])


def _held(lines: DataFrame, audit: str) -> DataFrame:
    """Within a life a message is received again only after it was given back."""
    kind = F.col("kind")
    undone = F.col("txn").isNotNull() & (F.col("fate") != COMMITTED)
    given_back = kind.isin("released", "modified") | undone & kind.isin("received", "retired")
    lives = (
        lines.where(F.col("message_id").isNotNull())
        .groupBy("life", *_MESSAGE)
        .agg(
            F.count_if(kind == "received").alias("receipts"),
            F.count_if(given_back).alias("returns"),
            F.min(F.when(kind == "received", F.col("order"))).alias("first"),
            F.max(F.when(kind == "received", F.col("order"))).alias("last"),
        )
    )
    rule = Rule(
        "held-twice",
        F.col("receipts") > F.col("returns") + 1,
        text("{address} message-id {message_id}", address="address", message_id="message_id"),
        text("received {n} times in life {life} and given back {r} times", n="receipts", life="life",
              r="returns"),
        text("order: first received {first}, last {last}", first="first", last="last"),
    )  # fmt: skip
    return judge(lives, audit, [rule])


def _credit(lines: DataFrame, audit: str) -> DataFrame:
    """On a link whose credit is recorded, no more is received than was allowed."""
    kind = F.col("kind")
    change = F.when(kind == "credit", F.coalesce("count", F.lit(0))).when(kind == "received", F.lit(-1))
    by_link = Window.partitionBy("life", "link")
    until_now = by_link.orderBy("order").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    over = (
        lines.where(kind.isin("credit", "received"))
        .withColumn("recorded", F.max((kind == "credit").cast("int")).over(by_link))
        .withColumn("left", F.sum(change).over(until_now))
        .where((F.col("recorded") == 1) & (F.col("left") < 0))
        .groupBy("life", "link")
        .agg(F.min("order").alias("first"), F.max(-F.col("left")).alias("over"))
    )
    rule = Rule(
        "beyond-credit",
        F.lit(True),
        text("link {link} of life {life}", link="link", life="life"),
        text("up to {over} deliveries more than it had allowed", over="over"),
        text("order {first}", first="first"),
    )
    return judge(over, audit, [rule])
