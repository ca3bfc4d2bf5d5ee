"""Order for each producer link, one holder at a time, and deliveries within credit."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import Rule, judge, together

_MESSAGE: Final = ["address", "message_id"]
_UNDONE: Final = "(txn IS NOT NULL AND fate != 'committed')"
_GIVEN_BACK: Final = "kind IN ('released', 'modified')"


def findings(lines: DataFrame, audit: str, key: str) -> DataFrame:
    """`lines` are those of the history with the fate of their transaction, `key` is how findings name a
    message.
    """
    return together(_order(lines, audit, key), _held(lines, audit, key), _credit(lines, audit))


def _order(lines: DataFrame, audit: str, key: str) -> DataFrame:
    """On one receiving link the messages of one producer link come as they were discharged and sent, those
    apart that were given back.
    """
    kind = F.col("kind")
    # Whatever may have put a message back into its queue: it may come out of order then.
    back = F.expr(f"{_GIVEN_BACK} OR {_UNDONE} AND kind IN ('received', 'retired', 'retired_settled')")
    # What was posted in a transaction is in its queue from the discharge on.
    discharged_at = F.coalesce("commit_sent_at", "order")
    by_message = Window.partitionBy(*_MESSAGE)
    lives = F.collect_set(F.when(kind == "received", F.col("life"))).over(by_message)
    taken = (
        lines.where("message_id IS NOT NULL")
        .withColumns({
            "returned": F.max(back.cast("int")).over(by_message),
            "lives": F.size(lives),
            "sender": F.max(F.when(kind == "sent", F.col("producer"))).over(by_message),
            "sent_at": F.max(F.when(kind == "sent", discharged_at)).over(by_message),
            "number": F.max(F.when(kind == "sent", F.col("number"))).over(by_message),
        })
        .where("kind = 'received' AND returned = 0 AND lives = 1")
        .where("sender IS NOT NULL AND number IS NOT NULL")
        .selectExpr("*", "struct(sent_at, number) AS place")
    )  # fmt: skip
    before = "lag(place) OVER (PARTITION BY life, link, sender ORDER BY order) AS before"
    rule = Rule("order", "place < before", "received on {link} after number {before.number} of {sender}")
    return judge(taken.selectExpr("*", before), audit, key, "order {order}, number {number}", rule)


def _held(lines: DataFrame, audit: str, key: str) -> DataFrame:
    """Within a life a message is received again only after it was given back."""
    given_back = F.expr(f"{_GIVEN_BACK} OR {_UNDONE} AND kind IN ('received', 'retired')")
    received_at = F.expr("if(kind = 'received', order, NULL)")
    lives = (
        lines.where("message_id IS NOT NULL")
        .groupBy("life", *_MESSAGE)
        .agg(
            F.count(received_at).alias("receipts"),
            F.count_if(given_back).alias("returns"),
            F.min(received_at).alias("first"),
            F.max(received_at).alias("last"),
        )
    )
    rule = Rule("held-twice", "receipts > returns + 1",
                "received {receipts} times in life {life} and given back {returns} times")  # fmt: skip
    return judge(lives, audit, key, "order: first received {first}, last {last}", rule)


def _credit(lines: DataFrame, audit: str) -> DataFrame:
    """On a link whose credit is recorded, no more is received than was allowed."""
    until_now = "PARTITION BY life, link ORDER BY order ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    over = (
        lines.where("kind IN ('credit', 'received')")
        .selectExpr(
            "life", "link", "order",
            "max(kind = 'credit') OVER (PARTITION BY life, link) AS recorded",
            f"sum(if(kind = 'credit', coalesce(count, 0), -1)) OVER ({until_now}) AS credit",
        )
        .where("recorded AND credit < 0")
        .groupBy("life", "link")
        .agg(F.min("order").alias("first"), F.max(-F.col("credit")).alias("over"))
    )  # fmt: skip
    rule = Rule("beyond-credit", "true", "up to {over} deliveries more than it had allowed")
    return judge(over, audit, "link {link} of life {life}", "order {first}", rule)
