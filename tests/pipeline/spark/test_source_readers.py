"""The readers over one broker and over two, as Spark's runner calls them, without a session.

test_streams.py has both ways with Spark and broker processes.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from amqp_broker.authorisation import ANONYMOUS_NAME, ANY_USER
from amqp_broker.client import connect
from amqp_broker.configuration import AccessRule
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.errors import (
    BrokerUnreachable,
    CursorInUse,
    DataLoss,
    MissingRight,
    OffsetError,
    OptionError,
    PipelineError,
)
from amqp_broker.pipeline.listener import CursorListener
from amqp_broker.pipeline.options import SOURCE, BrokerAddress, read_options
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.pipeline.source import (
    POLL_MS,
    AmqpBatchReader,
    AmqpRange,
    AmqpStreamReader,
    read_range,
)
from amqp_broker.pipeline.source_broker import BrokerPlace
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import overtake
from tests.support.retained import retaining

SCHEMA = StructType().add("address", StringType()).add("partition", IntegerType()).add("offset", LongType())
COUNTS = (20, 4)
"""Of the messages of `a` at each broker."""
TOO_LONG_S = 10
Rows = list[tuple[str, int, int]]

one = pytest.mark.parametrize("count", [1])
two = pytest.mark.parametrize("count", [2])
one_and_two = pytest.mark.parametrize("count", [1, 2])


class Case:
    """So many brokers with `a`, `b` (four messages at the first) and what is empty, and readers over them."""

    def __init__(self, brokers: list[RunningBroker]) -> None:
        self.brokers = brokers
        self.url = ";".join(broker.url for broker in brokers)
        self.urls = [broker.url for broker in brokers]
        self.made: list[AmqpStreamReader] = []
        for number in range(len(brokers)):
            self.send("a", COUNTS[number], number)
            self.send("b", 0 if number else 4, number)
            self.send("late", 0, number)

    def send(self, address: str, count: int, number: int = 0) -> None:
        """So many messages more, to one broker."""
        with connect(self.urls[number]) as connection:
            connection.open_sender(address).send_many(b"%d" % n for n in range(count))

    def new(self, **given: str) -> AmqpStreamReader:
        """A reader of `a`; it is stopped in the end. What is empty is not given."""
        chosen = {"amqp.url": self.url, "subscription": "s", "subscribe": "a"} | given
        options = read_options({key: value for key, value in chosen.items() if value}, SOURCE)
        self.made.append(AmqpStreamReader(options, SCHEMA))
        return self.made[-1]

    def batch(self, **given: str) -> Rows:
        """What a batch reads."""
        return rows(self.batch_reader(**given))

    def batch_reader(self, **given: str) -> AmqpBatchReader:
        """A reader of a batch."""
        chosen = {"amqp.url": self.url, "subscribe": "a"} | given
        options = read_options({key: value for key, value in chosen.items() if value}, SOURCE)
        return AmqpBatchReader(options, SCHEMA)

    def cursors(self, name: str = "s") -> list[dict[str, int]]:
        """Where a subscription stands at each broker."""
        return [RetainedClient(BrokerAddress((url,))).cursor(name) for url in self.urls]

    def close(self) -> None:
        """Nothing is left of it."""
        for reader in self.made:
            reader.stop()
        for url in self.urls:
            drop_connection(BrokerAddress((url,)))


@pytest.fixture
def on(count: int) -> Iterator[Case]:
    """So many brokers."""
    with ExitStack() as stack:
        config = retaining("a", "a-more", "b", "late")
        case = Case([stack.enter_context(running_broker(config)) for _ in range(count)])
        yield case
        case.close()


def at(offset: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The place without what is around it: of each address, its offset at each broker that has it."""
    return {address: tuple(parts.values()) for address, parts in offset["a"].items()}


def rows(reader: Any, *place: dict[str, Any]) -> Rows:
    """What a batch reads; partitions and the reader go through pickle, as to a worker."""
    found: Rows = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(*place))):
        worker = type(reader)(reader._options, SCHEMA)
        for batch in pickle.loads(pickle.dumps(worker)).read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def of(partition: int, low: int, high: int, address: str = "a") -> Rows:
    """Messages at one broker."""
    return [(address, partition, offset) for offset in range(low, high)]


# --- with one broker as with several


@one_and_two
def test_a_batch_of_a_stream_reads_exactly_its_range(on: Case, count: int) -> None:
    """As often as it is asked for, also of the next driver; what is left is shared out by what each has; the
    cursors follow.
    """
    reader = on.new()
    start = reader.initialOffset()
    stores = [RetainedClient(BrokerAddress((url,))).describe().store_id for url in on.urls]
    zero = dict.fromkeys(map(str, range(count)), 0)
    assert start == {"a": {"a": zero}, "log": stores if count > 1 else stores[0], "v": 1}
    end = reader.latestOffset(start, ReadMaxRows(12))
    ends = {1: (12,), 2: (10, 2)}[count]
    assert at(end) == {"a": ends}
    expected = [row for number in range(count) for row in of(number, 0, ends[number])]
    assert rows(reader, start, end) == expected == rows(reader, start, end)
    assert rows(reader, end, end) == []
    reader.stop()
    again = on.new()
    assert rows(again, start, end) == expected
    rest = again.latestOffset(end, ReadAllAvailable())
    left = [row for number in range(count) for row in of(number, ends[number], COUNTS[number])]
    assert rows(again, end, rest) == left
    assert again.reportLatestOffset() == rest | {"behind": 0}
    again.commit(end)
    assert on.cursors() == [{"a": offset} for offset in ends]
    done = SimpleNamespace(endOffset=json.dumps(rest), batchId=1)
    CursorListener(on.url, "s").done(done, done)
    assert on.cursors() == [{"a": offset} for offset in COUNTS[:count]]


@one_and_two
def test_available_now_ends_at_what_there_was(on: Case, count: int) -> None:
    """What comes later is for the next run: the start is given back, as Spark wants it, in the same text."""
    reader = on.new(subscribe="a,b")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    on.send("a", 5, count - 1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert at(end) == {"a": COUNTS[:count], "b": (4, 0)[:count]}
    on.send("b", 5)
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)


@one_and_two
def test_an_idle_stream_waits_at_all_brokers(
    on: Case, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes to the last of them ends the wait; where nothing comes it ends after a second."""
    reader = on.new(subscribe="late")
    start = reader.initialOffset()
    began = time.monotonic()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert time.monotonic() - began >= POLL_MS / 1_000
    monkeypatch.setattr("amqp_broker.pipeline.source.POLL_MS", 1_000 * TOO_LONG_S)
    threading.Timer(0.3, on.send, ("late", 1, count - 1)).start()
    began = time.monotonic()
    assert at(reader.latestOffset(start, ReadAllAvailable())) == {"late": {1: (1,), 2: (0, 1)}[count]}
    assert time.monotonic() - began < TOO_LONG_S


@one_and_two
def test_many_partitions_read_what_one_reads(on: Case, count: int) -> None:
    """Each message once."""
    reader = on.new(subscribe="a,b", minPartitions="7")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(reader.partitions(start, end)) >= 7
    expected = [row for number in range(count) for row in of(number, 0, COUNTS[number])]
    assert sorted(rows(reader, start, end)) == expected + of(0, 0, 4, "b")
    many = on.batch_reader(minPartitions="8")
    assert len(many.partitions()) >= 8 and rows(many) == expected


@one
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 0),
        ({"startingOffsets": "latest"}, 20),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"a": 5}'}, 5),
        ({"startingTimestamp": "1"}, 0),
    ],
)
def test_the_beginning_stays_what_it_was(on: Case, given: dict[str, str], expected: int) -> None:
    """Asked twice in a run, and by the next driver when batch 0 was not done."""
    reader = on.new(**given)
    assert at(reader.initialOffset()) == {"a": (expected,)} == at(reader.initialOffset())
    reader.stop()
    on.send("a", 5)
    assert at(on.new(**given).initialOffset()) == {"a": (expected,)}


@one
def test_a_new_query_goes_on_or_begins_as_it_says(on: Case) -> None:
    """Behind a batch that was done: the default goes on, a word begins there, and another word elsewhere."""
    reader = on.new()
    reader.commit(reader.latestOffset(reader.initialOffset(), ReadMaxRows(15)))
    reader.stop()
    for begin, expected in (
        ("", 15), ("subscription", 15), ("earliest", 0), ("latest", 20), ('{"a": 3}', 3), ("earliest", 0),
        ("", 0),
    ):  # fmt: skip
        reader = on.new(startingOffsets=begin)
        assert at(reader.initialOffset()) == {"a": (expected,)} == at(reader.initialOffset()), begin
        reader.stop()


@one
def test_a_second_query_is_kept_out(on: Case) -> None:
    """Until the first one stops; another subscription is no obstacle."""
    first = on.new()
    start = first.initialOffset()
    second = on.new()
    for call in (second.initialOffset, lambda: second.latestOffset(start, ReadAllAvailable())):
        with pytest.raises(CursorInUse, match="option subscription"):
            call()
    assert at(on.new(subscription="other").initialOffset()) == {"a": (0,)}
    first.stop()
    assert at(second.initialOffset()) == {"a": (0,)}


@one
def test_a_restarted_query_takes_hold_of_its_cursor_again(on: Case) -> None:
    """Also when the broker has forgotten it: it is put where the query is."""
    reader = on.new()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(5))
    reader.stop()
    reader._brokers[0].client.forget("s")
    again = on.new()
    assert rows(again, end, again.latestOffset(end, ReadMaxRows(2))) == of(0, 5, 7)
    assert on.cursors() == [{"a": 5}]


@one
def test_commit_moves_the_cursor_and_never_raises(on: Case) -> None:
    """Forward only; what is no offset, or no broker, is a line in the log."""
    reader = on.new()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    reader.commit(end)
    reader.commit(start)
    assert on.cursors() == [{"a": 5}]
    reader.commit({"rubbish": True})
    on.brokers[0].stop()
    on.new(**{"amqp.url": "amqp://127.0.0.1:1"}).commit(end)


@one
def test_admission_by_rows_and_octets(on: Case) -> None:
    """Shared over the addresses; a limit of Spark's counts, else the options; at least one message."""
    reader = on.new(subscribe="a,b", maxOffsetsPerTrigger="6")
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    start = reader.initialOffset()
    assert at(reader.latestOffset(start, reader.getDefaultReadLimit())) == {"a": (5,), "b": (1,)}
    assert at(reader.latestOffset(start, ReadAllAvailable())) == {"a": (20,), "b": (4,)}
    reader.stop()
    tight = on.new(maxBytesPerTrigger="1")
    assert tight.getDefaultReadLimit() == ReadMaxBytes(1)
    assert at(tight.latestOffset(tight.initialOffset(), ReadMaxBytes(1))) == {"a": (1,)}
    tight.stop()
    both = on.new(maxBytesPerTrigger="1", maxOffsetsPerTrigger="3")
    assert at(both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())) == {"a": (1,)}
    both.stop()
    assert on.new().getDefaultReadLimit() == ReadAllAvailable()


@one
def test_a_new_address_begins_with_its_first_message(on: Case) -> None:
    """It is frozen: the batch is the same when it is repeated by another driver."""
    given = {"subscribe": "", "subscribePattern": "a.*", "startingOffsets": "latest"}
    reader = on.new(**given)
    start = reader.initialOffset()
    on.send("a-more", 3)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert at(start) == {"a": (20,)} and at(end) == {"a": (20,), "a-more": (3,)}
    assert rows(reader, start, end) == of(0, 0, 3, "a-more")
    reader.stop()
    assert rows(on.new(**given), start, end) == of(0, 0, 3, "a-more")


@one
def test_an_address_that_is_not_read_any_more_keeps_its_place(on: Case) -> None:
    """It comes back where it was."""
    reader = on.new(subscribe="a,b")
    place = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    reader.stop()
    fewer = on.new()
    end = fewer.latestOffset(place, ReadAllAvailable())
    assert at(end) == {"a": (20,), "b": (1,)}
    assert {address for address, _, _ in rows(fewer, place, end)} == {"a"}
    fewer.stop()
    assert at(on.new(subscribe="a,b").latestOffset(end, ReadAllAvailable())) == {"a": (20,), "b": (4,)}


@one
def test_what_does_not_belong_here_is_told(on: Case) -> None:
    """Another store, beyond the end, backwards, another version: by every call that gets offsets."""
    reader = on.new()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    for wrong, words in (
        (start | {"log": "another"}, "the checkpoint has offsets of the store another"),
        (start | {"a": {"a": {"0": 99}}}, "at offset 99 of 'a', but the broker's next offset there is 20"),
        (start | {"v": 9}, "version 9"),
    ):
        with pytest.raises(OffsetError, match=words):
            reader.latestOffset(wrong, ReadAllAvailable())
        with pytest.raises(OffsetError, match=words):
            reader.partitions(start, wrong)
    with pytest.raises(OffsetError, match="from offset 20 to 0"):
        reader.partitions(end, start)
    with pytest.raises(DataLoss, match="'gone', up to offset 3, is no retaining node any more"):
        reader.partitions(start, start | {"a": {"a": {"0": 0}, "gone": {"0": 3}}})
    (part,) = reader.partitions(start, end)
    assert isinstance(part, AmqpRange)
    part.store_id = "another"  # a worker checks the store itself: it may be another one by then
    with pytest.raises(OffsetError, match="of the store another, but the broker's store is"):
        list(reader.read(part))


def test_retention_that_overtakes_a_stream_is_told_or_passed_over() -> None:
    """The range is named; failOnDataLoss=false reads the rest."""
    with (
        running_broker(retaining("a", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        given = {"amqp.url": broker.url, "subscribe": "a", "subscription": "s"}
        connection.open_sender("a").send(b"first")
        reader = AmqpStreamReader(read_options(given, SOURCE), SCHEMA)
        start = reader.initialOffset()
        overtake(connection, broker.url, "a")
        end = reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLoss, match="dropped offsets 0 to .*failOnDataLoss"):
            reader.partitions(start, end)
        reader.stop()
        lossy = AmqpStreamReader(read_options(given | {"failOnDataLoss": "false"}, SOURCE), SCHEMA)
        found = rows(lossy, start, end)
        assert found == of(0, found[0][2], at(end)["a"][0])
        # A worker that was told of a range before it was dropped goes on, too.
        planned = AmqpRange(attrs.evolve(lossy.partitions(start, end)[0].wanted, low=0), end["log"])
        again = [tuple(row.values()) for batch in lossy.read(planned) for row in batch.to_pylist()]
        assert again == found
        with pytest.raises(DataLoss):
            list(AmqpStreamReader(read_options(given, SOURCE), SCHEMA).read(planned))
        lossy.stop()
        drop_connection(BrokerAddress((broker.url,)))


def test_a_planned_batch_that_retention_overtook_is_lost_and_not_edited() -> None:
    """Its beginning is asked for again, and is behind its end by then: what was dropped is data loss."""
    with (
        running_broker(retaining("a", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        given = {"amqp.url": broker.url, "subscribe": "a", "subscription": "s"}
        connection.open_sender("a").send(b"first")
        reader = AmqpStreamReader(read_options(given, SOURCE), SCHEMA)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()
        RetainedClient(BrokerAddress((broker.url,))).forget("s")
        overtake(connection, broker.url, "a")
        anew = given | {"startingOffsets": "earliest"}
        reader = AmqpStreamReader(read_options(anew, SOURCE), SCHEMA)
        start = reader.initialOffset()
        assert at(start)["a"] > at(end)["a"]
        with pytest.raises(DataLoss, match="'a' before offset 1, .* not retained any more: the first is"):
            reader.partitions(start, end)
        reader.stop()
        lossy = AmqpStreamReader(read_options(anew | {"failOnDataLoss": "false"}, SOURCE), SCHEMA)
        assert lossy.partitions(start, end) == []
        lossy.stop()
        drop_connection(BrokerAddress((broker.url,)))


def test_a_missing_right_is_told_by_name() -> None:
    """And not as a node that retains nothing, or that was deleted."""
    rules = (
        AccessRule(users=(ANY_USER,), actions=("connect", "send", "create", "receive"), nodes=("**",)),
        AccessRule(users=(ANY_USER,), actions=("browse",), nodes=("mine",)),
    )
    config = attrs.evolve(retaining("mine", "theirs"), access_rules=rules)
    with running_broker(config) as broker, connect(broker.url) as connection:
        for address in ("mine", "theirs"):
            connection.open_sender(address).send(b"x")
        given = {"amqp.url": broker.url, "subscribe": "mine,theirs", "subscription": "s"}
        missing = f"the right browse on 'theirs' is missing .*'{ANONYMOUS_NAME}' may not read 'theirs'"
        with pytest.raises(MissingRight, match=missing):
            AmqpBatchReader(read_options(given, SOURCE), SCHEMA).partitions()
        reader = AmqpStreamReader(read_options(given, SOURCE), SCHEMA)
        with pytest.raises(MissingRight, match=missing):
            reader.initialOffset()
        allowed = read_options(given | {"subscribe": "mine"}, SOURCE)
        (part,) = AmqpBatchReader(allowed, SCHEMA).partitions()
        assert isinstance(part, AmqpRange)
        part.wanted = attrs.evolve(part.wanted, address="theirs")
        with pytest.raises(MissingRight, match="lacks the right browse on 'theirs'"):
            list(read_range(allowed, SCHEMA, part))
        events = read_options({"amqp.url": broker.url, "isolation": "events"}, SOURCE)
        with pytest.raises(MissingRight, match=r"the right manage-read on '\$events' is missing"):
            AmqpBatchReader(events, StructType().add("lsn", LongType())).partitions()
        reader.stop()
        drop_connection(BrokerAddress((broker.url,)))


@one_and_two
def test_a_batch_waits_for_enough_messages_or_for_its_time(on: Case, count: int) -> None:
    """The first of a run goes; AvailableNow is not held back."""
    reader = on.new(minOffsetsPerTrigger="30", maxTriggerDelay="1h")
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert at(first)["a"] == COUNTS[:count]
    on.send("a", 5)
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    latest = reader.reportLatestOffset()
    assert latest is not None and latest["behind"] == 5
    on.send("a", 25)
    enough = reader.latestOffset(first, ReadAllAvailable())
    assert at(enough)["a"][0] == COUNTS[0] + 30
    on.send("a", 1)
    assert reader.latestOffset(enough, ReadAllAvailable()) == enough
    reader._batch_due_s = time.monotonic()  # the hour is over
    late = reader.latestOffset(enough, ReadAllAvailable())
    assert at(late)["a"][0] == COUNTS[0] + 31
    on.send("a", 1)
    reader.prepareForTriggerAvailableNow()
    assert at(reader.latestOffset(late, ReadAllAvailable()))["a"][0] == COUNTS[0] + 32


@one
def test_no_task_has_more_than_so_many_messages(on: Case) -> None:
    """Whatever minPartitions says; in order."""
    tasks = [part.wanted for part in on.batch_reader(maxRecordsPerPartition="7").partitions()]
    assert [(task.low, task.high) for task in tasks] == [(0, 6), (6, 13), (13, 20)]
    assert len(on.batch_reader(maxRecordsPerPartition="7", minPartitions="10").partitions()) == 10


@one
def test_a_time_for_each_address(on: Case) -> None:
    """An address that has none is read from its first message, or to its last one."""
    far = '{"a": "2126-01-31T08:00:00+00:00"}'
    assert {row[0] for row in on.batch(subscribe="a,b", startingTimestamp=far)} == {"b"}
    assert len(on.batch(subscribe="a,b", endingTimestamp=far)) == 24
    assert {row[0] for row in on.batch(subscribe="a,b", endingTimestamp='{"a": 5}')} == {"b"}


@one
def test_a_connection_that_breaks_in_the_midst_of_a_range_is_made_anew(
    on: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows go on behind the last one; a broker that is not there is told when amqp.retryMs are over."""
    monkeypatch.setattr("amqp_broker.pipeline.source.BATCH_ROWS", 1)
    reader = on.new()
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    batches = reader.read(part)
    seen = next(batches).to_pylist()
    drop_connection(reader._options.broker)
    for batch in batches:
        seen += batch.to_pylist()
    assert [row["offset"] for row in seen] == list(range(20))
    nowhere = on.new(**{"amqp.url": "amqp://127.0.0.1:1", "amqp.retryMs": "0"})
    with pytest.raises(PipelineError, match="no broker at"):
        list(nowhere.read(part))


# --- with two


@two
def test_a_batch_has_the_messages_of_all_brokers(on: Case) -> None:
    """By default all of them, by offsets of each, and of some."""
    assert on.batch() == of(0, 0, 20) + of(1, 0, 4)
    given = {"startingOffsets": '{"a": {"0": 18, "1": 1}}', "endingOffsets": '{"a": {"1": 3}}'}
    assert on.batch(**given) == of(0, 18, 20) + of(1, 1, 3)
    assert on.batch(startingOffsets='{"a": -1}') == []
    assert on.batch(assign='{"a": [1]}', subscribe="") == of(1, 0, 4)


@two
def test_the_beginning_is_frozen_at_each_broker(on: Case) -> None:
    """And begins anew at each when one has gone on: the options say where a new query begins."""
    reader = on.new(startingOffsets="latest")
    start = reader.initialOffset()
    reader.stop()
    for number in range(2):
        on.send("a", 3, number)
    again = on.new(startingOffsets="latest")
    assert again.initialOffset() == start and at(start) == {"a": (20, 4)}
    again.commit(start | {"a": {"a": {"0": 21, "1": 4}}})
    again.stop()
    assert at(on.new(startingOffsets="latest").initialOffset()) == {"a": (23, 7)}


@two
def test_a_broker_may_be_added_at_the_end(on: Case) -> None:
    """A checkpoint of one broker goes on, and begins with the first message of the new one."""
    alone = on.new(**{"amqp.url": on.urls[0]})
    start = alone.initialOffset()
    end = alone.latestOffset(start, ReadMaxRows(5))
    assert end == {"a": {"a": {"0": 5}}, "log": start["log"], "v": 1} and isinstance(end["log"], str)
    alone.stop()
    both = on.new()
    assert rows(both, start, end) == of(0, 0, 5), "the batch that was planned is the same"
    rest = both.latestOffset(end, ReadAllAvailable())
    assert rows(both, end, rest) == of(0, 5, 20) + of(1, 0, 4)


@two
def test_another_order_a_missing_and_another_broker_are_told(on: Case) -> None:
    """With the broker that it is about."""
    first, other = on.urls
    reader = on.new()
    start = reader.initialOffset()
    reader.stop()
    for url, said in (
        (f"{other};{first}", f"another order: .* begin with {first}; {other}, found {other}; {first}"),
        (first, "at 2 brokers, and the option amqp.url names 1"),
        (f"{first};{first.replace('127.0.0.1', 'localhost')}", "are the same broker"),
    ):
        with pytest.raises(OffsetError, match=said):
            on.new(**{"amqp.url": url}).latestOffset(start, ReadAllAvailable())
    with (
        running_broker(retaining("a")) as wiped,
        pytest.raises(OffsetError, match=f"store of the broker at {wiped.url} is .* wiped"),
    ):
        on.new(**{"amqp.url": f"{first};{wiped.url}"}).latestOffset(start, ReadAllAvailable())
    with pytest.raises(BrokerUnreachable, match="no broker at amqp://127.0.0.1:1 "):
        on.new(**{"amqp.url": f"{first};amqp://127.0.0.1:1"}).latestOffset(start, ReadAllAvailable())


@two
def test_what_is_missing_is_told_with_its_broker(on: Case) -> None:
    """An address, a range, and a pattern that matches nowhere; one that matches somewhere is enough."""
    on.send("else", 1, 1)
    with pytest.raises(OptionError, match=f"'more' is not a node that retains messages at {on.urls[0]}"):
        on.new(subscribe="more").initialOffset()
    with pytest.raises(OptionError, match="no retaining node matches 'nothing'; there are '.events', 'a'"):
        on.new(subscribe="", subscribePattern="nothing").initialOffset()
    reader = on.new()
    start = reader.initialOffset()
    with pytest.raises(OffsetError, match=f"next offset there is 4 at {on.urls[1]}"):
        reader.partitions(start, start | {"a": {"a": {"0": 0, "1": 5}}})
    gone = start | {"a": {"a": {"0": 0, "1": 0}, "gone": {"1": 3}}}
    with pytest.raises(DataLoss, match=f"'gone', up to offset 3, .* more at {on.urls[1]}"):
        reader.partitions(start, gone)


@two
def test_a_broker_that_ends_while_it_is_read_is_named(on: Case) -> None:
    """A task says which one, and so does one whose store is another one now."""
    reader = on.batch_reader(**{"amqp.timeoutMs": "200", "amqp.retryMs": "200"})
    first, second = reader.partitions()
    drop_connection(reader._options.brokers[1])
    on.brokers[1].stop()
    with pytest.raises(BrokerUnreachable, match=on.urls[1]):
        [*reader.read(second)]
    assert isinstance(first, AmqpRange)
    first.store_id = "another"
    with pytest.raises(OffsetError, match=f"the broker at {on.urls[0]}: .* the broker's store is"):
        [*reader.read(first)]
    drop_connection(reader._options.brokers[0])


@one
def test_cursors_of_one_broker_are_named_as_ever(on: Case) -> None:
    """A checkpoint of a query that was there before several brokers were: batch 0 begins where it began."""
    given = {"amqp.url": on.url, "subscribe": "orders", "subscription": "s"}
    for offsets in ('{"orders": 5}', '{"orders": {"0": 5}}'):
        place = BrokerPlace(read_options(given | {"startingOffsets": offsets}, SOURCE), 0)
        assert place._cursors() == ("s/start:7b1cd9c5c0ae8a8a", "s")
