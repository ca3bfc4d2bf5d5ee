"""Tables and views of SQL over the data source: what the plan says is read, and what is inserted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkException

from amqp_broker.client import BlockingConnection, connect, message
from amqp_broker.configuration import HalfGroupConfig
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.push_down import SETTING
from amqp_broker.pipeline.variants import inner
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import drained
from tests.support.retained import retaining

MESSAGES = 40


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With a half group, and two addresses full of messages."""
    with running_broker(retaining("in.*", half_groups=(HalfGroupConfig(name="spark"),))) as running:
        with connect(running.url) as connection:
            for address in ("in.a", "in.b"):
                connection.open_sender(address).send_many(message(b"%d" % n) for n in range(MESSAGES))
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[BlockingConnection]:
    """A connection of the test's own."""
    with connect(broker.url) as opened:
        yield opened


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    """The session with push-down."""
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


def create(spark: Any, broker: RunningBroker, name: str, **options: str) -> None:
    """A table in the session's catalog."""
    given = ", ".join(f"'{key}' '{value}'" for key, value in ({"amqp.url": broker.url} | options).items())
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} USING amqp OPTIONS ({given})")


def rows_read(frame: Any) -> int:
    """How many rows the source gave to Spark when the frame was collected."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    scans = [node for node in _nodes(plan) if node.nodeName().startswith("BatchScan")]
    (scan,) = scans
    return int(scan.metrics().apply("numOutputRows").value())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def pushed(frame: Any) -> str:
    """The line of the plan that tells the filters that the source takes."""
    mode = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    plan = frame._jdf.queryExecution().explainString(mode)
    return next((line for line in plan.splitlines() if line.startswith("PushedFilters")), "")


def test_a_table_is_selected_from_and_inserted_into(
    spark: Any, broker: RunningBroker, connection: BlockingConnection
) -> None:
    """By SQL alone; the options are those of its CREATE TABLE, in each later statement."""
    create(spark, broker, "orders", table="in.sql")
    connection.open_sender("in.sql").send(message(b"first"))
    spark.sql("INSERT INTO orders (body) VALUES (CAST('second' AS BINARY))")
    spark.sql("INSERT INTO orders (body_value) VALUES (parse_json('{\"n\": 3}'))")
    rows = spark.sql("SELECT offset, CAST(body AS STRING) AS text, to_json(body_value) AS value FROM orders")
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        (0, "first", None), (1, "second", None), (2, None, '{"n":3}'),
    ]  # fmt: skip
    first, second, third = (received.body for received in drained(connection, "in.sql"))
    assert (first, second, inner(third["n"])) == (b"first", b"second", 3)


def test_a_temporary_view_is_a_table_without_a_catalog(spark: Any, broker: RunningBroker) -> None:
    """The same options."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING amqp OPTIONS ('amqp.url' '{broker.url}', table 'in.a')"
    )
    assert spark.sql("SELECT count(*) FROM seen WHERE offset < 7").first()[0] == 7


def test_what_the_broker_says_is_not_inserted(spark: Any, broker: RunningBroker) -> None:
    """A place is told, not chosen; a table is never overwritten; the error says what to do."""
    create(spark, broker, "place", table="in.place", guarantee="at-least-once")
    for statement, expected in (
        ("INSERT INTO place (body, offset) VALUES (X'41', 7)", "column offset, row 0 of its batch: expected"),
        ("INSERT INTO place (body, address) VALUES (X'41', 'in.b')", "column address, row 0"),
        ("INSERT OVERWRITE place (body) VALUES (X'41')", "a queue cannot be overwritten"),
    ):
        with pytest.raises(PySparkException) as caught:
            spark.sql(statement)
        assert expected in str(caught.value)


def test_columns_are_chosen_where_the_table_is_made(spark: Any, broker: RunningBroker) -> None:
    """The plan reads those and no others; Spark prunes none of a source in Python, so it is said here."""
    create(spark, broker, "narrow", table="in.a", columns="offset,body")
    frame = spark.sql("SELECT offset FROM narrow")
    plan = frame._jdf.queryExecution().toString()
    assert "BatchScan amqp[offset#" in plan and "address#" not in plan
    assert [field.name for field in spark.table("narrow").schema] == ["offset", "body"]


def test_a_table_with_a_list_of_columns_says_why_it_cannot_be(spark: Any, broker: RunningBroker) -> None:
    """Spark forgets its options: the error says so, and what to write instead."""
    spark.sql("DROP TABLE IF EXISTS listed")
    given = f"'amqp.url' '{broker.url}', table 'in.a'"
    spark.sql(f"CREATE TABLE listed (offset BIGINT) USING amqp OPTIONS ({given})")
    with pytest.raises(PySparkException, match="no list of columns"):
        spark.sql("SELECT * FROM listed").collect()


@pytest.mark.parametrize(
    ("where", "rows", "read"),
    [
        ("offset >= 10 AND offset < 13", 6, 6),
        ("offset = 5", 2, 2),
        ("offset > 38 OR offset < 1", 4, 2 * MESSAGES),  # no range: Spark applies it
        ("address = 'in.b'", MESSAGES, MESSAGES),
        ("address IN ('in.b', 'elsewhere') AND offset <= 3", 4, 4),
        ("partition = 0 AND offset < 2", 4, 4),
        ("partition = 1", 0, 0),
        ("enqueued_at < TIMESTAMP'2020-01-01 00:00:00'", 0, 0),
        ("enqueued_at >= TIMESTAMP'2020-01-01 00:00:00' AND offset < 4", 8, 8),
        ("offset < 4 AND body IS NULL", 0, 8),
    ],
)
def test_filters_are_ranges_that_are_read(
    pushing: Any, broker: RunningBroker, where: str, rows: int, read: int
) -> None:
    """The rows are right, and no others came from the broker."""
    create(pushing, broker, "both_of_them", subscribe="in.a,in.b")
    frame = pushing.sql(f"SELECT offset, address FROM both_of_them WHERE {where}")
    assert rows_read(frame) == read
    assert len(frame.collect()) == rows
    assert bool(pushed(frame).removeprefix("PushedFilters: []")) == (read < 2 * MESSAGES)


def test_a_time_is_where_a_message_is(pushing: Any, broker: RunningBroker) -> None:
    """The bounds are exact: with and without equality, of each message of a node."""
    create(pushing, broker, "timed", table="in.a", columns="offset,enqueued_at")
    times = {row.offset: row.enqueued_at for row in pushing.table("timed").collect()}
    at = times[MESSAGES // 2]
    literal = f"TIMESTAMP'{at.isoformat(sep=' ')}'"
    for sign, expected in (
        (">=", {n for n in times if times[n] >= at}), (">", {n for n in times if times[n] > at}),
        ("<", {n for n in times if times[n] < at}), ("<=", {n for n in times if times[n] <= at}),
        ("=", {n for n in times if times[n] == at}),
    ):  # fmt: skip
        frame = pushing.sql(f"SELECT offset FROM timed WHERE enqueued_at {sign} {literal}")
        assert {row.offset for row in frame.collect()} == expected
        assert rows_read(frame) == len(expected)


def test_without_the_setting_nothing_is_pushed_and_nothing_fails(spark: Any, broker: RunningBroker) -> None:
    """Spark's own default."""
    spark.conf.set(SETTING, "false")
    create(spark, broker, "plain", table="in.a", columns="offset")
    frame = spark.sql("SELECT offset FROM plain WHERE offset >= 10 AND offset < 13")
    assert rows_read(frame) == MESSAGES and len(frame.collect()) == 3
    spark.conf.unset(SETTING)
