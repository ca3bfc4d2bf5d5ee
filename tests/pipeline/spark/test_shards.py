"""Both ways over two broker processes with Spark: each row once, whatever ends between the brokers.

What stands in `in.*` of the two is read, and written to `out.*`; the column partition says which broker a row
came from, and goes to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from amqp_broker.client import connect
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.set_client import SetClient
from tests.pipeline.receiving import drained
from tests.pipeline.spark.faulty_source import NAME, FaultySource
from tests.pipeline.spark.hooks import plant, taken_file
from tests.pipeline.spark.pipeline_broker import PipelineBroker

GROUP = "spark"
ROWS = (60, 90)
"""Of each broker."""
OF_A_BATCH = "75"
COMMIT_TIMEOUT_MS = "3000"


class Two:
    """Two broker processes; one that was killed comes back where it was."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / "first", folder / "second"]
        for each in self.folders:
            each.mkdir()
        self.brokers = [PipelineBroker(each) for each in self.folders]

    @property
    def urls(self) -> list[str]:
        """The coordinator's first."""
        return [broker.url for broker in self.brokers]

    def revive(self) -> int:
        """Starts those that were killed; how many."""
        dead = [number for number, broker in enumerate(self.brokers) if broker.process.poll() is not None]
        for number in dead:
            self.brokers[number].kill()
            self.brokers[number] = PipelineBroker(self.folders[number], port=self.brokers[number].port)
        return len(dead)

    def close(self) -> None:
        """Ends both."""
        for broker in self.brokers:
            broker.kill()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Both of them."""
    running = Two(tmp_path_factory.mktemp("brokers"))
    try:
        yield running
    finally:
        running.close()


class Query:
    """A query of its own, from an address of both brokers to another one."""

    def __init__(self, spark: Any, two: Two, folder: Path, name: str) -> None:
        spark.dataSource.register(FaultySource)
        self.spark = spark
        self.two = two
        self.checkpoint = folder / "checkpoint"
        self.name = name
        self.input, self.output = f"in.{name}", f"out.{name}"
        for url, count in zip(two.urls, ROWS, strict=True):
            with connect(url) as connection:
                connection.open_sender(self.input).send_many(b"%d" % number for number in range(count))

    def run(self) -> None:
        """Runs to the end of the input. Raises StreamingQueryException."""
        reader = self.spark.readStream.format("amqp").option("amqp.url", ";".join(self.two.urls))
        rows = (
            reader.option("subscribe", self.input)
            .option("subscription", self.name)
            .option("maxOffsetsPerTrigger", OF_A_BATCH)
        )
        rows = rows.option("includeSections", "body").load()
        writer = (
            rows.selectExpr("partition", "concat(partition, '-', cast(body as string)) as body")
            .writeStream.format(NAME)
            .option("amqp.url", ";".join(self.two.urls))
            .option("address", self.output)
            .option("producerGroup", GROUP)
            .option("commitTimeoutMs", COMMIT_TIMEOUT_MS)
            .option("checkpointLocation", str(self.checkpoint))
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def fails(self) -> str:
        """Runs, and wants a failure; its text."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run()
        return str(caught.value)

    def check(self) -> None:
        """Every row is there, once, at the broker that it came from, and in order; no set is left."""
        found = read_checkpoint(self.checkpoint)
        assert found is not None
        for number, (url, count) in enumerate(zip(self.two.urls, ROWS, strict=True)):
            with connect(url) as connection:
                arrived = [received.body for received in drained(connection, self.output)]
                assert arrived == [f"{number}-{row}".encode() for row in range(count)]
                assert SetClient(connection, GROUP).status(found.query_id).sets == ()


@pytest.fixture
def query(spark: Any, two: Two, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    """A fresh one."""
    two.revive()
    return Query(spark, two, tmp_path, re.sub(r"\W", "-", request.node.name)[:60])


def test_a_batch_goes_both_ways(spark: Any, two: Two, query: Query) -> None:
    """Written by the column partition, once for a version, and read again with it."""
    rows = spark.range(100).selectExpr("cast(id as string) as body", "cast(id % 2 as int) as partition")
    for _ in range(2):
        writer = rows.write.format("amqp").mode("append").option("amqp.url", ";".join(two.urls))
        writer.option("address", query.input).option("txnAppId", query.name).option("txnVersion", "1").save()
    reader = spark.read.format("amqp").option("amqp.url", ";".join(two.urls)).option("subscribe", query.input)
    columns = ("partition", "offset", "cast(cast(body as string) as int) as body")
    found = reader.load().selectExpr(*columns).collect()
    for number, count in enumerate(ROWS):
        mine = [row for row in found if row.partition == number]
        assert [row.offset for row in mine] == list(range(count + 50))
        assert sorted(row.body for row in mine[count:]) == list(range(number, 100, 2))


def test_a_stream_goes_both_ways(query: Query) -> None:
    """Three micro-batches; a broker's rows stay in order."""
    query.run()
    query.check()


@pytest.mark.parametrize("point", ["between", "C5", "C11", "task"])
def test_what_fails_between_the_brokers_is_made_good(query: Query, fault_file: Path, point: str) -> None:
    """Decided and the other broker not told; all done and the reply lost, so that Spark aborts; a prepared
    set that was ruled out; a task that is tried again.
    """
    plant(fault_file, point, 1)
    if point == "task":
        query.run()
    else:
        text = query.fails()
        assert ("half:unknown-set" in text) == (point == "C11")
        query.run()
    assert taken_file(fault_file).exists()
    query.check()


@pytest.mark.parametrize(("point", "killed"), [("C8", 0), ("C8", 1), ("C10", 1)])
def test_a_broker_that_is_killed_comes_back(
    two: Two, query: Query, fault_file: Path, point: str, killed: int
) -> None:
    """Coordinator or participant with sealed and undecided sets; the participant after the decision. The
    error says which.
    """
    plant(fault_file, point, 1, broker=two.brokers[killed].process.pid)
    text = query.fails()
    assert taken_file(fault_file).exists()
    assert two.urls[killed] in text
    assert ("Now it is decided, and " in text) == (point == "C10")
    assert two.revive() == 1
    query.run()
    query.check()


def test_another_order_of_the_brokers_is_told(two: Two, query: Query) -> None:
    """By the source first: its checkpoint has their stores."""
    query.run()
    two.brokers.reverse()
    try:
        assert "the checkpoint has the brokers in another order" in query.fails()
    finally:
        two.brokers.reverse()
    query.check()
