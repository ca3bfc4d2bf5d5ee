"""What became of each message: one row for each address and offset, of which the report draws the traffic,
and which of them a judge has to look at.

Only numbers travel in this shuffle.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqp_broker.pipeline.audits.suspects import PLAIN_MESSAGE, message_columns
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE

MESSAGE_EVENTS: Final = (*AVAILABLE, "deliver", "settle", "dead", "expire")


def messages(events: DataFrame) -> DataFrame:
    """One row for each (address, offset) of the log: how many puts and deliveries; archive_lsn (by a log) and
    end_lsn (the last outcome that ended it); put_lsn, put_us and end_us (the first), in microseconds of the
    Unix epoch; bytes; suspect: whether its life is not plain.
    """
    kind, lsn, outcome = F.col("type"), F.col("lsn"), F.col("outcome")
    put, settle = kind.isin(*AVAILABLE), kind == "settle"
    archive = (put | settle) & F.coalesce(outcome == ARCHIVED, F.lit(False))
    end = (settle & outcome.isin("accepted", "rejected")) | kind.isin("dead", "expire") | archive
    at_us = F.unix_micros("time")
    gathered = (
        events.where(kind.isin(*MESSAGE_EVENTS) & F.col("address").isNotNull() & F.col("offset").isNotNull())
        .groupBy("address", "offset")
        .agg(
            F.count_if(put).alias("puts"),
            _first(put, at_us).alias("put_us"),
            _last(put, F.col("bytes")).alias("bytes"),
            F.count_if(kind == "deliver").alias("deliveries"),
            _last(archive, lsn).alias("archive_lsn"),
            _last(end, lsn).alias("end_lsn"),
            _first(end, at_us).alias("end_us"),
            *message_columns(),
        )
    )
    return gathered.withColumn("suspect", F.expr(f"NOT coalesce({PLAIN_MESSAGE}, false)")).select(
        "address", "offset", "puts", "put_lsn", "put_us", "bytes", "deliveries", "archive_lsn", "end_lsn",
        "end_us", "suspect",
    )  # fmt: skip


def _first(when: Column, value: Column) -> Column:
    return F.min(F.when(when, value))


def _last(when: Column, value: Column) -> Column:
    return F.max(F.when(when, value))
