"""What became of each message: one row for each address and offset, from which most audits are read.

This is the one big shuffle of an audit, so only numbers travel in it: who sent a message and what it was
called is looked up where a finding needs it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE

MESSAGE_EVENTS: Final = (*AVAILABLE, "deliver", "settle", "dead", "expire")
KEY: Final = "{address} offset {offset}"
"""How findings name a message."""
PLACES: Final = (
    "put lsn {put_lsn}, delivered lsn {first_deliver_lsn} to {last_deliver_lsn}, "
    "accepted lsn {accept_lsn}, ended lsn {end_lsn}"
)
"""Where the log tells about a message."""


def messages(events: DataFrame) -> DataFrame:
    """One row for each (address, offset) of the log.

    Counts: puts, deliveries, accepts, rejects, deads, silent_deads (without a reason), expires. Places in
    the log (lsn): put_lsn and last_put_lsn, first_deliver_lsn, last_deliver_lsn, accept_lsn, archive_lsn (by
    a log, with its put), end_lsn (the last outcome that ended it), dead_lsn. Times in microseconds of the
    Unix epoch: put_us, deliver_us, end_us. And bytes.
    """
    kind, lsn = F.col("type"), F.col("lsn")
    put = kind.isin(*AVAILABLE)
    deliver, dead, expire = kind == "deliver", kind == "dead", kind == "expire"
    accept = (kind == "settle") & (F.col("outcome") == "accepted")
    reject = (kind == "settle") & (F.col("outcome") == "rejected")
    archive = (put | (kind == "settle")) & F.coalesce(F.col("outcome") == ARCHIVED, F.lit(False))
    end = accept | reject | dead | expire | archive
    at_us = F.unix_micros("time")
    return (
        events.where(kind.isin(*MESSAGE_EVENTS) & F.col("address").isNotNull() & F.col("offset").isNotNull())
        .groupBy("address", "offset")
        .agg(
            F.count_if(put).alias("puts"),
            _first(put, lsn).alias("put_lsn"),
            _last(put, lsn).alias("last_put_lsn"),
            _first(put, at_us).alias("put_us"),
            _last(put, F.col("bytes")).alias("bytes"),
            F.count_if(deliver).alias("deliveries"),
            _first(deliver, lsn).alias("first_deliver_lsn"),
            _last(deliver, lsn).alias("last_deliver_lsn"),
            _first(deliver, at_us).alias("deliver_us"),
            F.count_if(accept).alias("accepts"),
            _first(accept, lsn).alias("accept_lsn"),
            F.count_if(reject).alias("rejects"),
            _last(archive, lsn).alias("archive_lsn"),
            F.count_if(dead).alias("deads"),
            F.count_if(dead & (F.coalesce(F.col("reason"), F.lit("")) == "")).alias("silent_deads"),
            _first(dead | expire, lsn).alias("dead_lsn"),
            F.count_if(expire).alias("expires"),
            _last(end, lsn).alias("end_lsn"),
            _first(end, at_us).alias("end_us"),
        )
    )


def beside_others(messages: DataFrame, span: Span) -> DataFrame:
    """Each message with first_offset, the lowest of its address that was put, delivered_offset, the highest
    that was delivered, and whether the log must have `seen` its put.
    """
    addresses = messages.groupBy("address").agg(
        _first(F.col("puts") > 0, F.col("offset")).alias("first_offset"),
        _last(F.col("deliveries") > 0, F.col("offset")).alias("delivered_offset"),
    )
    seen = F.lit(span.complete) | F.expr("offset >= first_offset")
    return messages.join(F.broadcast(addresses), "address").withColumn("seen", seen)


def _first(when: Column, value: Column) -> Column:
    return F.min(F.when(when, value))


def _last(when: Column, value: Column) -> Column:
    return F.max(F.when(when, value))
