"""The streaming sink with Spark and a broker: each row once, whatever happens to tasks, commits and replies.

The rows come from text files, one file for each micro-batch, so that a batch that runs again has the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.set_client import SetClient
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import drained
from tests.pipeline.spark.faulty_source import NAME, FaultySource
from tests.pipeline.spark.hooks import plant, taken_file

FILES = 3
ROWS = 250  # in each file: three record batches
GROUP = "spark"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker in memory, in this process."""
    with running_broker() as running:
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[BlockingConnection]:
    """A connection of the test's own."""
    with connect(broker.url) as opened:
        yield opened


class Query:
    """A query of its own: input files, a checkpoint, an address."""

    def __init__(self, spark: Any, broker: RunningBroker, folder: Path, name: str) -> None:
        spark.dataSource.register(FaultySource)
        self.spark = spark
        self.broker = broker
        self.input = folder / "in"
        self.checkpoint = folder / "checkpoint"
        self.address = name
        self.input.mkdir()
        for number in range(FILES):
            lines = "".join(f"{number}-{row}\n" for row in range(ROWS))
            (self.input / f"{number}.txt").write_text(lines)

    def expected(self) -> list[bytes]:
        """All rows; the order of the files is Spark's."""
        return [f"{number}-{row}".encode() for number in range(FILES) for row in range(ROWS)]

    def run(self, **options: str) -> None:
        """Runs to the end of the input. Raises StreamingQueryException."""
        rows = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.input))
        writer = (
            rows.selectExpr("value as body")
            .writeStream.format(NAME)
            .option("amqp.url", self.broker.url)
            .option("address", self.address)
            .option("producerGroup", GROUP)
            .option("checkpointLocation", str(self.checkpoint))
        )
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()

    def fails(self) -> str:
        """Runs, and wants a failure; its text."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run()
        return str(caught.value)

    def forget_commit(self, batch: int) -> None:
        """The state that a driver leaves that died before it noted the batch as done."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    @property
    def producer(self) -> str:
        """The id of the query."""
        found = read_checkpoint(self.checkpoint)
        assert found is not None
        return found.query_id


@pytest.fixture
def query(spark: Any, broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    """A fresh one."""
    return Query(spark, broker, tmp_path, request.node.name.split("[")[0][:60])


def arrived(connection: BlockingConnection, query: Query) -> list[bytes]:
    """What the queue has; sorted by file, as the order of files is not ours to say, but not within one."""
    found = [received.body for received in drained(connection, query.address)]
    return sorted(found, key=lambda body: body.split(b"-")[0])


def sets_left(connection: BlockingConnection, query: Query) -> int:
    """Sets without a decision."""
    return len(SetClient(connection, GROUP).status(query.producer).sets)


def test_a_stream_arrives_once_and_in_order(query: Query, connection: BlockingConnection) -> None:
    """Three micro-batches; the producer is the query, the epochs are its batches."""
    query.run()
    assert arrived(connection, query) == query.expected()
    status = SetClient(connection, GROUP).status(query.producer, 1)
    assert (status.decided, status.latest, status.sets) == (True, FILES - 1, ())
    assert sum(winner.count for winner in status.winners) == ROWS


def test_a_batch_that_runs_again_writes_nothing(query: Query, connection: BlockingConnection) -> None:
    """The driver died after the decision and before Spark's own note of it."""
    query.run()
    query.forget_commit(FILES - 1)
    query.run()
    assert arrived(connection, query) == query.expected()
    assert sets_left(connection, query) == 0


@pytest.mark.parametrize("point", ["raise", "C3", "C5"])
def test_a_commit_that_fails_is_made_good_by_the_next_start(
    query: Query, connection: BlockingConnection, fault_file: Path, point: str
) -> None:
    """It fails before it is sent, a set was voided behind the back, the reply is lost and Spark aborts."""
    plant(fault_file, point, 1)
    text = query.fails()
    assert taken_file(fault_file).exists()
    if point == "C3":
        assert "half:unknown-set" in text
    assert sets_left(connection, query) == 0, "what is aborted is voided"
    query.run()
    assert arrived(connection, query) == query.expected()
    assert sets_left(connection, query) == 0


@pytest.mark.parametrize("point", ["task", "exit"])
def test_a_task_that_is_tried_again_is_written_once(
    query: Query, connection: BlockingConnection, fault_file: Path, point: str
) -> None:
    """The first try sealed its set, and then it failed, or its process was gone: nobody hears of that set."""
    plant(fault_file, point, 1)
    query.run()
    assert taken_file(fault_file).exists()
    assert arrived(connection, query) == query.expected()
    assert sets_left(connection, query) == 0


def test_at_least_once_is_written_again(query: Query, connection: BlockingConnection) -> None:
    """Without sets there is nothing to remember: a batch that runs again is doubled, as the name says."""
    query.run(guarantee="at-least-once")
    query.forget_commit(FILES - 1)
    query.run(guarantee="at-least-once")
    found = arrived(connection, query)
    assert sorted(set(found)) == sorted(query.expected())
    assert len(found) == (FILES + 1) * ROWS


@pytest.mark.parametrize("named", [False, True])
def test_a_deleted_checkpoint_is_a_new_query(
    query: Query, connection: BlockingConnection, named: bool
) -> None:
    """Everything again, under a new id; a name of its own does not make it the old one."""
    options = {"producerId": "named"} if named else {}
    query.run(**options)
    shutil.rmtree(query.checkpoint)
    query.run(**options)
    assert len(arrived(connection, query)) == 2 * FILES * ROWS
    found = SetClient(connection, GROUP).status(f"named.{query.producer}" if named else query.producer)
    assert found.latest == FILES - 1


def test_a_checkpoint_from_a_copy_loses_nothing_in_silence(
    query: Query, connection: BlockingConnection
) -> None:
    """It plans a batch anew whose number is decided with other rows: that is said, nothing is left out."""
    query.run()
    for batch in (1, 2):
        query.forget_commit(batch)
        (query.checkpoint / "offsets" / str(batch)).unlink()
        (query.checkpoint / "offsets" / f".{batch}.crc").unlink(missing_ok=True)
    for number in range(FILES):  # which of them was the first batch is Spark's choice
        (query.input / f"{number}.txt").write_text("new\n")
    for log in query.checkpoint.glob("sources/0/*"):
        if log.name.strip(".").split(".")[0] in "12":
            log.unlink()
    text = query.fails()
    assert "it was committed before with 250 rows, and now it has" in text


def test_what_cannot_be_sent_is_said_before_the_query_runs(spark: Any, query: Query) -> None:
    """Unknown columns, modes that replace, options of the other side."""
    rows = spark.readStream.format("text").load(str(query.input))
    writer = rows.withColumn("colour", rows.value).writeStream.format(NAME)
    writer = writer.option("amqp.url", query.broker.url).option("address", query.address)
    writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
    with pytest.raises(Exception, match="columns value, colour: expected only address, raw"):
        writer.start().awaitTermination()


def test_the_checker_reads_what_spark_writes(query: Query) -> None:
    """The checkpoint has its form: a name, planned and done batches."""
    query.run()
    found = read_checkpoint(query.checkpoint)
    assert found is not None
    assert found.query_id == json.loads((query.checkpoint / "metadata").read_text())["id"]
    assert (found.planned, found.done) == (FILES - 1, FILES - 1)
    query.forget_commit(FILES - 1)
    again = read_checkpoint(query.checkpoint)
    assert again is not None and again.done == FILES - 2
