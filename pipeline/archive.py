"""The broker's journal as Parquet: a stream that writes each batch once, whatever is killed in between.

Spark's own Parquet sink leaves files behind when it dies within a batch. Here each batch is a folder that is
overwritten: the stream begins a batch again with the same events, and a folder without its _SUCCESS does not
count. Of each batch the broker is asked for the checksums of its events, by which an audit knows that they
are those, and all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS, EVENT_DDL
from amqp_broker.pipeline.options import EVENTS, SOURCE, BrokerAddress, read_options
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.pipeline.told_checksums import ask

CURSOR: Final = "audit"
EVENTS_PER_BATCH: Final = 500_000
FOLLOW_EVERY: Final = "10 seconds"
_NAMES: Final = [name for name, _ in EVENT_COLUMNS]


def read_events(spark: Any, layout: ArchiveLayout[Any]) -> Any:
    """All events of an archive, each once, as a frame of EVENT_COLUMNS. Raises PipelineError if there are
    none.
    """
    layout.check()
    return read_folders(spark, layout, layout.epochs(), layout.segments())


def read_folders(
    spark: Any, layout: ArchiveLayout[Any], epochs: Sequence[int], segments: Sequence[tuple[int, int]]
) -> Any:
    """The events of these batches and compacted ranges, of which there is at least one."""
    paths = [str(layout.epoch(number)) for number in epochs]
    frames = [spark.read.schema(EVENT_DDL).parquet(*paths)] if paths else []
    dated = spark.read.schema(f"{EVENT_DDL}, `date` date")
    frames += [dated.parquet(str(layout.segment(*segment))).select(*_NAMES) for segment in segments]
    return reduce(lambda one, other: one.unionByName(other), frames)


def write_epoch(events: Any, number: int, layout: ArchiveLayout[Any]) -> None:
    """One batch of the stream, instead of what may be there of it."""
    folder = layout.epoch(number)
    events.select(*_NAMES).write.mode("overwrite").parquet(str(folder))
    layout.seal(folder)


def note_told(broker: BrokerAddress, number: int, layout: ArchiveLayout[Any]) -> None:
    """Ask the broker for the checksums of the events of a batch, and keep what it tells."""
    lsns = layout.lsns(number)
    client = RetainedClient(broker)
    try:
        layout.note(ask(partial(client.checksum, EVENTS), lsns.start, lsns.stop))
    finally:
        client.close()


def archive(
    spark: Any,
    url: str,
    layout: ArchiveLayout[Any],
    *,
    cursor: str = CURSOR,
    follow: bool = False,
    options: dict[str, str] | None = None,
) -> Any:
    """Start to archive the events of the broker at `url`; the streaming query, which ends by itself when
    everything that is there now is archived, unless `follow`.

    `cursor` names the place in the log that the broker keeps for this archive; `options` are further ones of
    the source.
    """
    given = {
        "amqp.url": url,
        "subscription": cursor,
        "isolation": "events",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(EVENTS_PER_BATCH),
    } | (options or {})
    stream = spark.readStream.format("amqp").options(**given).load()
    broker = read_options(given, SOURCE).broker

    def write(frame: Any, number: int) -> None:
        write_epoch(frame, number, layout)
        note_told(broker, number, layout)

    writer = (
        stream.writeStream.queryName(f"archive {cursor}")
        .foreachBatch(write)
        .option("checkpointLocation", str(layout.checkpoint))
    )
    chosen = writer.trigger(processingTime=FOLLOW_EVERY) if follow else writer.trigger(availableNow=True)
    return chosen.start()
