"""Listeners move the cursor of a subscription to where the query is, and count what it went on without."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.figures import FigureListener
from amqp_broker.pipeline.listener import BatchListener, CursorListener
from amqp_broker.pipeline.loss_listener import LossListener
from amqp_broker.pipeline.losses import read_losses
from amqp_broker.pipeline.offsets import Offsets, Place
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import overtake
from tests.pipeline.spark.queries import run_to_end
from tests.support.retained import retaining

NOBODY = "amqp://127.0.0.1:1"


def at(offset: int) -> str:
    """A place in one address."""
    return str(Place((Offsets("log", {"in.a": offset}),)))


def progress(start: str | None, *ends: str | None, rows: int = 0, name: str = "query") -> Any:
    """What Spark tells of a batch."""
    sources = [SimpleNamespace(startOffset=start, endOffset=end, numInputRows=rows) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(id="id", name=name, batchId=3, sources=sources))


def cursor_listener(moved: list[Any], **given: Any) -> CursorListener:
    """One that notes what it would move."""
    return CursorListener(NOBODY, "sub", move=lambda cursor, to: moved.append((cursor, to)), **given)


@contextmanager
def hearing(
    spark: Any, listener: BatchListener, wanted: Callable[[Any], Any]
) -> Iterator[threading.Event]:
    """It listens, and the event is set when it was told of a batch of which `wanted` is true. Spark tells its
    listeners in threads of its own, at some time, be it after the query ended.
    """
    heard, done = threading.Event(), listener.done

    def noted(progress: Any, source: Any) -> None:
        done(progress, source)
        if wanted(progress):
            heard.set()

    listener.done = noted  # type: ignore[method-assign]
    spark.streams.addListener(listener)
    try:
        yield heard
    finally:
        spark.streams.removeListener(listener)


def test_the_end_of_each_batch_is_moved_to_once() -> None:
    """A progress without anything new asks nothing of the broker."""
    moved: list[Any] = []
    one = cursor_listener(moved)
    for end in (None, at(7), at(7), at(9)):
        one.onQueryProgress(progress(None, end))
    assert moved == [("sub", {"in.a": 7}), ("sub", {"in.a": 9})]


def test_other_queries_and_other_sources_are_left_alone() -> None:
    """A session has one listener for each subscription, and many queries."""
    moved: list[Any] = []
    one = cursor_listener(moved, query="mine", source=1)
    one.onQueryProgress(progress(None, at(7), at(7), name="other"))
    one.onQueryProgress(progress(None, "{}", at(7), name="mine"))
    assert moved == [("sub", {"in.a": 7})]


def test_what_goes_wrong_is_written_and_never_raised(capsys: pytest.CaptureFixture[str]) -> None:
    """The query goes on without it."""
    moved: list[Any] = []
    cursor_listener(moved).onQueryProgress(progress(None, '{"reference": 5}'))
    CursorListener(NOBODY, "sub").onQueryProgress(progress(None, at(7)))
    told = capsys.readouterr().err
    assert told.count("amqp listener: cursor 'sub' was not moved: ") == 2
    assert "no broker at amqp://127.0.0.1:1" in told
    assert moved == []


def test_the_cursor_stands_at_the_end_when_a_query_ended(spark: Any, tmp_path: Path) -> None:
    """The source alone leaves it one batch behind."""
    with running_broker(retaining("in.*")) as broker:
        with connect(broker.url) as connection:
            connection.open_sender("in.a").send_many(b"%d" % number for number in range(10))
        with hearing(spark, CursorListener(broker.url, "sub"), attrgetter("numInputRows")) as heard:
            run_to_end(stream(spark, broker.url, "in.a", "sub", tmp_path).start)
            assert heard.wait(60)
        assert RetainedClient(BrokerAddress((broker.url,))).cursor("sub") == {"in.a": 10}


def stream(spark: Any, url: str, address: str, subscription: str, folder: Path, **options: str) -> Any:
    """A query that reads what there is and writes nothing."""
    given = {"amqp.url": url, "subscribe": address, "subscription": subscription} | options
    rows = spark.readStream.format("amqp").options(**given).option("includeSections", "none").load()
    writer = rows.writeStream.format("noop").queryName(subscription).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def gap(connection: BlockingConnection, url: str, writer: Any) -> None:
    """A query reads two messages, and retention overtakes it before its next run."""
    connection.open_sender("in.lossy").send_many([b"first"] * 2)
    run_to_end(writer.start)
    overtake(connection, url, "in.lossy", 3)
    drop_connection(BrokerAddress((url,)))


def next_of(url: str, address: str) -> int:
    """The next offset of the node."""
    return RetainedClient(BrokerAddress((url,))).describe().nodes[address].next


@contextmanager
def lossy_broker() -> Iterator[tuple[RunningBroker, BlockingConnection]]:
    """One that retains very little of in.lossy."""
    with (
        running_broker(retaining("in.lossy", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        connection.open_receiver("losses", credit=0).close()
        yield broker, connection


LOSSY = {"failOnDataLoss": "false", "lossAddress": "losses"}


def test_what_retention_took_is_counted_once_under_several_actions(spark: Any, tmp_path: Path) -> None:
    """By address, range and number, as the broker says it: whatever `foreachBatch` does with the batch."""
    rows: list[int] = []

    def look(frame: Any, batch: int) -> None:
        frame.limit(1).collect()
        rows.append(frame.count())
        rows.append(frame.count())

    with lossy_broker() as (broker, connection):
        listener = LossListener(broker.url, "losses", file=tmp_path / "losses.jsonl")
        with hearing(spark, listener, lambda progress: listener.losses) as heard:
            writer = stream(spark, broker.url, "in.lossy", "lossy", tmp_path, **LOSSY)
            gap(connection, broker.url, writer)
            run_to_end(writer.foreachBatch(look).start)
            assert heard.wait(120)
        loss = read_losses(tmp_path / "losses.jsonl")[-1]
        assert rows == [next_of(broker.url, "in.lossy") - 2 - loss.messages] * 2
        assert loss.query == "lossy" and loss.messages == listener.messages > 0
        assert loss.ranges == (f"offsets 2 to {loss.messages + 1} of 'in.lossy'",)


def test_a_gap_of_any_size_is_one_step(spark: Any, tmp_path: Path) -> None:
    """The limit counts messages that are there: no batches without any, one after the other."""
    with lossy_broker() as (broker, connection):
        writer = stream(
            spark, broker.url, "in.lossy", "lossy", tmp_path, maxOffsetsPerTrigger="2", failOnDataLoss="false"
        )
        gap(connection, broker.url, writer)
        query = run_to_end(writer.start)
        end = next_of(broker.url, "in.lossy")
        rows = [each.numInputRows for each in query.recentProgress]
        assert json.loads(query.recentProgress[-1].sources[0].endOffset)["a"] == {"in.lossy": {"0": end}}
        assert rows[0] == 2 and sum(rows) < 60 < end


def test_figures_are_what_the_broker_says(spark: Any, tmp_path: Path) -> None:
    """How far behind a query is, in messages and in time: in a file, for monitoring, and in the progress."""
    with running_broker(retaining("in.*")) as broker, connect(broker.url) as connection:
        connection.open_sender("in.a").send_many(b"%d" % number for number in range(10))
        file, prometheus = tmp_path / "figures.jsonl", tmp_path / "query.prom"
        listener = FigureListener(broker.url, file=file, prometheus=prometheus)
        with hearing(spark, listener, lambda progress: progress.batchId == 1) as heard:
            writer = stream(spark, broker.url, "in.a", "slow", tmp_path, maxOffsetsPerTrigger="4")
            query = run_to_end(writer.start)
            assert heard.wait(60)
        first, second, *_ = (json.loads(line) for line in file.read_text().splitlines())
        following = next_of(broker.url, "in.a")
        for figures, end in ((first, 4), (second, 8)):
            behind = following - end
            assert (figures["query"], figures["rows"], figures["behind"]) == ("slow", 4, behind)
            assert figures["addresses"] == {"in.a/0": {"behind": behind, "lag_ms": figures["lag_ms"]}}
            assert 0 < figures["lag_ms"] < 600_000 and figures["rows_per_second"] > 0
        assert 'amqp_query_behind_messages{query="slow"} ' in prometheus.read_text()
        told = [json.loads(each.sources[0].latestOffset)["behind"] for each in query.recentProgress]
        assert told[:2] == [6, 2]
