"""Which things need a judge at all. Nearly all lives are plain: put, delivered, accepted. Spark finds the
others, and Python judges only those.

What is plain here is well by the tables of lives.py, never the other way round: a thing that nobody suspects
has nothing that its judge would find (tests/pipeline/spark/test_suspects.py holds that with planted faults).
Names are compared by their hashes of 64 bits: strings would be sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.judging import (
    ANNOTATED_OCTETS,
    CRASH_US,
    FALLING,
    Consumer,
    Half,
    Judge,
    Message,
    Queue,
    Sequence,
    Sight,
    Transaction,
)
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE

BLOCK: Final = 65_536
"""Numbers of a queue that are compared by one task."""
FEW: Final = 500_000
"""So many keys are sent to each task; more are shuffled."""

FEW_EVENTS: Final = 200_000
"""Of fewer events all things are judged: that takes less than to look for those that are not plain."""

Suspects = Mapping[type[Judge], Callable[[], DataFrame]]


def of_all(events: DataFrame, each: DataFrame, halves: DataFrame, sight: Sight) -> Suspects:
    """For each judge the keys of the things to be judged, all others being plain; a judge that is not named
    judges everything. `each` and `halves`: the tables of messages.py and transactions.py.
    """
    return {
        Message: lambda: each.where("suspect").select(*Message.KEY),
        Half: lambda: halves.where("suspect").select(*Half.KEY),
        Queue: lambda: _queues(each),
        Sequence: lambda: _sequences(events, sight),
        Consumer: lambda: _consumers(events),
        Transaction: lambda: _transactions(events),
    }


def among(rows: DataFrame, judge: type[Judge], suspects: DataFrame) -> DataFrame:
    """The rows of the things that are suspected."""
    kept = suspects.persist()
    few = kept.count() <= FEW
    return rows.join(F.broadcast(kept) if few else kept, list(judge.KEY), "left_semi")


def hashed(when: Column, name: str) -> tuple[Column, Column]:
    """The least and the greatest hash of a column: the same where its value is."""
    value = F.when(when, F.xxhash64(name))
    return F.min(value), F.max(value)


# --- messages: put, once delivered, accepted; or archived by a log

PLAIN_MESSAGE: Final = f"""
    puts = 1 AND n = 1 AND archived = 1
    OR puts = 1 AND archived = 0 AND accepted = 1 AND deliveries <= 1 AND n = 2 + deliveries
        AND put_lsn < accepted_lsn AND accepted_us >= put_us - {CRASH_US}
        AND (deliveries = 0 OR put_lsn < deliver_lsn AND deliver_lsn < accepted_lsn
            AND deliver_us >= put_us - {CRASH_US} AND accepted_us >= deliver_us - {CRASH_US}
            AND taker = settler)
"""
"""Over the columns that the events of a message are gathered in (messages.py)."""


def message_columns() -> list[Column]:
    """What PLAIN_MESSAGE looks at, beside what a message has there."""
    kind, lsn, at_us, outcome = F.col("type"), F.col("lsn"), F.unix_micros("time"), F.col("outcome")
    put, deliver = kind.isin(*AVAILABLE), kind == "deliver"
    accepted = (kind == "settle") & F.coalesce(outcome == "accepted", F.lit(False))
    return [
        F.count(F.lit(1)).alias("n"),
        F.count_if(put & F.coalesce(outcome == ARCHIVED, F.lit(False))).alias("archived"),
        F.count_if(accepted).alias("accepted"),
        F.min(F.when(put, lsn)).alias("put_lsn"),
        F.min(F.when(deliver, lsn)).alias("deliver_lsn"),
        F.min(F.when(accepted, lsn)).alias("accepted_lsn"),
        F.min(F.when(deliver, at_us)).alias("deliver_us"),
        F.min(F.when(accepted, at_us)).alias("accepted_us"),
        F.min(F.when(deliver, F.xxhash64("container"))).alias("taker"),
        F.min(F.when(accepted, F.xxhash64("container"))).alias("settler"),
    ]


# --- half messages: put, then visible and committed at one moment and place, or rolled back

PLAIN_HALF: Final = f"""
    halves = 1 AND publishes = 1 AND commits = 1 AND n = 3
        AND half_lsn < publish_lsn AND publish_lsn < decide_lsn AND publish_us = decide_us
        AND address_low = address_high AND publish_offset = decide_offset
        AND publish_bytes - half_bytes BETWEEN 0 AND {ANNOTATED_OCTETS} AND container_low = container_high
    OR halves = 1 AND rollbacks = 1 AND n = 2 AND half_lsn < decide_lsn
"""
"""Over the columns that the events of a half message are gathered in (transactions.py)."""


def half_columns() -> list[Column]:
    """What PLAIN_HALF looks at, beside what a half message has there."""
    kind, lsn, at_us = F.col("type"), F.col("lsn"), F.unix_micros("time")
    half, publish, decide = kind == "half", kind == "publish", kind == "decide"
    octets = F.coalesce("bytes", F.lit(0))
    address_low, address_high = hashed(half | publish | decide, "address")
    container_low, container_high = hashed(half | publish, "container")
    return [
        F.count(F.lit(1)).alias("n"),
        F.count_if(publish).alias("publishes"),
        F.min(F.when(half, lsn)).alias("half_lsn"),
        F.min(F.when(publish, lsn)).alias("publish_lsn"),
        F.min(F.when(decide, lsn)).alias("decide_lsn"),
        F.min(F.when(publish, at_us)).alias("publish_us"),
        F.min(F.when(publish, F.col("offset"))).alias("publish_offset"),
        F.min(F.when(decide, F.col("offset"))).alias("decide_offset"),
        F.min(F.when(half, octets)).alias("half_bytes"),
        F.min(F.when(publish, octets)).alias("publish_bytes"),
        address_low.alias("address_low"), address_high.alias("address_high"),
        container_low.alias("container_low"), container_high.alias("container_high"),
    ]  # fmt: skip


# --- things that are plain if each event follows the one before it

def _queues(each: DataFrame) -> DataFrame:
    """Addresses whose numbers are not given one after the other. Blocks of numbers are looked at one by one,
    then how they follow each other.
    """
    place = F.floor(F.col("offset") / BLOCK).alias("block")
    puts = each.where("puts > 0").select("address", place, "offset", "put_lsn", "puts")
    in_block = Window.partitionBy("address", "block").orderBy("offset")
    steps = puts.select(
        "address", "block", "offset", "put_lsn",
        (
            (F.col("puts") == 1)
            & F.coalesce(F.col("offset") == F.lag("offset").over(in_block) + 1, F.lit(True))
            & F.coalesce(F.col("put_lsn") > F.lag("put_lsn").over(in_block), F.lit(True))
        ).alias("follows"),
    )  # fmt: skip
    blocks = steps.groupBy("address", "block").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.bool_and("follows").alias("well"),
        F.min("put_lsn").alias("first_lsn"), F.max("put_lsn").alias("last_lsn"),
    )  # fmt: skip
    of_queue = Window.partitionBy("address").orderBy("block")
    follows = F.coalesce(F.col("first") == F.lag("last").over(of_queue) + 1, F.lit(True)) & F.coalesce(
        F.col("first_lsn") > F.lag("last_lsn").over(of_queue), F.lit(True)
    )
    return blocks.withColumn("follows", follows).where("NOT (well AND follows)").select("address").distinct()


def _sequences(events: DataFrame, sight: Sight) -> DataFrame:
    """Streams in which a number does not follow the one before it."""
    rows = _own(events, Sequence).select(*Sequence.KEY, "lsn", "seq_id", "seq_no", "seq_prev")
    in_order = Window.partitionBy(*Sequence.KEY).orderBy("lsn")
    steps = rows.withColumns({
        "last_id": F.lag("seq_id").over(in_order), "last_no": F.lag("seq_no").over(in_order)
    })  # fmt: skip
    first = "last_id IS NULL" + (" AND seq_no = 1" if sight.complete else "")
    follows = "seq_id = last_id AND seq_no = last_no + 1 OR seq_id > last_id AND seq_no = 1"
    plain = f"seq_prev IS NULL AND ({first} OR last_id IS NOT NULL AND ({follows}))"
    return steps.where(f"NOT ({plain})").select(*Sequence.KEY).distinct()


def _consumers(events: DataFrame) -> DataFrame:
    """Consumers to which numbers fell in a row."""
    rows = _own(events, Consumer).where("attempt = 1").select(*Consumer.KEY, "lsn", "offset")
    in_order = Window.partitionBy(*Consumer.KEY).orderBy("lsn")
    before = {f"o{back}": F.lag("offset", back).over(in_order) for back in range(1, FALLING + 1)}
    names = ["offset", *before]
    falls = " AND ".join(f"{one} < {other}" for one, other in zip(names, names[1:], strict=False))
    return rows.withColumns(before).where(falls).select(*Consumer.KEY).distinct()


def _transactions(events: DataFrame) -> DataFrame:
    """Transactions that are told of at more than one time."""
    rows = _own(events, Transaction).groupBy(*Transaction.KEY).agg(
        F.min("time").alias("begin"), F.max("time").alias("end")
    )
    return rows.where("begin < end").select(*Transaction.KEY)


def _own(events: DataFrame, judge: type[Judge]) -> DataFrame:
    return events.where(own(judge))


def own(judge: type[Judge]) -> Column:
    """True for the events that a judge takes."""
    found = F.col("type").isin(*judge.TYPES)
    for name in (*judge.KEY, *judge.HAS):
        found = found & F.col(name).isNotNull()
    for name in judge.HAS_NOT:
        found = found & F.col(name).isNull()
    return found

