"""Many small batches of an archive become few large files, by day and type.

What is read of a compacted archive is what an audit needs: the types that it looks at, and the columns.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.event_schema import EVENT_DDL

ROWS_PER_FILE: Final = 4_000_000
MOST_SEGMENTS: Final = 8
"""When there are as many, they are written together into one."""


def compact(spark: Any, layout: ArchiveLayout) -> tuple[int, int] | None:
    """Compact all complete batches; the range of batches that was written, or None if there was nothing.

    Killed at any place it leaves the archive as it was, or compacted, and never counts an event twice.
    """
    epochs, segments = layout.epochs(), layout.segments()
    if not epochs:
        return None
    together = len(segments) >= MOST_SEGMENTS
    paths = [str(layout.epoch(number)) for number in epochs]
    events = spark.read.schema(EVENT_DDL).parquet(*paths)
    if together:
        for segment in segments:
            older = spark.read.schema(f"{EVENT_DDL}, `date` date").parquet(str(layout.segment(*segment)))
            events = events.unionByName(older.drop("date"))
    first = segments[0][0] if together else max((last + 1 for _, last in segments), default=epochs[0])
    written = (first, epochs[-1])
    (
        events.selectExpr("*", "CAST(`time` AS date) AS `date`")
        .repartition("date", "type")
        .sortWithinPartitions("date", "type", "lsn")
        .write.mode("overwrite")
        .option("maxRecordsPerFile", ROWS_PER_FILE)
        .partitionBy("date", "type")
        .parquet(str(layout.segment(*written)))
    )
    layout.keep_segments([written] if together else [*segments, written])
    return written
