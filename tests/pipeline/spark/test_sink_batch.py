"""The batch sink with Spark and a broker: all or nothing, once for a version, and its columns."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.authorisation import ANY_USER
from amqp_broker.client import BlockingConnection, ReceivedMessage
from amqp_broker.configuration import AccessRule
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import AmqpValue, Int, Symbol
from amqp_broker.pipeline.errors import OptionError, SchemaError
from amqp_broker.pipeline.options import read_options
from amqp_broker.pipeline.set_client import SetClient
from amqp_broker.pipeline.sink import BatchWriter, StreamWriter
from amqp_broker.pipeline.told import told
from amqp_broker.testing import memory_config, running_broker
from tests.pipeline.receiving import drained
from tests.pipeline.spark.faulty_source import NAME, FaultySource
from tests.pipeline.spark.hooks import plant

GROUP = "spark"


class Queue:
    """A queue of the test's own, and what is written to it."""

    def __init__(self, url: str, connection: BlockingConnection, address: str) -> None:
        self.url = url
        self.connection = connection
        self.address = address

    def write(self, rows: Any, **options: str) -> None:
        """Writes a frame; the address may be a column."""
        rows.sparkSession.dataSource.register(FaultySource)
        given = {"amqp.url": self.url, "producerGroup": GROUP}
        given |= {} if "address" in rows.columns else {"address": self.address}
        rows.write.format(NAME).mode("append").options(**given | options).save()

    def drained(self) -> list[ReceivedMessage]:
        """What is there."""
        return drained(self.connection, self.address)

    def sets_left(self, producer: str) -> int:
        """Sets without a decision."""
        return len(SetClient(self.connection, GROUP).status(producer).sets)


@pytest.fixture
def queue(broker: RunningBroker, connection: BlockingConnection, request: pytest.FixtureRequest) -> Queue:
    """A fresh one."""
    return Queue(broker.url, connection, str(request.node.name).split("[")[0][:60])


def texts(spark: Any, count: int) -> Any:
    """So many rows."""
    return spark.range(count).selectExpr("cast(id as string) as body")


def test_every_column_arrives_as_what_it_is(spark: Any, queue: Queue) -> None:
    """From Spark's types over Arrow to the sections of the message."""
    rows = spark.sql(
        """select parse_json('{"a": [1, 2.5, null]}') as body_value,
        named_struct('message_id', cast(18446744073709551615 as decimal(20, 0)), 'subject', 'new',
                     'creation_time', timestamp'2026-05-01 12:00:00.123456Z') as properties,
        map('size', cast(3 as int)) as application_properties,
        map('x-opt-variant', to_variant_object(named_struct('k', 'v'))) as message_annotations,
        named_struct('durable', true, 'priority', cast(7 as smallint)) as header"""
    )
    queue.write(rows)
    (one,) = queue.drained()
    assert one.body == {"a": one.body["a"]}
    assert [getattr(item, "value", item) for item in one.body["a"]][0] == 1
    assert one.body["a"][2] is None
    assert one.properties.message_id == (1 << 64) - 1
    assert (one.properties.subject, one.properties.creation_time) == ("new", 1_777_636_800_123)
    assert one.application_properties == {"size": Int(3)}
    assert one.message_annotations == {Symbol("x-opt-variant"): {"k": "v"}}
    assert (one.header.durable, one.header.priority) == (True, 7)


def test_simple_values_are_sent_as_amqp_values(spark: Any, queue: Queue) -> None:
    """A body_value need not be a VARIANT; the address may be a column."""
    rows = spark.sql(f"select cast(5 as int) as body_value, '{queue.address}' as address")
    queue.write(rows)
    (one,) = queue.drained()
    assert one.message.body_sections() == [AmqpValue(Int(5))]


def test_a_version_is_written_once(spark: Any, queue: Queue) -> None:
    """The same txnAppId and txnVersion again is skipped, the next one not; without them each run writes."""
    rows = texts(spark, 100)
    once = {"txnAppId": "nightly", "txnVersion": "7"}
    queue.write(rows, **once)
    queue.write(rows, **once)
    assert len(queue.drained()) == 100
    queue.write(rows, **once | {"txnVersion": "8"})
    assert len(queue.drained()) == 100
    queue.write(rows)
    queue.write(rows)
    assert len(queue.drained()) == 200


def test_a_version_with_other_rows_or_an_older_one_is_an_error(spark: Any, queue: Queue) -> None:
    """Rows that would be left out are told."""
    rows = texts(spark, 10)
    once = {"txnAppId": "weekly", "txnVersion": "7"}
    queue.write(rows, **once)
    with pytest.raises(Exception, match="committed before with 10 rows, and now it has 20"):
        queue.write(rows.union(rows), **once)
    with pytest.raises(Exception, match="above 7, the latest one decided, found 6"):
        queue.write(rows, **once | {"txnVersion": "6"})
    assert len(queue.drained()) == 10


def test_a_task_that_is_tried_again_is_written_once(spark: Any, queue: Queue, fault_file: Path) -> None:
    """Its first set is voided by the commit."""
    plant(fault_file, "task")
    rows = spark.range(300).repartition(2).selectExpr("cast(id as string) as body")
    queue.write(rows, txnAppId="tried", txnVersion="1")
    assert sorted(int(one.body) for one in queue.drained()) == list(range(300))
    assert queue.sets_left("tried") == 0


def test_a_lost_reply_and_the_abort_after_it_lose_nothing(spark: Any, queue: Queue, fault_file: Path) -> None:
    """The job fails, although all is written; run again with its version, it writes nothing."""
    plant(fault_file, "C5")
    rows = texts(spark, 50)
    once = {"txnAppId": "lost", "txnVersion": "1"}
    with pytest.raises(Exception, match="the reply to the commit is lost"):
        queue.write(rows, **once)
    queue.write(rows, **once)
    assert len(queue.drained()) == 50


def test_a_batch_that_fails_writes_nothing(spark: Any, queue: Queue) -> None:
    """One task of two fails for good: the other's rows are not seen, and its set is voided."""
    spark.conf.set("spark.sql.ansi.enabled", "true")
    rows = spark.range(200).selectExpr("cast(1 / (id - 150) as string) as body")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        queue.write(rows, txnAppId="failing", txnVersion="1")
    assert queue.drained() == []
    assert queue.sets_left("failing") == 0


def test_an_unreachable_broker_is_named(spark: Any) -> None:
    """The error says where it looked, and which option says so."""
    spark.dataSource.register(FaultySource)
    writer = texts(spark, 1).write.format(NAME).mode("append")
    with pytest.raises(Exception, match=r"no broker at amqp://127.0.0.1:1 .*option amqp.url"):
        writer.option("amqp.url", "amqp://127.0.0.1:1").option("address", "a").save()


def test_writers_can_be_pickled_into_a_fresh_process(spark: Any) -> None:
    """Spark does that with every task: no connection, no lock, no function of ours is inside."""
    options = read_options({"amqp.url": "amqp://127.0.0.1:1", "address": "a"}, "sink")
    schema = texts(spark, 1).schema
    for make in (BatchWriter, StreamWriter):
        pickled = pickle.dumps(make(options, schema, False))
        program = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer)).__name__)"
        ran = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
        assert ran.stdout.strip().endswith(b"Writer")


def test_bad_options_are_told_when_the_writer_is_made(spark: Any) -> None:
    """Before any task runs."""
    schema = texts(spark, 1).schema

    def made(make: Any, overwrite: bool = False, **given: str) -> Any:
        return make(read_options({"amqp.url": "amqp://127.0.0.1:1"} | given, "sink"), schema, overwrite)

    with pytest.raises(OptionError, match="a queue cannot be overwritten"):
        made(BatchWriter, overwrite=True, address="a")
    with pytest.raises(OptionError, match="option txnVersion: expected txnAppId and txnVersion together"):
        made(BatchWriter, address="a", txnAppId="x")
    with pytest.raises(OptionError, match="option txnAppId: it is for batches"):
        made(StreamWriter, address="a", txnAppId="x", txnVersion="1")
    with pytest.raises(OptionError, match="option producerId: it is for streams"):
        made(BatchWriter, address="a", producerId="x")
    with pytest.raises(OptionError, match="option producerId: expected at most 90"):
        made(StreamWriter, address="a", producerId="x" * 91)
    with pytest.raises(SchemaError, match="column address, or the option address"):
        made(StreamWriter)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_missing_right_is_what_a_query_ends_with(spark: Any, guarantee: str) -> None:
    """Its name and its address, found in what Spark made of it."""
    most = ("connect", "create", "half-put", "half-resolve")
    rules = AccessRule(users=(ANY_USER,), actions=most, nodes=("**",))
    replies = AccessRule(users=(ANY_USER,), actions=("send",), nodes=("temporary.**",))
    config = attrs.evolve(memory_config(), access_rules=(rules, replies))
    with running_broker(config) as broker:
        given = {"amqp.url": broker.url, "address": "secret", "guarantee": guarantee}
        with pytest.raises(Exception, match="MissingRight") as caught:
            texts(spark, 3).write.format("amqp").mode("append").options(**given).save()
        assert "MissingRight: the right send on 'secret' is missing: the user" in str(told(caught.value))
