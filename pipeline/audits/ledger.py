"""The ledger: every message that came in against what became of it, and in which order.

`lost`, `offset-missing`: something that was put has no end, or a number was given to nothing. `duplicated`:
the same message is there under two numbers. `phantom`: something came out that never came in. `order`,
`sequence-order`, `sequence-gap`: the numbers of a queue and of a stream rise. `delivered-again`: after its
acceptance. A log that begins in the middle is judged from its first put of each address on.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.findings import WARNING, Rule, judge, text
from amqp_broker.pipeline.audits.gaps import gaps
from amqp_broker.pipeline.audits.messages import addresses
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.event_schema import AVAILABLE

AUDIT: Final = "ledger"
OVERTAKEN_BY: Final = 1000
"""A message is overtaken when so many later ones were delivered, and it never was: far more than any credit
window.
"""

_KEY: Final = "{address} offset {offset}"
_PLACES: Final = (
    "put lsn {put_lsn}, delivered lsn {first_deliver_lsn} to {last_deliver_lsn}, "
    "accepted lsn {accept_lsn}, ended lsn {end_lsn}"
)


def findings(events: DataFrame, messages: DataFrame, span: Span, *, drained: bool = False) -> DataFrame:
    """All findings of the ledger. `drained`: at the end of the log every queue was empty, so that what has
    no end is lost.
    """
    return (
        _fates(messages, span, drained)
        .unionByName(_numbers(messages))
        .unionByName(_order(messages))
        .unionByName(_sequences(events))
        .unionByName(_duplicates(events))
    )


def message_key() -> Column:
    """How findings name a message."""
    return text(_KEY, address="address", offset="offset")


def message_places() -> Column:
    """Where the log tells about a message."""
    names = ("put_lsn", "first_deliver_lsn", "last_deliver_lsn", "accept_lsn", "end_lsn")
    return text(_PLACES, **{name: name for name in names})


def _fates(messages: DataFrame, span: Span, drained: bool) -> DataFrame:
    known = messages.join(F.broadcast(addresses(messages)), "address")
    key, places = message_key(), message_places()
    put, ended = F.col("puts") > 0, F.col("end_lsn").isNotNull()
    seen = F.lit(span.complete) | (F.col("offset") >= F.col("first_offset"))
    overtaken = (F.col("deliveries") == 0) & (F.col("offset") + OVERTAKEN_BY <= F.col("delivered_offset"))
    other_end = (F.col("accepts") + F.col("rejects") + F.col("deads") + F.col("expires")) > 0
    archived = F.col("archive_lsn")
    taken = archived.isNotNull() & (other_end | (F.col("last_deliver_lsn") > archived))
    rules = [
        Rule("number-twice", F.col("puts") > 1, key, text("{n} messages have one number", n="puts"),
             text("put lsn {one} and lsn {other}", one="put_lsn", other="last_put_lsn")),
        Rule("phantom", ~put & seen & ((F.col("deliveries") > 0) | (F.col("accepts") > 0)), key,
             text("it came out and never came in"), places),
        Rule("too-early", F.col("first_deliver_lsn") < F.col("put_lsn"), key,
             text("it was delivered before it was put"), places),
        Rule("delivered-again", F.col("last_deliver_lsn") > F.col("accept_lsn"), key,
             text("it was accepted and delivered again"), places),
        Rule("settled-twice", (F.col("accepts") + F.col("rejects")) > 1, key,
             text("accepted {a} times and rejected {r} times", a="accepts", r="rejects"), places),
        Rule("archived-and-taken", taken, key,
             text("a log archived it, and it was delivered afterwards or has another outcome"), places),
    ]  # fmt: skip
    if drained:
        lost = Rule("lost", put & ~ended, key, text("it came in and never came out"), places)
    else:
        lost = Rule("overtaken", put & ~ended & overtaken, key,
                    text("never delivered, and others up to offset {n} were", n="delivered_offset"),
                    places, WARNING)  # fmt: skip
    return judge(known, AUDIT, [*rules, lost])


def _numbers(messages: DataFrame) -> DataFrame:
    missing = gaps(messages.where("puts > 0").select("address", "offset"), ["address"], "offset")
    first, last = F.col("first"), F.col("last")
    key = text("{address} offset {first} to {last}", address="address", first=first, last=last)
    rule = Rule(
        "offset-missing",
        F.col("kind") == "missing",
        key,
        text(
            "{n} numbers were given to no message that is in the log", n=F.col("last") - F.col("first") + 1
        ),
        text(
            "between offset {before} and offset {after}", before=F.col("first") - 1, after=F.col("last") + 1
        ),
    )
    return judge(missing, AUDIT, [rule])


def _order(messages: DataFrame) -> DataFrame:
    """The numbers of a queue rise with the log."""
    by_number = Window.partitionBy("address").orderBy("offset")
    steps = messages.where("puts > 0").select(
        "address", "offset", "put_lsn", F.lag("put_lsn").over(by_number).alias("before")
    )
    rule = Rule(
        "order",
        F.col("put_lsn") < F.col("before"),
        message_key(),
        text("it came in before the one with the number below"),
        text("put lsn {put_lsn}, the one before it lsn {before}", put_lsn="put_lsn", before="before"),
    )
    return judge(steps, AUDIT, [rule])


def _sequences(events: DataFrame) -> DataFrame:
    """Of a stream, (id, number) rises strictly with the number in the queue, and is there once."""
    stream = Window.partitionBy("address", "seq_stream").orderBy("offset", "lsn")
    place = F.struct("seq_id", "seq_no")
    numbered = events.where(F.col("type").isin(*AVAILABLE) & F.col("seq_stream").isNotNull()).select(
        "address", "seq_stream", "seq_id", "seq_no", "offset", "lsn"
    )
    steps = numbered.withColumn("before", F.lag(place).over(stream))
    names = {name: name for name in ("address", "seq_stream", "seq_id", "seq_no", "offset", "lsn")}
    key = text("{address} stream {seq_stream} id {seq_id} number {seq_no}", **names)
    example = text(
        "lsn {lsn}, offset {offset}, after id {id} number {no}",
        id=F.col("before.seq_id"), no=F.col("before.seq_no"), **names,
    )  # fmt: skip
    same_id = F.col("before.seq_id") == F.col("seq_id")
    rules = [
        Rule("sequence-order", place < F.col("before"), key, text("accepted after a later one"), example),
        Rule("sequence-gap", same_id & (F.col("seq_no") > F.col("before.seq_no") + 1), key,
             text("{n} numbers before it were left out",
                   n=F.col("seq_no") - F.col("before.seq_no") - 1), example, WARNING),
    ]  # fmt: skip
    same = numbered.groupBy("address", "seq_stream", "seq_id", "seq_no").agg(
        F.count(F.lit(1)).alias("n"), F.min("lsn").alias("one"), F.max("lsn").alias("other")
    )
    twice = Rule("sequence-duplicate", F.col("n") > 1, key, text("accepted {n} times", n="n"),
                 text("lsn {one} and lsn {other}", one="one", other="other"))  # fmt: skip
    return judge(steps, AUDIT, rules).unionByName(judge(same, AUDIT, [twice]))


def _duplicates(events: DataFrame) -> DataFrame:
    """A producer may send again when it lost an answer, so this is for somebody to look at.

    Names are long and nearly all of them are there once: they are counted by their hashes first.
    """
    name = ["address", "container", "message_id"]
    named = events.where(F.col("type").isin(*AVAILABLE) & F.col("message_id").isNotNull()).select(
        *name, "offset", F.xxhash64(*name).alias("hash")
    )
    often = named.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).where("n > 1").select("hash")
    same = (
        named.join(F.broadcast(often), "hash", "left_semi")
        .groupBy(*name)
        .agg(F.count(F.lit(1)).alias("n"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    rule = Rule(
        "duplicated",
        (F.col("n") > 1) & (F.col("first") != F.col("last")),
        text("{address} message-id {id}", address="address", id="message_id"),
        text("{container} sent it {n} times", container="container", n="n"),
        text("offsets {first} and {last}", first="first", last="last"),
        WARNING,
    )
    return judge(same, AUDIT, [rule])
