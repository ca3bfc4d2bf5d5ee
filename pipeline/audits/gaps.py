"""Numbers that should be dense: which are missing, which are there twice. No sort and no window over all.

The numbers are counted in blocks; a block whose count, sum and sum of squares are those of its range is
sound. Only the others are looked at number by number.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BLOCK: Final = 4096  # small enough to list the missing numbers of one, large enough that blocks are few


def gaps(frame: DataFrame, keys: list[str], number: str) -> DataFrame:
    """Rows (keys..., first, last, kind): kind "missing" for a range of numbers that should be between the
    lowest and the highest of its keys and is not, "double" for one that is there more than once.
    """
    value = F.col(number)
    numbers = frame.select(*keys, value.alias("n"), F.floor(value / BLOCK).cast("bigint").alias("block"))
    within = F.col("n") - F.col("block") * BLOCK
    blocks = numbers.groupBy(*keys, "block").agg(
        F.count(F.lit(1)).alias("found"),
        F.min("n").alias("low"),
        F.max("n").alias("high"),
        F.sum(within).alias("total"),
        F.sum(within * within).alias("squares"),
    )
    ranges = blocks.groupBy(*keys).agg(F.min("low").alias("lowest"), F.max("high").alias("highest"))
    expected = ranges.withColumn(
        "block",
        F.explode(
            F.sequence(
                F.floor(F.col("lowest") / BLOCK).cast("bigint"),
                F.floor(F.col("highest") / BLOCK).cast("bigint"),
            )
        ),
    )
    start = F.greatest(F.col("lowest"), F.col("block") * BLOCK)
    stop = F.least(F.col("highest"), (F.col("block") + 1) * BLOCK - 1)
    a, b = start - F.col("block") * BLOCK, stop - F.col("block") * BLOCK
    unsound = expected.join(blocks, [*keys, "block"], "left").where(
        F.col("found").isNull()
        | (F.col("found") != stop - start + 1)
        | (F.col("total") * 2 != (a + b) * (b - a + 1))
        | (F.col("squares") * 6 != b * (b + 1) * (2 * b + 1) - (a - 1) * a * (2 * a - 1))
    )
    unsound = unsound.select(*keys, "block", start.alias("start"), stop.alias("stop"))
    inside = (
        numbers.join(F.broadcast(unsound.select(*keys, "block")), [*keys, "block"], "left_semi")
        .groupBy(*keys, "block")
        .agg(F.sort_array(F.collect_list("n")).alias("there"))
    )
    compared = unsound.join(inside, [*keys, "block"], "left").withColumn(
        "there", F.coalesce("there", F.array().cast("array<bigint>"))
    )
    return _missing(compared, keys).unionByName(_double(compared, keys))


def _missing(compared: DataFrame, keys: list[str]) -> DataFrame:
    """Each run of numbers between two neighbours of a block that are not one apart."""
    fenced = F.concat(F.array(F.col("start") - 1), F.col("there"), F.array(F.col("stop") + 1))
    steps = F.zip_with(
        F.slice(fenced, 1, F.size(fenced) - 1),
        F.slice(fenced, 2, F.size(fenced) - 1),
        lambda one, other: F.struct((one + 1).alias("first"), (other - 1).alias("last")),
    )
    return (
        compared.select(*keys, F.explode(steps).alias("run"))
        .select(*keys, "run.first", "run.last", F.lit("missing").alias("kind"))
        .where("first <= last")
    )


def _double(compared: DataFrame, keys: list[str]) -> DataFrame:
    return (
        compared.select(*keys, F.explode("there").alias("first"))
        .groupBy(*keys, "first")
        .agg(F.count(F.lit(1)).alias("times"))
        .where("times > 1")
        .select(*keys, "first", F.col("first").alias("last"), F.lit("double").alias("kind"))
    )
