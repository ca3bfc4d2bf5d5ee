"""The ledger: every message that came in against what became of it, and in which order.

`lost`, `offset-missing`: something that was put has no end, or a number was given to nothing. `duplicated`:
the same message is there under two numbers. `phantom`: something came out that never came in. `order`,
`sequence-order`, `sequence-gap`: the numbers of a queue and of a stream rise. `delivered-again`: after its
acceptance. A log that begins in the middle is judged from its first put of each address on.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge, together
from amqp_broker.pipeline.audits.gaps import gaps
from amqp_broker.pipeline.audits.messages import KEY, PLACES, beside_others
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.event_schema import AVAILABLE

AUDIT: Final = "ledger"
OVERTAKEN_BY: Final = 1000
"""A message is overtaken when so many later ones were delivered, and it never was: far more than any credit
window.
"""


def findings(events: DataFrame, messages: DataFrame, span: Span, *, drained: bool = False) -> DataFrame:
    """All findings of the ledger. `drained`: at the end of the log every queue was empty, so that what has
    no end is lost.
    """
    return together(
        _fates(messages, span, drained),
        _numbers(messages),
        _order(messages),
        _sequences(events),
        _duplicates(events),
    )


def _fates(messages: DataFrame, span: Span, drained: bool) -> DataFrame:
    open_still = "puts > 0 AND end_lsn IS NULL"
    if drained:
        end = Rule("lost", open_still, "it came in and never came out")
    else:
        overtaken = f"{open_still} AND deliveries = 0 AND offset + {OVERTAKEN_BY} <= delivered_offset"
        end = Rule("overtaken", overtaken,
                   "never delivered, and others up to offset {delivered_offset} were", WARNING)  # fmt: skip
    other_end = "accepts + rejects + deads + expires > 0"
    return judge(
        beside_others(messages, span), AUDIT, KEY, PLACES,
        Rule("number-twice", "puts > 1", "{puts} messages have one number",
             example="put lsn {put_lsn} and lsn {last_put_lsn}"),
        Rule("phantom", "puts = 0 AND seen AND (deliveries > 0 OR accepts > 0)",
             "it came out and never came in"),
        Rule("too-early", "first_deliver_lsn < put_lsn", "it was delivered before it was put"),
        Rule("delivered-again", "last_deliver_lsn > accept_lsn", "it was accepted and delivered again"),
        Rule("settled-twice", "accepts + rejects > 1",
             "accepted {accepts} times and rejected {rejects} times"),
        Rule("archived-and-taken",
             f"archive_lsn IS NOT NULL AND ({other_end} OR last_deliver_lsn > archive_lsn)",
             "a log archived it, and it was delivered afterwards or has another outcome"),
        end,
    )  # fmt: skip


def _numbers(messages: DataFrame) -> DataFrame:
    missing = gaps(messages.where("puts > 0").select("address", "offset"), ["address"], "offset")
    return judge(
        missing, AUDIT, "{address} offset {first} to {last}",
        "between offset {first - 1} and offset {last + 1}",
        Rule("offset-missing", "kind = 'missing'",
             "{last - first + 1} numbers were given to no message that is in the log"),
    )  # fmt: skip


def _order(messages: DataFrame) -> DataFrame:
    """The numbers of a queue rise with the log."""
    before = "lag(put_lsn) OVER (PARTITION BY address ORDER BY offset) AS before"
    steps = messages.where("puts > 0").selectExpr("address", "offset", "put_lsn", before)
    rule = Rule("order", "put_lsn < before", "it came in before the one with the number below")
    return judge(steps, AUDIT, KEY, "put lsn {put_lsn}, the one before it lsn {before}", rule)


def _sequences(events: DataFrame) -> DataFrame:
    """Of a stream, (id, number) rises strictly with the number in the queue, and is there once."""
    numbered = events.where(f"type IN {AVAILABLE} AND seq_stream IS NOT NULL").select(
        "address", "seq_stream", "seq_id", "seq_no", "offset", "lsn"
    )
    of_stream = "PARTITION BY address, seq_stream ORDER BY offset, lsn"
    steps = numbered.selectExpr("*", f"lag(struct(seq_id, seq_no)) OVER ({of_stream}) AS before")
    same = numbered.groupBy("address", "seq_stream", "seq_id", "seq_no").agg(
        F.count(F.lit(1)).alias("n"), F.min("lsn").alias("one"), F.max("lsn").alias("other")
    )
    key = "{address} stream {seq_stream} id {seq_id} number {seq_no}"
    after = "lsn {lsn}, offset {offset}, after id {before.seq_id} number {before.seq_no}"
    gap = Rule("sequence-gap", "before.seq_id = seq_id AND seq_no > before.seq_no + 1",
               "{seq_no - before.seq_no - 1} numbers before it were left out", WARNING)  # fmt: skip
    backwards = Rule("sequence-order", "struct(seq_id, seq_no) < before", "accepted after a later one")
    twice = Rule("sequence-duplicate", "n > 1", "accepted {n} times")
    return together(
        judge(steps, AUDIT, key, after, backwards, gap),
        judge(same, AUDIT, key, "lsn {one} and lsn {other}", twice),
    )


def _duplicates(events: DataFrame) -> DataFrame:
    """A producer may send again when it lost an answer, so this is for somebody to look at.

    Names are long and nearly all of them are there once: they are counted by their hashes first.
    """
    name = ["address", "container", "message_id"]
    named = events.where(f"type IN {AVAILABLE} AND message_id IS NOT NULL").select(
        *name, "offset", F.xxhash64(*name).alias("hash")
    )
    often = named.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).where("n > 1").select("hash")
    same = (
        named.join(F.broadcast(often), "hash", "left_semi")
        .groupBy(*name)
        .agg(F.count(F.lit(1)).alias("n"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    rule = Rule("duplicated", "n > 1 AND first != last", "{container} sent it {n} times", WARNING)
    return judge(same, AUDIT, "{address} message-id {message_id}", "offsets {first} and {last}", rule)
