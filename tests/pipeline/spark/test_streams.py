"""Streams from one broker or two to the same with Spark: each row once, whatever happens to tasks, commits,
replies and brokers.

What stands in `in.*` is read, and written to `out.*`; the column partition says which broker a row came from,
and goes to.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from amqp_broker.client import connect
from amqp_broker.pipeline.checkpoints import Checkpoint, read_checkpoint
from amqp_broker.pipeline.set_client import EpochStatus, SetClient
from tests.pipeline.receiving import drained
from tests.pipeline.spark.faulty_source import NAME, FaultySource
from tests.pipeline.spark.hooks import plant, taken_file
from tests.pipeline.spark.pipeline_broker import PipelineBroker
from tests.pipeline.spark.queries import run_to_end

GROUP = "spark"
ROWS = (600, 300)
"""Of each broker."""
OF_A_BATCH = {1: 250, 2: 400}
"""With so many brokers: three batches, of several record batches."""
LAST = 2
COMMIT_TIMEOUT_MS = "3000"

one = pytest.mark.parametrize("count", [1])
two = pytest.mark.parametrize("count", [2])


class Brokers:
    """Two broker processes; one that was killed comes back where it was."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / "first", folder / "second"]
        for each in self.folders:
            each.mkdir()
        self.running = [PipelineBroker(each) for each in self.folders]

    def revive(self) -> int:
        """Starts those that were killed; how many."""
        dead = [number for number, broker in enumerate(self.running) if broker.process.poll() is not None]
        for number in dead:
            self.running[number].kill()
            self.running[number] = PipelineBroker(self.folders[number], port=self.running[number].port)
        return len(dead)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both of them."""
    both = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        yield both
    finally:
        for broker in both.running:
            broker.kill()


class Query:
    """A query of its own, from an address of so many brokers to another one."""

    def __init__(self, spark: Any, brokers: Brokers, count: int, folder: Path, name: str) -> None:
        spark.dataSource.register(FaultySource)
        self.spark = spark
        self.urls = [broker.url for broker in brokers.running[:count]]
        self.checkpoint = folder / "checkpoint"
        self.name = name
        self.input, self.output = f"in.{name}", f"out.{name}"
        for url, rows in zip(self.urls, ROWS, strict=False):
            with connect(url) as connection:
                connection.open_sender(self.input).send_many(b"%d" % number for number in range(rows))

    def rows(self, of_a_batch: int | None = None) -> Any:
        """The stream of what comes in."""
        given = {
            "amqp.url": ";".join(self.urls), "subscribe": self.input, "subscription": self.name,
            "maxOffsetsPerTrigger": str(of_a_batch or OF_A_BATCH[len(self.urls)]),
            "includeSections": "body", "startingOffsets": "earliest",
        }  # fmt: skip
        return self.spark.readStream.format("amqp").options(**given).load()

    def write(self, rows: Any, **options: str) -> None:
        """Writes a stream to its end. Raises StreamingQueryException."""
        given = {
            "amqp.url": ";".join(self.urls), "address": self.output, "producerGroup": GROUP,
            "commitTimeoutMs": COMMIT_TIMEOUT_MS, "checkpointLocation": str(self.checkpoint),
        }  # fmt: skip
        writer = rows.writeStream.format(NAME).options(**given | options)
        run_to_end(writer.trigger(availableNow=True).start)

    def run(self, of_a_batch: int | None = None, **options: str) -> None:
        """Runs to the end of the input. Raises StreamingQueryException."""
        columns = ["concat(partition, '-', cast(body as string)) as body"]
        columns += ["partition"] if len(self.urls) > 1 else []
        self.write(self.rows(of_a_batch).selectExpr(*columns), **options)

    def fails(self, of_a_batch: int | None = None) -> str:
        """Runs, and wants a failure; its text."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(of_a_batch)
        return str(caught.value)

    def forget(self, *batches: int, log: str = "commits") -> None:
        """The state that a driver leaves that died before it noted these batches as done, or planned."""
        for batch in batches:
            (self.checkpoint / log / str(batch)).unlink()
            (self.checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)

    @property
    def known(self) -> Checkpoint:
        """What the checkpoint says."""
        found = read_checkpoint(self.checkpoint)
        assert found is not None
        return found

    def arrived(self) -> list[list[Any]]:
        """What each broker has, in its order."""
        found = []
        for url in self.urls:
            with connect(url) as connection:
                found.append([received.body for received in drained(connection, self.output)])
        return found

    def status(self, producer: str = "", epoch: int = 0) -> list[EpochStatus]:
        """What each broker knows of the query."""
        found = []
        for url in self.urls:
            with connect(url) as connection:
                client = SetClient(connection, GROUP)
                found.append(client.status(producer or self.known.query_id, epoch))
        return found

    def sets_left(self) -> int:
        """Sets without a decision."""
        return sum(len(status.sets) for status in self.status())

    def check(self) -> None:
        """Every row is there, once, at the broker that it came from, and in order; no set is left."""
        for number, found in enumerate(self.arrived()):
            assert found == [f"{number}-{row}".encode() for row in range(ROWS[number])]
        assert self.sets_left() == 0


@pytest.fixture
def query(spark: Any, brokers: Brokers, count: int, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    """A fresh one."""
    brokers.revive()
    return Query(spark, brokers, count, tmp_path, re.sub(r"\W", "-", request.node.name)[-60:])


@two
def test_a_batch_goes_both_ways(spark: Any, query: Query) -> None:
    """Written by the column partition, once for a version, and read again with it."""
    rows = spark.range(100).selectExpr("cast(id as string) as body", "cast(id % 2 as int) as partition")
    for _ in range(2):
        writer = rows.write.format("amqp").mode("append").option("amqp.url", ";".join(query.urls))
        writer.option("address", query.input).option("txnAppId", query.name).option("txnVersion", "1").save()
    reader = spark.read.format("amqp").option("amqp.url", ";".join(query.urls))
    columns = ("partition", "offset", "cast(cast(body as string) as int) as body")
    found = reader.option("subscribe", query.input).load().selectExpr(*columns).collect()
    for number, count in enumerate(ROWS):
        mine = [row for row in found if row.partition == number]
        assert [row.offset for row in mine] == list(range(count + 50))
        assert sorted(row.body for row in mine[count:]) == list(range(number, 100, 2))


@pytest.mark.parametrize("count", [1, 2])
def test_a_stream_arrives_once_and_in_order(query: Query, count: int) -> None:
    """Three micro-batches; the producer is the query, the epochs are its batches."""
    query.run()
    query.check()
    status = query.status(epoch=1)[0]
    assert (status.decided, status.latest, status.sets) == (True, LAST, ())
    assert sum(winner.count for winner in status.winners) == OF_A_BATCH[count]


@one
def test_a_batch_that_runs_again_writes_nothing(query: Query) -> None:
    """The driver died after the decision and before Spark's own note of it."""
    query.run()
    query.forget(LAST)
    query.run()
    query.check()


@pytest.mark.parametrize(
    ("count", "point"), [(1, "raise"), (1, "C3"), (1, "C5"), (2, "between"), (2, "C5"), (2, "C11")]
)
def test_a_commit_that_fails_is_made_good_by_the_next_start(
    query: Query, fault_file: Path, count: int, point: str
) -> None:
    """It fails before it is sent, a set was voided behind the back, the reply is lost and Spark aborts; it is
    decided and the other broker not told, a prepared set was ruled out.
    """
    plant(fault_file, point, 1)
    text = query.fails()
    assert taken_file(fault_file).exists()
    assert ("half:unknown-set" in text) == (point in ("C3", "C11"))
    assert count > 1 or query.sets_left() == 0, "what is aborted is voided"
    query.run()
    query.check()


@pytest.mark.parametrize(("count", "point"), [(1, "task"), (1, "exit"), (2, "task")])
def test_a_task_that_is_tried_again_is_written_once(query: Query, fault_file: Path, point: str) -> None:
    """The first try sealed its set, and then it failed, or its process was gone: nobody hears of that set."""
    plant(fault_file, point, 1)
    query.run()
    assert taken_file(fault_file).exists()
    query.check()


@pytest.mark.parametrize(("count", "point", "killed"), [(2, "C8", 0), (2, "C8", 1), (2, "C10", 1)])
def test_a_broker_that_is_killed_comes_back(
    brokers: Brokers, query: Query, fault_file: Path, point: str, killed: int
) -> None:
    """Coordinator or participant with sealed and undecided sets; the participant after the decision. The
    error says which.
    """
    plant(fault_file, point, 1, broker=brokers.running[killed].process.pid)
    text = query.fails()
    assert taken_file(fault_file).exists()
    assert query.urls[killed] in text
    assert ("Now it is decided, and " in text) == (point == "C10")
    assert brokers.revive() == 1
    query.run()
    query.check()


@two
def test_another_order_of_the_brokers_is_told(query: Query) -> None:
    """By the source first: its checkpoint has their stores."""
    query.run()
    query.urls.reverse()
    assert "the checkpoint has the brokers in another order" in query.fails()
    query.urls.reverse()
    query.check()


@one
def test_at_least_once_is_written_again(query: Query) -> None:
    """Without sets there is nothing to remember: a batch that runs again is doubled, as the name says."""
    query.run(guarantee="at-least-once")
    query.forget(LAST)
    query.run(guarantee="at-least-once")
    expected = [f"0-{row}".encode() for row in range(ROWS[0])]
    assert query.arrived() == [expected + expected[LAST * OF_A_BATCH[1] :]]


@one
@pytest.mark.parametrize("named", [False, True])
def test_a_deleted_checkpoint_is_a_new_query(query: Query, named: bool) -> None:
    """Everything again, under a new id; a name of its own does not make it the old one."""
    options: dict[str, Any] = {"producerId": "named"} if named else {}
    query.run(**options)
    shutil.rmtree(query.checkpoint)
    query.run(**options)
    assert [len(rows) for rows in query.arrived()] == [2 * ROWS[0]]
    producer = f"named.{query.known.query_id}" if named else query.known.query_id
    assert query.status(producer)[0].latest == LAST


@one
def test_a_checkpoint_from_a_copy_loses_nothing_in_silence(query: Query) -> None:
    """It plans a batch anew whose number is decided with other rows: that is said, nothing is left out."""
    query.run()
    for log in ("commits", "offsets"):
        query.forget(1, LAST, log=log)
    assert "it was committed before with 250 rows, and now it has 100" in query.fails(of_a_batch=100)


@one
def test_what_cannot_be_sent_is_said_before_the_query_runs(query: Query) -> None:
    """Unknown columns are named."""
    with pytest.raises(Exception, match="columns colour: expected only address, raw"):
        query.write(query.rows().selectExpr("body", "offset as colour"))


@one
def test_the_checker_reads_what_spark_writes(query: Query) -> None:
    """The checkpoint has its form: a name, planned and done batches."""
    query.run()
    assert query.known.query_id == json.loads((query.checkpoint / "metadata").read_text())["id"]
    assert (query.known.planned, query.known.done) == (LAST, LAST)
    query.forget(LAST)
    assert query.known.done == LAST - 1
