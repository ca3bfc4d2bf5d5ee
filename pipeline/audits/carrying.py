"""Brings the judges of judging.py and log.py their events on Spark: those of one thing to one worker, in the
order of the log, if it is suspected (suspects.py). What a worker has in memory is a thing, and what a judge
of it remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from amqp_broker.pipeline.audits.judging import Beside, Found, Judge, Sight, judged
from amqp_broker.pipeline.audits.lives import FAULTS
from amqp_broker.pipeline.audits.log import CLOCK_US, Run, breaks, joined, malformed, malformed_sql
from amqp_broker.pipeline.audits.suspects import Suspects, among, own
from amqp_broker.pipeline.event_schema import AVAILABLE, EVENT_COLUMNS

FINDING: Final = ("audit", "kind", "severity", "key", "detail", "example")
FINDING_DDL: Final = ", ".join(f"`{name}` string" for name in FINDING)
RUN_DDL: Final = "first bigint, last bigint, begin_us bigint, end_us bigint"
BLOCK: Final = 65_536
"""Events of the log that a worker joins to runs at a time."""
ROWS: Final = 4_096
Batches = Iterator[pyarrow.RecordBatch]


def found_rows(spark: Any, found: Iterable[Found]) -> DataFrame:
    """What was found outside of Spark, as rows of FINDING."""
    return spark.createDataFrame([_row(one) for one in found], FINDING_DDL)


def _row(one: Found) -> tuple[str, ...]:
    return (FAULTS[one.kind].audit, one.kind, FAULTS[one.kind].severity, *one[1:])


def addresses(events: DataFrame) -> dict[str, Beside]:
    """What each address has that tells of its messages."""
    put, deliver = F.col("type").isin(*AVAILABLE), F.col("type") == "deliver"
    frame = (
        events.where((put | deliver) & F.col("address").isNotNull())
        .groupBy("address")
        .agg(
            F.min(F.when(put, F.col("offset"))).alias("first"),
            F.max(F.when(deliver, F.col("offset"))).alias("delivered"),
        )
        .where("first IS NOT NULL")
    )
    return {
        row["address"]: Beside(row["first"], -1 if row["delivered"] is None else row["delivered"])
        for row in frame.collect()
    }


def findings(
    events: DataFrame, judge: type[Judge], sight: Sight, suspects: Suspects | None = None
) -> DataFrame:
    """What a judge finds, as rows of FINDING; without `suspects` it looks at everything."""
    columns = dict.fromkeys((*judge.KEY, *judge.HAS, *judge.LOOKS_AT))
    rows = events.where(own(judge)).select("lsn", F.unix_micros("time").alias("at_us"), "type", *columns)
    if suspects is not None and judge in suspects:
        rows = among(rows, judge, suspects[judge]())
    rows = rows.select("lsn", "at_us", "type", *columns)
    in_order = rows.repartition(*judge.KEY).sortWithinPartitions(*judge.KEY, "lsn")
    return map_in_arrow(in_order, _carried(lambda told: judged(judge, told, sight)), FINDING_DDL)


def log_findings(events: DataFrame) -> DataFrame:
    """What is wrong with the log itself."""
    block = F.floor(F.col("lsn") / BLOCK)
    numbers = events.select("lsn", F.unix_micros("time").alias("at_us"))
    runs = map_in_arrow(numbers.repartition(block).sortWithinPartitions("lsn"), _runs, RUN_DDL)
    places = map_in_arrow(
        runs.coalesce(1).sortWithinPartitions("first"), _carried(_breaks), FINDING_DDL
    )
    # No column of a name that Spark's SQL takes for something else, and no row that is well.
    strange = events.where(malformed_sql()).select(*(name for name, _ in EVENT_COLUMNS))
    return places.unionByName(map_in_arrow(strange, _carried(_malformed), FINDING_DDL))


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which asks for pandas before it does the same; nothing here needs it."""
    mapped = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = mapped(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)


def _runs(batches: Batches) -> Batches:
    runs = (run for batch in batches if batch.num_rows for run in _runs_of(*batch.columns))
    yield from _in_batches(joined(runs), Run._fields, pyarrow.int64())


def _runs_of(lsns: Any, times_us: Any) -> Iterable[Run]:
    """A batch that is one run is so by columns; of another one each event is a run."""
    count = len(lsns)
    steps = compute.subtract(lsns[1:], lsns[:-1])
    passed = compute.subtract(times_us[1:], times_us[:-1])
    if count == 1 or (
        compute.all(compute.equal(steps, 1)).as_py()
        and compute.all(compute.greater_equal(passed, -CLOCK_US)).as_py()
    ):
        return [Run(lsns[0].as_py(), lsns[-1].as_py(), times_us[0].as_py(), times_us[-1].as_py())]
    return (
        Run(lsn, lsn, at_us, at_us)
        for lsn, at_us in zip(lsns.to_pylist(), times_us.to_pylist(), strict=True)
    )


def _breaks(told: Iterable[dict[str, Any]]) -> Iterator[Found]:
    return breaks(Run(**run) for run in told)


def _malformed(told: Iterable[dict[str, Any]]) -> Iterator[Found]:
    return (found for event in told if (found := malformed(event)) is not None)


def _carried(find: Callable[[Iterable[dict[str, Any]]], Iterator[Found]]) -> Callable[[Batches], Batches]:
    def carry(batches: Batches) -> Batches:
        yield from _in_batches(map(_row, find(_events(batches))), FINDING, pyarrow.string())

    return carry


def _events(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        names = batch.schema.names
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield dict(zip(names, row, strict=True))


def _in_batches(rows: Iterable[tuple[Any, ...]], names: tuple[str, ...], kind: Any) -> Batches:
    kept: list[tuple[Any, ...]] = []
    for row in rows:
        kept.append(row)
        if len(kept) == ROWS:
            yield _batch(kept, names, kind)
            kept = []
    if kept:
        yield _batch(kept, names, kind)


def _batch(rows: list[tuple[Any, ...]], names: tuple[str, ...], kind: Any) -> pyarrow.RecordBatch:
    columns = [pyarrow.array(column, kind) for column in zip(*rows, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, names=list(names))
