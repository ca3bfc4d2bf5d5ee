"""Frames of a few rows, made without a Python worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow

from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from tests.pipeline.truthful_day import Event, rows

_ARROW: Final = {
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "string": pyarrow.string(),
    "timestamp": pyarrow.timestamp("us", tz="UTC"),
}
FOR_FEW_ROWS: Final = {
    # A few rows are faster interpreted than compiled, and in one partition.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
@contextmanager
def for_few_rows(spark: Any) -> Iterator[Any]:
    """The session, set for a few rows; afterwards as it was."""
    before = {key: spark.conf.get(key) for key in FOR_FEW_ROWS}
    for key, value in FOR_FEW_ROWS.items():
        spark.conf.set(key, value)
    try:
        yield spark
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def event_frame(spark: Any, events: Iterable[Event]) -> Any:
    """Events as a frame of the archive's columns."""
    return frame_of(spark, rows(events), EVENT_COLUMNS)


def frame_of(spark: Any, rows: Iterable[Sequence[Any]], columns: Sequence[tuple[str, str]]) -> Any:
    """Rows as a frame of these columns (name, Spark type)."""
    return spark.createDataFrame(table_of(rows, columns))


def table_of(rows: Iterable[Sequence[Any]], columns: Sequence[tuple[str, str]]) -> Any:
    """Rows as an Arrow table of these columns (name, Spark type)."""
    kept = list(rows)
    arrays = [pyarrow.array([row[at] for row in kept], _ARROW[kind]) for at, (_, kind) in enumerate(columns)]
    return pyarrow.Table.from_arrays(arrays, names=[name for name, _ in columns])
