"""The listener counts what a query with failOnDataLoss=false went on without."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amqp_broker.client import connect
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.loss_listener import LossListener
from amqp_broker.pipeline.losses import read_losses
from amqp_broker.pipeline.offsets import Offsets, Place
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.testing import running_broker
from tests.support.retained import retaining


def at(offset: int) -> str:
    """A place in one address."""
    return str(Place((Offsets("log", {"a": offset}),)))


def progress(start: str | None, end: str | None, rows: int, name: str = "query") -> Any:
    """What Spark tells of a batch."""
    source = SimpleNamespace(startOffset=start, endOffset=end, numInputRows=rows)
    return SimpleNamespace(progress=SimpleNamespace(id="id", name=name, batchId=3, sources=[source]))


def test_batches_are_counted_and_nothing_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the first one, nor one of another query; what cannot be read is said."""
    one = LossListener("amqp://127.0.0.1:1", query="query", firsts=lambda: [{"a": 12}])
    for event in (
        progress(None, at(5), 1), progress(at(5), at(10), 5), progress(at(5), at(10), 0, "other"),
        progress(at(10), at(20), 8), progress("{}", at(20), 1),
    ):  # fmt: skip
        one.onQueryProgress(event)
    assert [(loss.messages, loss.ranges) for loss in one.losses] == [(2, ("offsets 10 to 11 of 'a'",))]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "amqp losses: query query, batch 3: 2 messages are missing, offsets 10 to 11 of 'a'"
    assert told[1].startswith("amqp losses: batch 3 was not counted: expected an offset")


class Told(LossListener):
    """Says when it was told of a loss."""

    def __init__(self, url: str, file: Path) -> None:
        super().__init__(url, file=file)
        self.told = threading.Event()

    def onQueryProgress(self, event: Any) -> None:
        """Spark tells its listeners in threads of its own, at some time, be it after the query ended."""
        super().onQueryProgress(event)
        if self.losses:
            self.told.set()


def test_what_retention_took_before_a_query_came_back_is_counted(spark: Any, tmp_path: Path) -> None:
    """By address, range and number, as the broker says it."""
    with (
        running_broker(retaining("in.lossy", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        sender, receiver = connection.open_sender("in.lossy"), connection.open_receiver("in.lossy")
        listener = Told(broker.url, tmp_path / "losses.jsonl")
        spark.streams.addListener(listener)
        frame = (
            spark.readStream.format("amqp").option("amqp.url", broker.url).option("subscribe", "in.lossy")
            .option("subscription", "lossy").option("failOnDataLoss", "false")
            .option("includeSections", "none").load()
        )  # fmt: skip
        writer = frame.writeStream.format("noop").queryName("lossy").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sender.send_many([b"first"] * 2)
        writer.start().awaitTermination()
        asking = RetainedClient(BrokerAddress((broker.url,)))
        while asking.describe().nodes["in.lossy"].first <= 2:
            sender.send_many(b"x" * 500 for _ in range(20))
            for _ in range(20):
                receiver.accept(receiver.receive(10))
        receiver.close()
        sender.send_many([b"left"] * 3)
        node = asking.describe().nodes["in.lossy"]
        drop_connection(asking.broker)
        writer.start().awaitTermination()
        assert listener.told.wait(120)
        spark.streams.removeListener(listener)
        (loss,) = read_losses(tmp_path / "losses.jsonl")
        assert loss.query == "lossy" and loss.messages == listener.messages
        assert loss.messages >= node.first - 2
        assert loss.ranges == (f"offsets 2 to {loss.messages + 1} of 'in.lossy'",)
