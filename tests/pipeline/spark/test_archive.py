"""The archive: each event once, whatever batch begins again, from a stream and from a broker."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet
import pytest
from pyspark.sql import functions as F

from amqp_broker import running_broker
from amqp_broker.command_line import main
from amqp_broker.configuration import BrokerConfig, ListenerConfig, load_configuration
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.archive import archive, read_events, write_epoch
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.audits.as_told import as_told
from amqp_broker.pipeline.compact import compact
from amqp_broker.pipeline.demo_traffic import CONFIGURATION, ORDERS, Consumer, Shop
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.folders import LocalPath
from amqp_broker.pipeline.history_file import HistoryWriter
from tests.pipeline.spark.frames import event_frame, for_few_rows, table_of
from tests.pipeline.spark.queries import run_to_end
from tests.pipeline.truthful_day import clock, numbered, rows, truthful_world


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """The session, set for a few rows."""
    with for_few_rows(spark):
        yield spark


def lsns(spark: Any, layout: ArchiveLayout[LocalPath]) -> list[int]:
    """The numbers of all events of an archive."""
    return sorted(row["lsn"] for row in read_events(spark, layout).select("lsn").collect())


def begin_last_batch_again(layout: ArchiveLayout[LocalPath]) -> None:
    """What a driver leaves that was killed in its last batch: the batch is planned, and not done; half of
    its folder is written.
    """
    last = max(int(path.name) for path in (layout.checkpoint / "commits").iterdir() if path.name.isdigit())
    (layout.checkpoint / "commits" / str(last)).unlink()
    (layout.checkpoint / "commits" / f".{last}.crc").unlink()
    if layout.epoch(last).exists():
        (layout.epoch(last) / "_SUCCESS").unlink()
        shutil.copy(next(layout.epoch(last).glob("*.parquet")), layout.epoch(last) / "part-torn.parquet")


def test_a_batch_that_is_written_again_is_there_once(session: Any, tmp_path: Path) -> None:
    """Overwritten before its compaction, not read after it; compaction itself loses and doubles nothing."""
    layout = ArchiveLayout(tmp_path)
    events = numbered([truthful_world("a", clock())])
    batches = [events[:50], events[50:120], events[120:]]
    everything = [event["lsn"] for event in events]
    for number, batch in enumerate(batches):
        write_epoch(event_frame(session, batch), number, layout)
    write_epoch(event_frame(session, batches[2]), 2, layout)
    assert lsns(session, layout) == everything
    before = {tuple(row) for row in read_events(session, layout).collect()}
    assert compact(session, layout) == (0, 2)
    assert compact(session, layout) is None
    assert {tuple(row) for row in read_events(session, layout).collect()} == before
    write_epoch(event_frame(session, batches[2]), 2, layout)
    more = [{**event, "lsn": event["lsn"] + len(events)} for event in batches[0]]
    write_epoch(event_frame(session, more), 3, layout)
    assert lsns(session, layout) == everything + [event["lsn"] for event in more]


def test_many_compacted_ranges_become_one(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that is compacted every hour does not become a heap of folders."""
    monkeypatch.setattr("amqp_broker.pipeline.compact.MOST_SEGMENTS", 2)
    layout = ArchiveLayout(tmp_path)
    events = numbered([truthful_world("b", clock())])[:4]
    for number, event in enumerate(events):
        write_epoch(event_frame(session, [event]), number, layout)
        compact(session, layout)
    assert layout.segments() == [(0, 2), (3, 3)]
    assert lsns(session, layout) == [event["lsn"] for event in events]


def test_a_stream_that_is_killed_in_its_batch_archives_each_event_once(session: Any, tmp_path: Path) -> None:
    """The batch begins again, over what was left of it."""
    layout = ArchiveLayout(tmp_path / "archive")
    events = numbered([truthful_world("c", clock())])
    for number in range(2):
        part = rows(events[number * 100 : (number + 1) * 100])
        (tmp_path / "log").mkdir(exist_ok=True)
        pyarrow.parquet.write_table(table_of(part, EVENT_COLUMNS), tmp_path / "log" / f"{number}.parquet")
        stream = session.readStream.schema(event_frame(session, events[:1]).schema)
        writer = (
            stream.parquet(str(tmp_path / "log"))
            .writeStream.foreachBatch(lambda frame, n: write_epoch(frame, n, layout))
            .option("checkpointLocation", str(layout.checkpoint))
            .trigger(availableNow=True)
        )
        for _ in range(2):
            writer.start().awaitTermination()
            assert lsns(session, layout) == [event["lsn"] for event in events[: (number + 1) * 100]]
            begin_last_batch_again(layout)
        writer.start().awaitTermination()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose queues log events."""
    file = tmp_path / "broker.toml"
    file.write_text(CONFIGURATION)
    config: BrokerConfig = attrs.evolve(
        load_configuration(str(file)), memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),)
    )
    with running_broker(config) as running:
        yield running


def test_the_log_of_a_broker_is_archived_once_and_audited(
    session: Any, broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Orders in all ways, archived in two runs with a kill between; every event is there once, and the
    report says PASS, also against what the clients wrote down. With an event taken out of it, FAIL.
    """
    layout = ArchiveLayout(tmp_path / "archive")
    written = io.StringIO()
    history = HistoryWriter(written)
    consumer = Consumer(broker.url, ORDERS, history)
    consumer.start()
    for first in (1, 101):
        with Shop(broker.url, history) as shop:
            consumer.wait_for(consumer.done + shop.send(100, first))
        run_to_end(lambda: archive(session, broker.url, layout))
        begin_last_batch_again(layout)
    consumer.end()
    run_to_end(lambda: archive(session, broker.url, layout))
    found = lsns(session, layout)
    assert found == list(range(1, len(found) + 1)) and len(found) > 500
    report = tmp_path / "report.html"
    (tmp_path / "history.jsonl").write_text(written.getvalue())
    arguments = ["pipeline", "report", str(layout.directory), "--out", str(report), "--drained", "--quiet"]
    arguments += ["--history", str(tmp_path / "history.jsonl")]
    assert main(arguments) == 0, capsys.readouterr().out
    assert "<h1>PASS</h1>" in report.read_text()

    assert "checksum" not in (said := capsys.readouterr().out), said
    told = layout.told()
    assert (told[0].first, told[-1].next) == (1, len(found) + 1)
    assert sum(each.count for each in told) == len(found)
    check_what_is_changed_is_not_as_told(session, layout)

    events = read_events(session, layout).where("lsn != 60").coalesce(1).toArrow()
    (damaged := ArchiveLayout(tmp_path / "damaged")).directory.mkdir()
    write_epoch(session.createDataFrame(events), 0, damaged)
    assert main(["pipeline", "audit", str(damaged.directory), "--quiet", "--json", str(tmp_path / "x")]) == 1
    assert "events-missing" in capsys.readouterr().out and '"verdict": "FAIL"' in (tmp_path / "x").read_text()


def check_what_is_changed_is_not_as_told(spark: Any, layout: ArchiveLayout[LocalPath]) -> None:
    """The end cut off, some replaced by copies of others, one edited where nothing else says it: each is
    found by the checksums, though there the events alone might be anybody's.
    """
    told, events = layout.told(), read_events(spark, layout).cache()
    last = told[-1].next - 1
    assert as_told(events, told) == []
    copied = events.where("lsn = 40").selectExpr("*").withColumn("lsn", F.lit(41).cast("bigint"))
    changes = [
        events.where(f"lsn <= {last - 100}"),
        events.where("lsn NOT IN (41)").unionByName(copied),
        events.withColumn("message_id", F.expr("if(lsn = 3, 'other', message_id)")),
        events.withColumn("time", F.expr("if(lsn = 3, time + interval 1 microsecond, time)")),
        events.unionByName(events.where("lsn = 9")),
    ]
    for changed in changes:
        found = as_told(changed, told)
        assert found and {each.kind for each in found} == {"not-as-told"}
    assert as_told(events.where("lsn > 10"), told)[0].key.startswith("lsn 1 to ")
    events.unpersist()


def test_a_broker_that_has_no_events_yet_is_told(
    session: Any, broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends well, and says that there is nothing."""
    assert main(["pipeline", "archive", broker.url, str(tmp_path / "none"), "--quiet"]) == 0
    assert "no events yet" in capsys.readouterr().out


def test_a_file_that_spark_cannot_read_is_named(
    session: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of an archive that says nothing of its files: status 2 and the file, no trace of Java."""
    layout = ArchiveLayout(tmp_path)
    write_epoch(event_frame(session, numbered([truthful_world("d", clock())])).coalesce(1), 0, layout)
    (layout.epoch(0) / "_FILES").unlink()
    (file,) = layout.epoch(0).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-40])
    assert main(["pipeline", "audit", str(tmp_path), "--quiet"]) == 2
    said = capfd.readouterr().err
    assert str(file) in said and "damaged" in said
    assert "\tat " not in said and "Traceback" not in said
