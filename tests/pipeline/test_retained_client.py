"""What the source asks of a broker, against a real one in memory, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.client import connect, message
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Symbol, Timestamp, Ulong, encode_message
from amqp_broker.pipeline import connections
from amqp_broker.pipeline.connections import connection_to, credentials, drop_connection, open_connection
from amqp_broker.pipeline.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CursorInUse,
    DataLoss,
    OffsetError,
    OptionError,
)
from amqp_broker.pipeline.offsets import Range
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import Dropped, RangeReader, RetainedClient
from amqp_broker.testing import running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.pipeline.receiving import overtake
from tests.support.retained import retaining

WAIT_S = PATIENCE_S


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """With ten messages in `kept`, retained by a size that holds them."""
    with running_broker(retaining("kept", "kept.*")) as running:
        with connect(running.url, timeout_s=WAIT_S) as connection:
            connection.open_sender("kept").send_many(message(f"{n}".encode()) for n in range(10))
        yield running


@pytest.fixture
def address(broker: RunningBroker) -> Iterator[BrokerAddress]:
    """Where it is; the pool is left clean."""
    found = BrokerAddress((broker.url,), timeout_ms=5_000)
    yield found
    drop_connection(found)


@pytest.fixture
def client(address: BrokerAddress) -> Iterator[RetainedClient]:
    """Asks it."""
    asking = RetainedClient(address)
    yield asking
    asking.close()


def reader(
    address: BrokerAddress, low: int, high: int, log: str | None = None, node: str = "kept"
) -> RangeReader:
    """Of a range."""
    return RangeReader(connection_to(address), Range(node, low, high), log, WAIT_S)


def test_nodes_are_described_with_their_store(client: RetainedClient) -> None:
    """The journal is one of them."""
    found = client.describe()
    node = found.nodes["kept"]
    assert (node.first, node.next) == (0, 10) and node.bytes > 0
    assert "$events" in found.nodes and len(found.store_id) == 36


def test_a_range_is_read_whole_and_in_order(client: RetainedClient, address: BrokerAddress) -> None:
    """Twice the same; an empty one is no request at all."""
    log = client.describe().store_id
    for _ in range(2):
        found = list(reader(address, 2, 9, log).batches())
        assert [offset for batch in found for offset in batch.offsets] == list(range(2, 9))
        assert [sections[6] for batch in found for sections in batch.splits] == [
            b"%d" % n for n in range(2, 9)
        ]
    assert list(reader(address, 5, 5, "of another").batches()) == []


@pytest.mark.parametrize("offsets", [[3, 5], [4, 5], [2, 3], [3, 3], [3, 4, 5, 6, 7], [4, 3]])
def test_a_broker_that_sends_others_than_asked_for_is_found_out(offsets: list[int]) -> None:
    """A gap, a repetition, another order, more than the range: each message has to be the next one."""
    nobody: Any = None
    reading = RangeReader(nobody, Range("kept", 3, 7), None, WAIT_S)
    with pytest.raises(
        DataLoss, match=r"expected the messages at offsets 3 to \d+, of offsets 3 to 6 of 'kept'"
    ):
        reading._checked([stamped(offset) for offset in offsets])
    assert reading._checked([stamped(offset) for offset in (3, 4)]).offsets == [3, 4]
    assert reading.position == 5


def stamped(offset: int) -> bytes:
    """A message as a retaining node sends it."""
    keys = {Symbol("x-stream-offset"): Ulong(offset), Symbol("x-opt-enqueued-time"): Timestamp(1)}
    return encode_message(message_annotations=keys, body=b"x")


def test_a_broken_message_is_no_row(address: BrokerAddress) -> None:
    """It is told where it should have been."""
    nobody: Any = None
    with pytest.raises(DataLoss, match="from offset 3 of 'kept' on, but one of 1 is malformed"):
        RangeReader(nobody, Range("kept", 3, 7), None, WAIT_S)._checked([stamped(3)[:-1]])


def test_many_ranges_leave_no_sessions_behind(address: BrokerAddress) -> None:
    """A connection has 64 of them."""
    for _ in range(70):
        assert sum(map(len, reader(address, 0, 3).batches())) == 3


def test_a_reader_that_is_given_up_ends_its_session(address: BrokerAddress) -> None:
    """As Spark does with a limit."""
    for _ in range(70):
        batches = reader(address, 0, 10).batches()
        next(batches)
        del batches


def test_a_range_of_another_store_is_told(address: BrokerAddress) -> None:
    """Before a message of it is read."""
    with pytest.raises(OffsetError, match="of the store old, but the broker's store is"):
        list(reader(address, 0, 5, "old").batches())


def test_what_is_not_there_yet_is_told(address: BrokerAddress) -> None:
    """A broker that was restored from an older copy."""
    with pytest.raises(OffsetError, match="'kept' has nothing from offset 10 on: the broker was restored"):
        list(reader(address, 5, 20).batches())


def test_a_node_that_does_not_retain_is_refused(address: BrokerAddress) -> None:
    """With the broker's words, which say what to configure."""
    with pytest.raises(BrokerRefused, match="retention_ms"):
        list(reader(address, 0, 5, node="plain").batches())


def test_what_retention_dropped_is_told_with_the_range() -> None:
    """And what to do; the error survives the way home from a worker."""
    config = retaining("kept", keep_ms=0, keep_bytes=1_000)
    with running_broker(config) as broker, connect(broker.url, timeout_s=WAIT_S) as connection:
        address = BrokerAddress((broker.url,), timeout_ms=5_000)
        first = overtake(connection, broker.url, "kept").first
        with pytest.raises(
            Dropped, match=r"offsets 0 to \d+ of 'kept', but .* dropped those from offset 0"
        ) as lost:
            list(reader(address, 0, first + 1).batches())
        drop_connection(address)
        drop_connection(BrokerAddress((broker.url,)))
    assert isinstance(lost.value, DataLoss) and "failOnDataLoss" in str(lost.value)
    again = pickle.loads(pickle.dumps(lost.value))
    assert str(again) == str(lost.value) and (again.first, again.position) == (lost.value.first, 0)
    assert lost.value.first is not None and lost.value.first >= first


def test_times_are_found(client: RetainedClient) -> None:
    """The first message of then or later."""
    assert client.find("kept", 0) == 0
    assert client.find("kept", 2**50) == 10


def test_waiting_ends_with_a_message_or_the_time(client: RetainedClient, broker: RunningBroker) -> None:
    """At once where there is more than is known."""
    client.wait({"kept": 9}, 10_000)
    client.wait({"kept": 10}, 20)
    with connect(broker.url, timeout_s=WAIT_S) as connection:
        connection.open_sender("kept").send(b"more")
    client.wait({"kept": 10}, 10_000)


def test_a_cursor_is_frozen_held_moved_and_forgotten(client: RetainedClient, address: BrokerAddress) -> None:
    """One client at a time; the error names the other one and the option."""
    assert client.cursor("c") == {}
    assert client.hold("c", {"kept": 3}) == {"kept": 3}
    assert client.hold("c", {"kept": "next"}) == {"kept": 3}
    other = RetainedClient(address)
    with pytest.raises(CursorInUse, match=r"container 'spark-\d+-.*option subscription"):
        other.hold("c", {"kept": 3})
    client.move("c", {"kept": 7})
    other.move("c", {"kept": 5})
    assert other.cursor("c") == {"kept": 7}
    client.close()
    assert other.hold("c", {"kept": 0}) == {"kept": 7}
    other.forget("c")
    assert other.cursor("c") == {}
    other.close()


def test_what_the_broker_refuses_is_told(client: RetainedClient) -> None:
    """With the request and the broker's words."""
    client.hold("c", {"kept": 3})
    with pytest.raises(BrokerRefused, match="move cursor 'c'.*amqp:invalid-field"):
        client.move("c", {"kept": 70})


def test_a_connection_that_broke_is_made_anew_with_what_was_held(
    client: RetainedClient, address: BrokerAddress
) -> None:
    """The driver goes on when the broker was away for a moment."""
    client.hold("c", {"kept": 3})
    connection_to(address).close()
    assert client.describe().nodes["kept"].next == 10
    with pytest.raises(CursorInUse):
        RetainedClient(address).hold("c", {"kept": 3})


def test_nobody_there_is_told_at_once() -> None:
    """With every URL, and what to do."""
    nowhere = BrokerAddress(("amqp://127.0.0.1:1", "amqp://127.0.0.1:2"))
    with pytest.raises(BrokerUnreachable, match="127.0.0.1:1.*127.0.0.1:2.*amqp-broker serve.*amqp.url"):
        RetainedClient(nowhere).describe()


def test_the_first_url_that_answers_is_taken(broker: RunningBroker) -> None:
    """The others are ways to the same broker."""
    with open_connection(BrokerAddress(("amqp://127.0.0.1:1", broker.url))) as connection:
        assert connection.gone is None


def test_a_process_has_one_connection_to_a_broker(
    address: BrokerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked one has its own; a closed one is replaced."""
    first = connection_to(address)
    assert connection_to(address) is first
    monkeypatch.setattr(connections.os, "getpid", lambda: -1)  # type: ignore[attr-defined]
    forked = connection_to(address)
    assert forked is not first
    drop_connection(address)
    monkeypatch.undo()
    assert forked.gone is not None and connection_to(address) is first
    first.close()
    assert connection_to(address) is not first


def test_credentials_come_from_where_they_stand(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """The environment or a file; what is missing or has no colon is told without the password."""
    monkeypatch.setenv("SHOP_LOGIN", "me:se:cret")
    assert credentials("env:SHOP_LOGIN") == ("me", "se:cret")
    file = f"{tmp_path}/login"
    with open(file, "w", encoding="utf-8") as written:
        written.write("you:word\n")
    assert credentials(f"file:{file}") == ("you", "word")
    assert credentials(None) == (None, None)
    monkeypatch.setenv("SHOP_LOGIN", "secret")
    for reference, said in (
        ("env:SHOP_LOGIN", "found no colon"),
        ("env:NOT_THERE_AT_ALL", "environment variable NOT_THERE_AT_ALL, which is not set"),
        ("file:/not/there", "option amqp.credentials: expected a file"),
    ):
        with pytest.raises(OptionError, match=said) as wrong:
            credentials(reference)
        assert "secret" not in str(wrong.value)


def test_a_login_that_is_refused_is_told(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option that says where it comes from."""
    monkeypatch.setenv("SHOP_LOGIN", "nobody:wrong")
    with pytest.raises(BrokerUnreachable, match="option amqp.credentials"):
        open_connection(BrokerAddress((broker.url,), credentials="env:SHOP_LOGIN"))
