"""Rows as the source gives them go back through the sink as the messages that they were."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.client import BlockingConnection, OutgoingMessage, connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Data,
    Header,
    Message,
    Properties,
    Symbol,
    Ulong,
    encode_message,
)
from amqp_broker.pipeline.messages_of_rows import POSITIONS
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import drained
from tests.support.logs import log_policy, nothing_waits, with_policies
from tests.support.message_events import log_of, told
from tests.support.retained import retaining

RICH = [
    encode_message(
        header=Header(durable=True, priority=7),
        message_annotations={"x-opt-a": "1", "x-opt-b": [True, None]},
        properties=Properties(
            message_id=Ulong(2**64 - 1), correlation_id=uuid.UUID(int=7), user_id=b"\xff", subject="new",
            content_type="text/plain", creation_time=1_777_636_800_123, group_id="g",
            group_sequence=4_294_967_295,
        ),
        application_properties={"text": "x", "flag": False, "size": 1 << 40, "ratio": 0.5, "none": None},
        body=Data(b"\x00" * 300),
    ),
    encode_message(properties=Properties(message_id=b"\x01\x02"), body=AmqpValue({"k": [1, "x", None]})),
    encode_message(body=AmqpSequence([1, "x"]), footer={"x-sum": "f"}),
    encode_message(body=AmqpValue(None)),
    encode_message(properties=Properties(message_id="plain"), body=b""),
]  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker in memory; `in.*` retain, and have the messages; `log` is a log."""
    config = retaining("in.*")
    policies = (*config.queue_policies, log_policy("log", events=True))
    with running_broker(with_policies(config, *policies)) as running:
        with connect(running.url) as connection:
            connection.open_sender("in.rich").send_many(OutgoingMessage(payload) for payload in RICH)
        yield running


def copied(
    spark: Any, broker: RunningBroker, connection: BlockingConnection, to: str, *drop: str
) -> list[Message]:
    """The messages after a copy without these columns."""
    rows = spark.read.format("amqp").option("amqp.url", broker.url).option("subscribe", "in.rich")
    frame = rows.option("includeRaw", "true").load().drop(*drop, *POSITIONS)
    frame.write.format("amqp").mode("append").option("amqp.url", broker.url).option("address", to).save()
    return [received.message for received in drained(connection, to)]


def test_raw_is_octet_for_octet(spark: Any, broker: RunningBroker, connection: BlockingConnection) -> None:
    """The lossless way; annotations and the footer are columns beside it."""
    beside = ("properties", "application_properties", "body", "body_type", "body_value")
    found = copied(spark, broker, connection, "raw", *beside)
    assert [message.bare for message in found] == [Message(payload).bare for payload in RICH]
    assert found[0].header.priority == 7
    assert found[2].footer == {Symbol("x-sum"): "f"}


def test_columns_are_the_same_messages(
    spark: Any, broker: RunningBroker, connection: BlockingConnection
) -> None:
    """Section by section; whole numbers of any width are longs, which is what a VARIANT knows of them."""
    found = copied(spark, broker, connection, "columns", "raw")
    sent = [Message(payload) for payload in RICH]
    assert [message.properties for message in found] == [message.properties for message in sent]
    assert [message.application_properties for message in found] == [
        message.application_properties for message in sent
    ]
    assert [message.message_annotations for message in found] == [
        message.message_annotations for message in sent
    ]
    assert [message.footer for message in found] == [message.footer for message in sent]
    assert [message.body_sections() for message in found] == [message.body_sections() for message in sent]


def test_a_log_between_two_jobs(spark: Any, broker: RunningBroker, connection: BlockingConnection) -> None:
    """What one job writes into a log another one reads, as often as it likes; no consumer has to take it."""
    del connection
    rows = spark.read.format("amqp").option("amqp.url", broker.url)
    for job in (1, 2):
        first = rows.option("subscribe", "in.rich").option("includeRaw", "true").load()
        frame = first.selectExpr("raw").repartition(2)
        frame.write.format("amqp").mode("append").option("amqp.url", broker.url).option(
            "address", "log"
        ).save()
        found = (
            rows.option("subscribe", "log").option("includeRaw", "true").load().selectExpr("offset", "raw")
        )
        read = sorted((row["offset"], bytes(row["raw"])) for row in found.collect())
        assert [offset for offset, _ in read] == [*range(job * len(RICH))]
        assert sorted(raw for _, raw in read) == sorted(job * [Message(payload).bare for payload in RICH])
    assert nothing_waits(broker, "log")
    published = told(log_of(broker), "publish", "address", "outcome")
    assert published == [("log", "archived")] * (2 * len(RICH))
