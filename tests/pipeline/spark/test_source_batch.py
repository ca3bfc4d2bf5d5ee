"""The batch source with Spark and a broker: every message a row, and bad input told in words."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import attrs
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.base import PySparkException

from amqp_broker.client import BlockingConnection, connect, message
from amqp_broker.client.messages import OutgoingMessage
from amqp_broker.configuration import QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Data,
    Header,
    Message,
    Properties,
    Symbol,
    Timestamp,
    Ulong,
    encode_message,
)
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.option_values import SECTIONS
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.rows import columns_of
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import overtake
from tests.support.retained import retaining

NAME = uuid.UUID(int=7)
RICH: dict[str, Any] = {
    "header": Header(durable=True, priority=7, ttl=4_000_000_000),
    "message_annotations": {Symbol("x-opt-mine"): {"deep": [1, None]}, Ulong(5): "five"},
    "properties": Properties(
        message_id=NAME, user_id=b"me", to="in.rich", subject="order", reply_to="back",
        correlation_id=Ulong(2**64 - 1), content_type="text/plain", absolute_expiry_time=4_000_000_000_123,
        creation_time=1_000, group_id="g", group_sequence=4_294_967_295, reply_to_group_id="h",
    ),
    "application_properties": {
        "text": "ä", "big": Ulong(2**63), "time": Timestamp(1_500), "no": None, "yes": True, "half": 0.5,
        "octets": b"\x00\x01", "seq_stream": "s", "seq_id": 9, "seq_no": 1, "seq_prev": 0,
    },
    "footer": {Symbol("sum"): 3},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def filled(broker: RunningBroker) -> None:
    """Two nodes have messages."""
    with connect(broker.url) as connection:
        connection.open_sender("in.a").send_many(message(b"%d" % n) for n in range(250))
        connection.open_sender("in.b").send_many(message(b"%d" % n) for n in range(50))


def load(spark: Any, broker: RunningBroker, **options: str) -> Any:
    """The data frame of these options."""
    return spark.read.format("amqp").option("amqp.url", broker.url).options(**options).load()


def said(spark: Any, broker: RunningBroker, **options: str) -> str:
    """What is said of these options, at the latest when the rows are counted."""
    with pytest.raises((AnalysisException, PySparkException)) as caught:
        load(spark, broker, **options).count()
    return str(caught.value)


def counts(frame: Any) -> dict[str, tuple[int, int, int]]:
    """For each address: how many rows, the first and the last offset."""
    offsets: dict[str, list[int]] = {}
    for row in frame.select("address", "offset").collect():
        offsets.setdefault(row.address, []).append(row.offset)
    return {address: (len(found), min(found), max(found)) for address, found in offsets.items()}


def test_a_message_with_everything_is_a_row_with_everything(
    spark: Any, broker: RunningBroker, connection: BlockingConnection
) -> None:
    """Each section in its column, values as VARIANT, and the bare message octet for octet."""
    sent = encode_message(body=b"body", **RICH)
    connection.open_sender("in.rich").send(OutgoingMessage(sent))
    (row,) = (
        load(spark, broker, subscribe="in.rich", includeRaw="true")
        .selectExpr("*", "to_json(application_properties) as texts", "to_json(message_annotations) as notes")
        .collect()
    )
    assert (row.address, row.partition, row.offset, row.body_type, row.body) == (
        "in.rich",
        0,
        0,
        "data",
        b"body",
    )
    assert (
        abs((row.enqueued_at - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)).total_seconds())
        < 300
    )
    assert (row.header.durable, row.header.priority) == (True, 7)
    found = row.properties.asDict()
    assert found["message_id"] == str(NAME) and found["message_id_type"] == "uuid"
    assert found["correlation_id"] == str(2**64 - 1) and found["correlation_id_type"] == "ulong"
    assert found["user_id"] == b"me" and found["group_sequence"] == 4_294_967_295
    assert found["creation_time"] == datetime.datetime(1970, 1, 1, 0, 0, 1)
    assert found["absolute_expiry_time"] == datetime.datetime(2096, 10, 2, 7, 6, 40, 123_000)
    values = {key: value.toPython() for key, value in row.application_properties.items()}
    assert values["big"] == decimal.Decimal(2**63) and values["octets"] == b"\x00\x01"
    assert values["time"] == datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC)
    assert (values["text"], values["no"], values["yes"], values["half"]) == ("ä", None, True, 0.5)
    assert '"text":"ä"' in row.texts and row.notes == '{"x-opt-mine":{"deep":[1,null]},"5":"five"}'
    assert {key: value.toPython() for key, value in row.footer.items()} == {"sum": 3}
    assert row.seq.asDict() == {"stream": "s", "id": 9, "no": 1, "prev": 0}
    assert row.txn is None and row.delivery_annotations is None and row.body_value is None
    assert row.raw == Message(sent).bare


def test_bodies_of_every_kind(spark: Any, broker: RunningBroker, connection: BlockingConnection) -> None:
    """Data in several sections is one, sequences are one array, a value is what it is, JSON is text."""
    bodies: list[Any] = [
        [Data(b"a"), Data(b"b")], AmqpValue({"k": [1, "x"]}), [AmqpSequence([1]), AmqpSequence(["z"])],
        AmqpValue(None), AmqpValue("text"),
    ]  # fmt: skip
    connection.open_sender("in.bodies").send_many(
        OutgoingMessage(encode_message(body=body)) for body in bodies
    )
    rows = load(spark, broker, subscribe="in.bodies").orderBy("offset").collect()
    assert [row.body_type for row in rows] == ["data", "value", "sequence", "value", "value"]
    assert [row.body for row in rows] == [b"ab", None, None, None, None]
    values = [None if row.body_value is None else row.body_value.toPython() for row in rows]
    assert values == [None, {"k": [1, "x"]}, [1, "z"], None, "text"]
    assert rows[3].body_value is not None and rows[0].body_value is None
    many = {f"k{number}": number for number in range(40)}
    connection.open_sender("in.bodies").send(OutgoingMessage(encode_message(body=AmqpValue(many))))
    last = load(spark, broker, subscribe="in.bodies", startingOffsets='{"in.bodies": 5}')
    got = last.selectExpr(*(f"variant_get(body_value, '$.{name}', 'int') as {name}" for name in many)).first()
    assert got.asDict() == many
    json = load(spark, broker, subscribe="in.bodies", valueFormat="json", endingOffsets='{"in.bodies": 5}')
    rows = json.orderBy("offset").collect()
    assert [row.body_value for row in rows] == [None, '{"k":[1,"x"]}', '[1,"z"]', "null", '"text"']


def test_ranges_by_offset_and_by_option(spark: Any, broker: RunningBroker) -> None:
    """From and to, several addresses, a pattern, in as many tasks as asked for."""
    ends = {"startingOffsets": '{"in.a": 10, "in.b": -2}', "endingOffsets": '{"in.a": {"0": 20}, "in.b": -1}'}
    frame = load(spark, broker, subscribe="in.a,in.b", includeSections="none", **ends)
    assert counts(frame) == {"in.a": (10, 10, 19), "in.b": (50, 0, 49)}
    frame = load(spark, broker, subscribePattern="in[.][ab]", minPartitions="5", includeSections="body")
    assert frame.rdd.getNumPartitions() >= 5
    assert frame.columns == [
        "address",
        "partition",
        "offset",
        "enqueued_at",
        "body_type",
        "body",
        "body_value",
    ]
    assert sorted((row.address, int(row.body)) for row in frame.collect()) == [
        (address, n) for address, count in (("in.a", 250), ("in.b", 50)) for n in range(count)
    ]


def test_nothing_is_read_where_nothing_is(spark: Any, broker: RunningBroker) -> None:
    """From the latest, from a time to come, up to a time long ago."""
    for options in (
        {"startingOffsets": "latest"},
        {"startingTimestamp": "2999-01-01T00:00:00+00:00"},
        {"endingTimestamp": "1000"},
    ):
        assert load(spark, broker, subscribe="in.a", **options).count() == 0


def test_a_schema_of_ones_own_reads_its_columns_only(spark: Any, broker: RunningBroker) -> None:
    """In any order; a wrong one is told."""
    reader = spark.read.format("amqp").option("amqp.url", broker.url).option("subscribe", "in.b")
    rows = reader.schema("body binary, offset bigint").load().orderBy("offset").collect()
    assert [(row.offset, row.body) for row in rows][-1] == (49, b"49")
    for schema, words in (
        ("boddy binary", "unknown column 'boddy' in the schema: there are address"),
        ("body string", "column 'body' of the schema: expected binary, found string"),
    ):
        with pytest.raises(AnalysisException, match=words):
            reader.schema(schema).load().count()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suscribe": "in.a"}, "unknown option suscribe: did you mean subscribe?"),
        ({"subscribe": "plain"}, "option subscribe: 'plain' is not a node that retains messages; there are"),
        ({"subscribePattern": "out.*"}, "option subscribePattern: no retaining node matches 'out.*'"),
        ({"subscribe": "in.a", "startingOffsets": '{"in.a": 999}'}, "expected at most 250 for 'in.a'"),
        (
            {"subscribe": "in.a", "startingOffsets": '{"in.a": 9}', "endingOffsets": '{"in.a": 5}'},
            "option endingOffsets: expected at least 9 for 'in.a', where the query begins, found 5",
        ),
        (
            {"subscribe": "in.a", "startingOffsets": "subscription", "subscription": "never"},
            "option subscription: the broker has no cursor 'never'",
        ),
        ({"subscribe": "in.a", "amqp.url": "amqp://127.0.0.1:1"}, "no broker at amqp://127.0.0.1:1"),
    ],
)  # fmt: skip
def test_bad_input_is_told_before_anything_runs(
    spark: Any, broker: RunningBroker, options: dict[str, str], words: str
) -> None:
    """With the option's name and what to do."""
    assert words in said(spark, broker, **options)


def test_what_retention_dropped_is_an_error_or_is_passed_over(spark: Any) -> None:
    """The range is named; failOnDataLoss=false reads the rest."""
    with (
        running_broker(retaining("in.*", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        node = overtake(connection, broker.url, "in.short")
        drop_connection(BrokerAddress((broker.url,)))
        begin = {"subscribe": "in.short", "startingOffsets": '{"in.short": 0}'}
        words = said(spark, broker, **begin)
        assert "offset 0 of 'in.short' is not retained any more" in words and "failOnDataLoss" in words
        found = counts(load(spark, broker, failOnDataLoss="false", **begin))
        assert found["in.short"][0] >= 3 and found["in.short"][2] == node.next - 1
        assert found["in.short"][1] >= node.first


def test_the_journal_has_a_row_for_each_event(spark: Any) -> None:
    """In the columns of the archive."""
    config = attrs.evolve(
        retaining(), queue_policies=(QueuePolicy(pattern="in.*", retention_ms=60_000, events=True),)
    )
    with running_broker(config) as broker, connect(broker.url) as connection:
        connection.open_sender("in.told").send_many(message(b"%d" % n, message_id=f"m{n}") for n in range(20))
        receiver = connection.open_receiver("in.told")
        for _ in range(5):
            receiver.accept(receiver.receive(10))
        receiver.close()
        frame = load(spark, broker, isolation="events")
        assert frame.columns == [name for name, _ in EVENT_COLUMNS]
        rows = frame.orderBy("lsn").collect()
    put = [row for row in rows if row.type == "put"]
    assert [row.offset for row in put] == list(range(20)) and put[3].message_id == "m3"
    assert all(row.address == "in.told" and row.time is not None for row in put)
    assert [row.lsn for row in rows] == list(range(rows[0].lsn, rows[0].lsn + len(rows)))


def test_all_columns_are_known(spark: Any, broker: RunningBroker) -> None:
    """Spark's words for the columns are ours: what a schema is checked by."""
    frame = load(spark, broker, subscribe="in.a", includeRaw="true")
    expected = columns_of(SECTIONS, True, "variant")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        (name, kind.replace("`", "")) for name, kind in expected
    ]
