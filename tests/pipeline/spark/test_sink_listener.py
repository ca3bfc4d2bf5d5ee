"""The listener moves the cursor of its subscription to where the query is."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amqp_broker.client import connect
from amqp_broker.pipeline.listener import CursorListener
from amqp_broker.pipeline.offsets import Offsets, Place
from amqp_broker.pipeline.options import read_options
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.testing import running_broker
from tests.support.retained import retaining

END = Place((Offsets("log", {"in.a": 7}),))


def progress(*ends: str | None, name: str = "query") -> Any:
    """What Spark tells of a batch."""
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(id="id", name=name, batchId=0, sources=sources))


def listener(moved: list[Any], **given: Any) -> CursorListener:
    """One that notes what it would move."""
    return CursorListener(
        "amqp://127.0.0.1:1", "sub", move=lambda cursor, to: moved.append((cursor, to)), **given
    )


class Told(CursorListener):
    """Says when it was told of a batch with rows."""

    def __init__(self, url: str, subscription: str) -> None:
        super().__init__(url, subscription)
        self.told = threading.Event()

    def onQueryProgress(self, event: Any) -> None:
        """Spark tells its listeners in threads of its own, at some time, be it after the query ended."""
        super().onQueryProgress(event)
        if event.progress.numInputRows:
            self.told.set()


def test_the_end_of_each_batch_is_moved_to_once() -> None:
    """A progress without anything new asks nothing of the broker."""
    moved: list[Any] = []
    one = listener(moved)
    one.onQueryProgress(progress(None))
    one.onQueryProgress(progress(str(END)))
    one.onQueryProgress(progress(str(END)))
    one.onQueryProgress(progress(str(Place((Offsets("log", {"in.a": 9}),)))))
    assert moved == [("sub", {"in.a": 7}), ("sub", {"in.a": 9})]


def test_other_queries_and_other_sources_are_left_alone() -> None:
    """A session has one listener for each subscription, and many queries."""
    moved: list[Any] = []
    one = listener(moved, query="mine", source=1)
    one.onQueryProgress(progress(str(END), str(END), name="other"))
    one.onQueryProgress(progress("{}", str(END), name="mine"))
    assert moved == [("sub", {"in.a": 7})]


def test_what_goes_wrong_is_written_and_never_raised(capsys: pytest.CaptureFixture[str]) -> None:
    """The query goes on without it."""
    moved: list[Any] = []
    listener(moved).onQueryProgress(progress('{"reference": 5}'))
    CursorListener("amqp://127.0.0.1:1", "sub").onQueryProgress(progress(str(END)))
    told = capsys.readouterr().err
    assert told.count("cursor 'sub' was not moved") == 2
    assert "no broker at amqp://127.0.0.1:1" in told
    assert moved == []


def test_the_cursor_stands_at_the_end_when_a_query_ended(spark: Any, tmp_path: Path) -> None:
    """The source alone leaves it one batch behind."""
    with running_broker(retaining("in.*")) as broker:
        with connect(broker.url) as connection:
            connection.open_sender("in.a").send_many(b"%d" % number for number in range(10))
        heard = Told(broker.url, "sub")
        spark.streams.addListener(heard)
        try:
            rows = spark.readStream.format("amqp").option("amqp.url", broker.url).option("subscribe", "in.a")
            query = (
                rows.option("subscription", "sub").load().writeStream.format("noop")
                .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
            assert heard.told.wait(60)
        finally:
            spark.streams.removeListener(heard)
        given = {"amqp.url": broker.url, "subscribe": "in.a", "subscription": "sub"}
        assert RetainedClient(read_options(given, "source").broker).cursor("sub") == {"in.a": 10}
