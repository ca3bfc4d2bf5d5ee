"""The streaming source with Spark and a broker: each message in one batch, the same when it runs again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from amqp_broker.client import BlockingSender, connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.testing import running_broker
from tests.pipeline.spark.queries import run_to_end
from tests.support.retained import retaining

Batches = dict[int, dict[str, list[int]]]


class Query:
    """A query of its own: an address, a subscription and a checkpoint of one name."""

    def __init__(self, spark: Any, broker: RunningBroker, folder: Path, name: str) -> None:
        self.spark = spark
        self.url = broker.url
        self.name = name
        self.address = f"in.{name}"
        self.checkpoint = folder / "checkpoint"
        self.batches: Batches = {}
        self.fails_at = -1
        """The batch whose processing raises."""
        self.then: Callable[[int], None] = lambda batch: None
        """Called in the midst of each batch."""

    def send(self, count: int, address: str | None = None) -> None:
        """So many messages more."""
        with connect(self.url) as connection:
            sender: BlockingSender = connection.open_sender(address or self.address)
            sender.send_many(b"%d" % number for number in range(count))

    def start(self, **options: str) -> Any:
        """A running query with the trigger availableNow."""
        given = {"subscribe": self.address, "subscription": self.name, "includeSections": "none"} | options
        reader = self.spark.readStream.format("amqp").option("amqp.url", self.url)
        given = {key: value for key, value in given.items() if value}
        writer = reader.options(**given).load().writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def run(self, **options: str) -> Batches:
        """Runs to the end; the offsets of each batch that ran, by address. Raises StreamingQueryException."""
        self.batches = {}
        run_to_end(lambda: self.start(**options))
        return self.batches

    def said(self, **options: str) -> str:
        """What ends the query."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**options)
        return str(caught.value)

    def replay(self, batch: int) -> None:
        """Makes the state that a driver leaves which died before Spark noted the end of this batch."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def cursor(self) -> dict[str, int]:
        """Where the broker has the subscription."""
        broker = BrokerAddress((self.url,))
        try:
            return RetainedClient(broker).cursor(self.name)
        finally:
            drop_connection(broker)

    def _take(self, frame: Any, batch: int) -> None:
        rows = frame.select("address", "offset").collect()
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(row.address, []).append(row.offset)
        self.batches[batch] = {address: sorted(offsets) for address, offsets in found.items()}
        self.then(batch)
        if batch == self.fails_at:
            raise RuntimeError("planted")


@pytest.fixture
def query(spark: Any, broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    """One for each test."""
    return Query(spark, broker, tmp_path, re.sub(r"\W", "-", request.node.name))


def test_every_message_is_in_one_batch_and_a_repeated_batch_is_the_same(query: Query) -> None:
    """By the limit of rows, over a restart, and after a death before Spark's commit; the cursor follows one
    batch behind.
    """
    query.send(250)
    found = query.run(maxOffsetsPerTrigger="100")
    a = query.address
    assert found == {0: {a: list(range(100))}, 1: {a: list(range(100, 200))}, 2: {a: list(range(200, 250))}}
    assert query.cursor() == {a: 200}
    query.send(30)
    query.replay(2)
    assert query.run() == {2: {a: list(range(200, 250))}, 3: {a: list(range(250, 280))}}
    assert query.run() == {}
    assert (query.checkpoint / "offsets" / "3").read_text().endswith(', "v": 1}')


def test_the_beginning_is_frozen_until_batch_0_is_done(query: Query) -> None:
    """`latest` is asked for again when batch 0, which is empty, is repeated, and is what it was."""
    query.send(10)
    query.fails_at = 0
    query.then = lambda batch: query.send(5)
    assert "planted" in query.said(startingOffsets="latest")
    query.fails_at, query.then = -1, lambda batch: None
    query.send(2)
    assert query.run(startingOffsets="latest") == {0: {}, 1: {query.address: list(range(10, 17))}}
    assert query.cursor() == {query.address: 10}


def test_a_running_query_waits_for_messages_and_takes_them(query: Query) -> None:
    """With the usual trigger; a second query of its subscription is kept out, and told who is there."""
    given = {"subscribe": query.address, "subscription": query.name, "includeSections": "body"}
    query.send(5)
    reader = query.spark.readStream.format("amqp").option("amqp.url", query.url).options(**given)
    running = (
        reader.load().writeStream.foreachBatch(query._take)
        .option("checkpointLocation", str(query.checkpoint)).trigger(processingTime="0 seconds").start()
    )  # fmt: skip
    try:
        running.processAllAvailable()
        query.send(5)
        running.processAllAvailable()
        seen = [offset for batch in query.batches.values() for offset in batch[query.address]]
        assert sorted(seen) == list(range(10))
        query.checkpoint = query.checkpoint.parent / "second"
        words = query.said()
        assert "in use by another query" in words and "option subscription" in words
    finally:
        running.stop()


def test_a_wiped_broker_is_told(query: Query) -> None:
    """The checkpoint belongs to another store; nothing is read, and no cursor is made there."""
    query.send(10)
    query.run()
    with running_broker(retaining("in.*")) as other:
        query.url = other.url
        query.send(50)
        words = query.said()
        assert "the checkpoint has offsets of the store" in words and "wiped" in words and "amqp.url" in words
        assert query.cursor() == {}


def test_a_checkpoint_that_goes_backwards_or_too_far_is_told(query: Query) -> None:
    """Edited, or of a broker that was restored since."""
    query.send(10)
    query.run(maxOffsetsPerTrigger="5")
    file = query.checkpoint / "offsets" / "1"
    text = file.read_text()
    query.replay(1)
    (query.checkpoint / "offsets" / ".1.crc").unlink()
    file.write_text(text.replace('{"0": 10}', '{"0": 3}'))
    assert f"'{query.address}' is to be read from offset 5 to 3" in query.said()
    file.write_text(text.replace('{"0": 10}', '{"0": 9999}'))
    words = query.said()
    assert f"offset 9999 of '{query.address}', but the broker's next offset there is 10" in words
    assert "restored" in words
