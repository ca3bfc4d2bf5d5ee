"""The reader of a stream as Spark's runner calls it, against a broker in memory, without a session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from amqp_broker.client import connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.errors import CursorInUse, DataLoss, OffsetError, PipelineError
from amqp_broker.pipeline.options import SOURCE, read_options
from amqp_broker.pipeline.source import AmqpRange, AmqpStreamReader
from amqp_broker.testing import running_broker
from tests.support.retained import retaining

SCHEMA = StructType().add("address", StringType()).add("offset", LongType()).add("body", BinaryType())
New = Callable[..., AmqpStreamReader]


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """With twenty messages in `a`, and four in `b`."""
    with running_broker(retaining("a", "a-more", "b")) as running:
        send(running, "a", 20)
        send(running, "b", 4)
        yield running


@pytest.fixture
def new(broker: RunningBroker) -> Iterator[New]:
    """Makes readers of `a`; they are stopped in the end."""
    made: list[AmqpStreamReader] = []

    def make(**given: str) -> AmqpStreamReader:
        chosen = {"amqp.url": broker.url, "subscription": "s", "subscribe": "a"} | given
        options = read_options({key: value for key, value in chosen.items() if value}, SOURCE)
        made.append(AmqpStreamReader(options, SCHEMA))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()
        drop_connection(reader._options.broker)


def send(broker: RunningBroker, address: str, count: int) -> None:
    """So many messages more."""
    with connect(broker.url) as connection:
        connection.open_sender(address).send_many(b"%d" % number for number in range(count))


def at(offset: dict[str, Any]) -> dict[str, int]:
    """The place without what is around it."""
    return {address: parts["0"] for address, parts in offset["a"].items()}


def rows(
    reader: AmqpStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int, bytes]]:
    """What a batch reads; partitions and the reader go through pickle, as to a worker."""
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        worker = AmqpStreamReader(reader._options, SCHEMA)
        for batch in pickle.loads(pickle.dumps(worker)).read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def test_a_batch_reads_exactly_its_range(new: New) -> None:
    """As often as it is asked for."""
    reader = new()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(7))
    expected = [("a", number, b"%d" % number) for number in range(7)]
    assert rows(reader, start, end) == expected == rows(reader, start, end)
    assert rows(reader, end, end) == []
    following = reader.latestOffset(end, ReadAllAvailable())
    assert [offset for _, offset, _ in rows(reader, end, following)] == list(range(7, 20))
    assert reader.reportLatestOffset() == following


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
def test_the_beginning_stays_what_it_was(
    new: New, broker: RunningBroker, given: dict[str, str], expected: int
) -> None:
    """Asked twice in a run, and by the next driver when batch 0 was not done."""
    reader = new(**given)
    assert at(reader.initialOffset()) == {"a": expected} == at(reader.initialOffset())
    reader.stop()
    send(broker, "a", 5)
    assert at(new(**given).initialOffset()) == {"a": expected}


def test_a_new_query_goes_on_or_begins_as_it_says(new: New) -> None:
    """Behind a batch that was done: the default goes on, a word begins there, and another word elsewhere."""
    reader = new()
    reader.commit(reader.latestOffset(reader.initialOffset(), ReadMaxRows(15)))
    reader.stop()
    for given, expected in (
        ({}, 15),
        ({"startingOffsets": "subscription"}, 15),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "latest"}, 20),
        ({"startingOffsets": '{"a": 3}'}, 3),
        ({"startingOffsets": "earliest"}, 0),
        ({}, 0),
    ):
        reader = new(**given)
        assert at(reader.initialOffset()) == {"a": expected} == at(reader.initialOffset()), given
        reader.stop()


def test_a_second_query_is_kept_out(new: New) -> None:
    """Until the first one stops; another subscription is no obstacle."""
    first = new()
    start = first.initialOffset()
    second = new()
    for call in (second.initialOffset, lambda: second.latestOffset(start, ReadAllAvailable())):
        with pytest.raises(CursorInUse, match="option subscription"):
            call()
    assert at(new(subscription="other").initialOffset()) == {"a": 0}
    first.stop()
    assert at(second.initialOffset()) == {"a": 0}


def test_a_restarted_query_takes_hold_of_its_cursor_again(new: New) -> None:
    """Also when the broker has forgotten it: it is put where the query is."""
    reader = new()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    reader.stop()
    reader._brokers[0].client.forget("s")
    again = new()
    assert [offset for _, offset, _ in rows(again, end, again.latestOffset(end, ReadMaxRows(2)))] == [5, 6]
    assert again._brokers[0].client.cursor("s") == {"a": 5}


def test_commit_moves_the_cursor_and_never_raises(new: New, broker: RunningBroker) -> None:
    """Forward only; what is no offset, or no broker, is a line in the log."""
    reader = new()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    reader.commit(end)
    reader.commit(start)
    assert reader._brokers[0].client.cursor("s") == {"a": 5}
    reader.commit({"rubbish": True})
    broker.stop()
    given = {"amqp.url": "amqp://127.0.0.1:1", "subscription": "s", "subscribe": "a"}
    AmqpStreamReader(read_options(given, SOURCE), SCHEMA).commit(end)


def test_available_now_ends_at_what_there_was(new: New, broker: RunningBroker) -> None:
    """And then gives back the start, as Spark wants it, in the same text."""
    reader = new(subscribe="a,b")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    send(broker, "a", 5)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert at(end) == {"a": 20, "b": 4}
    send(broker, "b", 5)
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)


def test_an_idle_stream_waits_at_the_broker(new: New, broker: RunningBroker) -> None:
    """Up to its second, and then says that nothing is new."""
    reader = new()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    send(broker, "a", 1)
    assert at(reader.latestOffset(end, ReadAllAvailable())) == {"a": 21}


def test_admission_by_rows_and_octets(new: New) -> None:
    """Shared over the addresses; a limit of Spark's counts, else the options; at least one message."""
    reader = new(subscribe="a,b", maxOffsetsPerTrigger="6")
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    start = reader.initialOffset()
    assert at(reader.latestOffset(start, reader.getDefaultReadLimit())) == {"a": 5, "b": 1}
    assert at(reader.latestOffset(start, ReadAllAvailable())) == {"a": 20, "b": 4}
    reader.stop()
    tight = new(maxBytesPerTrigger="1")
    assert tight.getDefaultReadLimit() == ReadMaxBytes(1)
    assert at(tight.latestOffset(tight.initialOffset(), ReadMaxBytes(1))) == {"a": 1}
    tight.stop()
    both = new(maxBytesPerTrigger="1", maxOffsetsPerTrigger="3")
    assert at(both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())) == {"a": 1}
    both.stop()
    assert new().getDefaultReadLimit() == ReadAllAvailable()


def test_a_new_address_begins_with_its_first_message(new: New, broker: RunningBroker) -> None:
    """It is frozen: the batch is the same when it is repeated by another driver."""
    given = {"subscribe": "", "subscribePattern": "a.*", "startingOffsets": "latest"}
    reader = new(**given)
    start = reader.initialOffset()
    send(broker, "a-more", 3)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert at(start) == {"a": 20} and at(end) == {"a": 20, "a-more": 3}
    expected = [("a-more", number, b"%d" % number) for number in range(3)]
    assert rows(reader, start, end) == expected
    reader.stop()
    assert rows(new(**given), start, end) == expected


def test_an_address_that_is_not_read_any_more_keeps_its_place(new: New) -> None:
    """It comes back where it was."""
    reader = new(subscribe="a,b")
    place = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    reader.stop()
    fewer = new()
    end = fewer.latestOffset(place, ReadAllAvailable())
    assert at(end) == {"a": 20, "b": 1}
    assert {address for address, _, _ in rows(fewer, place, end)} == {"a"}
    fewer.stop()
    back = new(subscribe="a,b")
    assert at(back.latestOffset(end, ReadAllAvailable())) == {"a": 20, "b": 4}


def test_many_partitions_read_what_one_reads(new: New) -> None:
    """Each message once."""
    reader = new(subscribe="a,b", minPartitions="7")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(reader.partitions(start, end)) >= 7
    assert sorted(rows(reader, start, end))[:3] == [("a", 0, b"0"), ("a", 1, b"1"), ("a", 2, b"2")]
    assert len(set(rows(reader, start, end))) == 24


def test_what_does_not_belong_here_is_told(new: New) -> None:
    """Another store, beyond the end, backwards, another version: by every call that gets offsets."""
    reader = new()
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


def test_a_worker_checks_the_store_itself(new: New) -> None:
    """A broker that was replaced after the batch was planned."""
    reader = new()
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert isinstance(part, AmqpRange)
    part.log = "another"
    with pytest.raises(OffsetError, match="of the store another, but the broker's store is"):
        list(reader.read(part))


def test_retention_that_overtakes_a_stream_is_told_or_passed_over() -> None:
    """The range is named; failOnDataLoss=false reads the rest."""
    with (
        running_broker(retaining("a", keep_ms=0, keep_bytes=1_000)) as broker,
        connect(broker.url) as connection,
    ):
        given = {"amqp.url": broker.url, "subscribe": "a", "subscription": "s"}
        sender, receiver = connection.open_sender("a"), connection.open_receiver("a")
        sender.send(b"first")
        reader = AmqpStreamReader(read_options(given, SOURCE), SCHEMA)
        start = reader.initialOffset()
        receiver.accept(receiver.receive(10))
        while reader._brokers[0].client.describe().nodes["a"].first == 0:
            sender.send_many(b"x" * 500 for _ in range(20))
            for _ in range(20):
                receiver.accept(receiver.receive(10))
        receiver.close()
        sender.send_many([b"left"] * 3)
        end = reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLoss, match="dropped offsets 0 to .*failOnDataLoss"):
            reader.partitions(start, end)
        reader.stop()
        lossy = AmqpStreamReader(read_options(given | {"failOnDataLoss": "false"}, SOURCE), SCHEMA)
        found = rows(lossy, start, end)
        assert [body for _, _, body in found][-3:] == [b"left"] * 3
        first = found[0][1]
        assert [offset for _, offset, _ in found] == list(range(first, at(end)["a"]))
        # A worker that was told of a range before it was dropped goes on, too.
        planned = AmqpRange(lossy.partitions(start, end)[0].wanted, end["log"])
        planned.low = 0
        again = [row for batch in lossy.read(planned) for row in batch.to_pylist()]
        assert [row["offset"] for row in again] == list(range(first, at(end)["a"]))
        with pytest.raises(DataLoss):
            list(AmqpStreamReader(read_options(given, SOURCE), SCHEMA).read(planned))
        lossy.stop()
        drop_connection(lossy._options.broker)


def test_a_connection_that_breaks_in_the_midst_of_a_range_is_made_anew(
    new: New, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows go on behind the last one; a broker that never was there is told at once."""
    monkeypatch.setattr("amqp_broker.pipeline.source.BATCH_ROWS", 1)
    reader = new()
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    batches = reader.read(part)
    seen = next(batches).to_pylist()
    drop_connection(reader._options.broker)
    for batch in batches:
        seen += batch.to_pylist()
    assert [row["offset"] for row in seen] == list(range(20))
    nowhere = new(**{"amqp.url": "amqp://127.0.0.1:1"})
    with pytest.raises(PipelineError, match="no broker at"):
        list(nowhere.read(part))
