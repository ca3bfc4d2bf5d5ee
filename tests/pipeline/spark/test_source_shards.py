"""The readers over two brokers, as Spark calls them: a partition for each broker, one place of the query.

Without a session; test_shards.py has both ways with Spark and broker processes.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from amqp_broker.client import connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.errors import BrokerUnreachable, DataLoss, OffsetError, OptionError
from amqp_broker.pipeline.listener import CursorListener
from amqp_broker.pipeline.options import SOURCE, BrokerAddress, read_options
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.pipeline.source import POLL_MS, AmqpBatchReader, AmqpStreamReader
from amqp_broker.pipeline.source_broker import BrokerPlace
from amqp_broker.testing import running_broker
from tests.support.retained import retaining

SCHEMA = StructType().add("address", StringType()).add("partition", IntegerType()).add("offset", LongType())
New = Callable[..., Any]
Rows = list[tuple[str, int, int]]


@pytest.fixture
def brokers() -> Iterator[list[RunningBroker]]:
    """Two with `orders`: twelve messages in the first one's, four in the other's; `late` is empty."""
    with (
        running_broker(retaining("orders", "late")) as one,
        running_broker(retaining("orders", "late")) as other,
    ):
        for broker, count in ((one, 12), (other, 4)):
            send(broker, "orders", count)
            send(broker, "late", 0)
        yield [one, other]


@pytest.fixture
def new(brokers: list[RunningBroker]) -> Iterator[New]:
    """Makes readers over both; they are stopped in the end."""
    made: list[AmqpStreamReader] = []

    def make(batch: bool = False, **given: str) -> Any:
        chosen = {"amqp.url": url_of(brokers), "subscribe": "orders"} | given
        chosen = {key: value for key, value in chosen.items() if value}
        if batch:
            return AmqpBatchReader(read_options(chosen, SOURCE), SCHEMA)
        made.append(AmqpStreamReader(read_options({"subscription": "s"} | chosen, SOURCE), SCHEMA))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()
    for broker in brokers:
        drop_connection(BrokerAddress((broker.url,)))


def url_of(brokers: list[RunningBroker]) -> str:
    """The option amqp.url."""
    return ";".join(broker.url for broker in brokers)


def send(broker: RunningBroker, address: str, count: int) -> None:
    """So many messages more."""
    with connect(broker.url) as connection:
        connection.open_sender(address).send_many(b"%d" % number for number in range(count))


def rows(reader: Any, *place: dict[str, Any]) -> Rows:
    """What a batch reads; partitions and the reader go through pickle, as to a worker."""
    found: Rows = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(*place))):
        for batch in reader.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def of(partition: int, low: int, high: int) -> Rows:
    """Messages of `orders` at one broker."""
    return [("orders", partition, offset) for offset in range(low, high)]


def test_a_batch_has_the_messages_of_all_brokers(new: New) -> None:
    """By default all of them, by offsets of each, and cut into more tasks."""
    assert rows(new(batch=True)) == of(0, 0, 12) + of(1, 0, 4)
    given = {"startingOffsets": '{"orders": {"0": 10, "1": 1}}', "endingOffsets": '{"orders": {"1": 3}}'}
    assert rows(new(batch=True, **given)) == of(0, 10, 12) + of(1, 1, 3)
    assert rows(new(batch=True, startingOffsets='{"orders": -1}')) == []
    assert rows(new(batch=True, assign='{"orders": [1]}', subscribe="")) == of(1, 0, 4)
    many = new(batch=True, minPartitions="8")
    assert len(many.partitions()) >= 8 and rows(many) == of(0, 0, 12) + of(1, 0, 4)


def test_a_stream_has_one_place_at_all_brokers(new: New, brokers: list[RunningBroker]) -> None:
    """Shared out by what each has; the same again after a restart; the cursors follow."""
    reader = new()
    start = reader.initialOffset()
    logs = [RetainedClient(BrokerAddress((broker.url,))).describe().log for broker in brokers]
    assert start == {"a": {"orders": {"0": 0, "1": 0}}, "log": logs, "v": 1}
    end = reader.latestOffset(start, ReadMaxRows(8))
    assert end["a"] == {"orders": {"0": 6, "1": 2}}
    assert rows(reader, start, end) == of(0, 0, 6) + of(1, 0, 2) == rows(reader, start, end)
    reader.stop()
    again = new()
    assert rows(again, start, end) == of(0, 0, 6) + of(1, 0, 2)
    rest = again.latestOffset(end, ReadAllAvailable())
    assert rows(again, end, rest) == of(0, 6, 12) + of(1, 2, 4)
    assert again.reportLatestOffset() == rest
    again.commit(end)
    assert [client_of(broker).cursor("s") for broker in brokers] == [{"orders": 6}, {"orders": 2}]
    CursorListener(url_of(brokers), "s")._note([json.dumps(rest)])
    assert [client_of(broker).cursor("s") for broker in brokers] == [{"orders": 12}, {"orders": 4}]


def client_of(broker: RunningBroker) -> RetainedClient:
    """Asks one broker."""
    return RetainedClient(BrokerAddress((broker.url,)))


def test_the_beginning_is_frozen_at_each_broker(new: New, brokers: list[RunningBroker]) -> None:
    """And begins anew at each when one has gone on: the options say where a new query begins."""
    reader = new(startingOffsets="latest")
    start = reader.initialOffset()
    reader.stop()
    for broker in brokers:
        send(broker, "orders", 3)
    again = new(startingOffsets="latest")
    assert again.initialOffset() == start and start["a"] == {"orders": {"0": 12, "1": 4}}
    again.commit(start | {"a": {"orders": {"0": 13, "1": 4}}})
    again.stop()
    assert new(startingOffsets="latest").initialOffset()["a"] == {"orders": {"0": 15, "1": 7}}


def test_available_now_ends_at_what_each_broker_had(new: New, brokers: list[RunningBroker]) -> None:
    """What comes later is for the next run."""
    reader = new()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(brokers[1], "orders", 5)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["a"] == {"orders": {"0": 12, "1": 4}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_waits_at_all_brokers(new: New, brokers: list[RunningBroker]) -> None:
    """What comes to the last of them ends the wait; where nothing comes it ends after a second."""
    reader = new(subscribe="late")
    start = reader.initialOffset()
    began = time.monotonic()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert time.monotonic() - began >= POLL_MS / 1_000
    send(brokers[1], "late", 1)
    assert reader.latestOffset(start, ReadAllAvailable())["a"] == {"late": {"0": 0, "1": 1}}


def test_a_broker_may_be_added_at_the_end(new: New, brokers: list[RunningBroker]) -> None:
    """A checkpoint of one broker goes on, and begins with the first message of the new one."""
    alone = new(**{"amqp.url": brokers[0].url})
    start = alone.initialOffset()
    end = alone.latestOffset(start, ReadMaxRows(5))
    assert end == {"a": {"orders": {"0": 5}}, "log": start["log"], "v": 1} and isinstance(end["log"], str)
    alone.stop()
    both = new()
    assert rows(both, start, end) == of(0, 0, 5), "the batch that was planned is the same"
    rest = both.latestOffset(end, ReadAllAvailable())
    assert rows(both, end, rest) == of(0, 5, 12) + of(1, 0, 4)


def test_another_order_a_missing_and_another_broker_are_told(new: New, brokers: list[RunningBroker]) -> None:
    """With the broker that it is about."""
    one, other = (broker.url for broker in brokers)
    reader = new()
    start = reader.initialOffset()
    reader.stop()
    for url, said in (
        (f"{other};{one}", f"another order: .* begin with {one}; {other}, found {other}; {one}"),
        (one, "at 2 brokers, and the option amqp.url names 1"),
        (f"{one};{one.replace('127.0.0.1', 'localhost')}", "are the same broker"),
    ):
        with pytest.raises(OffsetError, match=said):
            new(**{"amqp.url": url}).latestOffset(start, ReadAllAvailable())
    with (
        running_broker(retaining("orders")) as wiped,
        pytest.raises(OffsetError, match=f"store of the broker at {wiped.url} is .* wiped"),
    ):
        new(**{"amqp.url": f"{one};{wiped.url}"}).latestOffset(start, ReadAllAvailable())
    with pytest.raises(BrokerUnreachable, match="no broker at amqp://127.0.0.1:1 "):
        new(**{"amqp.url": f"{one};amqp://127.0.0.1:1"}).latestOffset(start, ReadAllAvailable())


def test_what_is_missing_is_told_with_its_broker(new: New, brokers: list[RunningBroker]) -> None:
    """An address, a range, and a pattern that matches nowhere; one that matches somewhere is enough."""
    send(brokers[1], "else", 1)
    with pytest.raises(OptionError, match=f"'more' is not a node that retains messages at {brokers[0].url}"):
        new(subscribe="more").initialOffset()
    with pytest.raises(OptionError, match="no retaining node matches 'nothing'; there are '.events', 'late'"):
        new(subscribe="", subscribePattern="nothing").initialOffset()
    reader = new()
    start = reader.initialOffset()
    end = start | {"a": {"orders": {"0": 0, "1": 5}}}
    with pytest.raises(OffsetError, match=f"next offset there is 4 at {brokers[1].url}"):
        reader.partitions(start, end)
    gone = start | {"a": {"orders": {"0": 0, "1": 0}, "gone": {"1": 3}}}
    with pytest.raises(DataLoss, match=f"'gone', up to offset 3, .* more at {brokers[1].url}"):
        reader.partitions(start, gone)


def test_a_broker_that_ends_while_it_is_read_is_named(new: New, brokers: list[RunningBroker]) -> None:
    """A task says which one, and so does one whose store is another one now."""
    reader = new(batch=True, **{"amqp.timeoutMs": "200"})
    partitions = reader.partitions()
    drop_connection(reader._options.brokers[1])
    brokers[1].stop()
    with pytest.raises(BrokerUnreachable, match=brokers[1].url):
        [*reader.read(partitions[1])]
    partitions[0].log = "another"
    with pytest.raises(OffsetError, match=f"the broker at {brokers[0].url}: .* the broker's store is"):
        [*reader.read(partitions[0])]
    drop_connection(reader._options.brokers[0])


def test_cursors_of_one_broker_are_named_as_ever(brokers: list[RunningBroker]) -> None:
    """A checkpoint of a query that was there before several brokers were: batch 0 begins where it began."""
    given = {"amqp.url": brokers[0].url, "subscribe": "orders", "subscription": "s"}
    for offsets in ('{"orders": 5}', '{"orders": {"0": 5}}'):
        one = BrokerPlace(read_options(given | {"startingOffsets": offsets}, SOURCE), 0)
        assert one._cursors() == ("s/start:7b1cd9c5c0ae8a8a", "s")
