"""Many small batches of an archive become few large files, by day and type.

What is read of a compacted archive is what an audit needs: the types that it looks at, and the columns.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.pipeline.archive import read_folders
from amqp_broker.pipeline.archive_layout import ArchiveLayout

ROWS_PER_FILE: Final = 4_000_000
MOST_SEGMENTS: Final = 8
"""When there are as many, they are written together into one."""


def compact(spark: Any, layout: ArchiveLayout[Any]) -> tuple[int, int] | None:
    """Compact all complete batches; the range of batches that was written, or None if there was nothing.

    Killed at any place it leaves the archive as it was, or compacted, and never counts an event twice.
    """
    epochs, segments = layout.epochs(), layout.segments()
    if not epochs:
        return None
    together = len(segments) >= MOST_SEGMENTS
    events = read_folders(spark, layout, epochs, segments if together else [])
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
    layout.seal(layout.segment(*written))
    layout.keep_segments([written] if together else [*segments, written])
    return written
