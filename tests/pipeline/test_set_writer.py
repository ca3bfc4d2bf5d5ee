"""Epochs of the sink against a broker: staged, sealed, decided, repeated, voided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from amqp_broker.client import BlockingConnection, ConnectionGone, connect
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Header, encode_message, encode_section
from amqp_broker.pipeline.errors import EpochError
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_client import (
    EpochDecided,
    SealedSet,
    SetClient,
    SetDecided,
    SetGone,
    SetMismatch,
    StaleEpoch,
    checksum_of,
)
from amqp_broker.pipeline.set_writer import Written, decide, send_through, void_sets, write_set
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.pipeline.receiving import drained

GROUP = "spark"
HEADER = encode_section("header", Header(durable=True))  # no part of a checksum


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker in memory; tests attach and detach faster than any client would."""
    patient = BrokerLimits(
        control_operations_per_s=100_000, control_operations_burst=100_000,
        address_operations_per_s=100_000, address_operations_burst=100_000,
    )  # fmt: skip
    with running_broker(memory_config(limits=patient)) as broker:
        yield broker.url


@pytest.fixture
def connection(url: str) -> Iterator[BlockingConnection]:
    """A connection of the test's own."""
    with connect(url, timeout_s=PATIENCE_S) as opened:
        yield opened


@pytest.fixture
def client(connection: BlockingConnection) -> SetClient:
    """Sets over it."""
    return SetClient(connection, GROUP)


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> str:
    """A name that no other test writes with; it is the name of the queue, too."""
    return str(request.node.name)[:60].replace("[", ".").replace("]", "")


def batch(*bodies: bytes, addresses: Sequence[str] | None = None) -> Encoded:
    """Messages of one record batch."""
    return Encoded(
        None if addresses is None else list(addresses), [HEADER] * len(bodies), [data(b) for b in bodies]
    )


def data(body: bytes) -> bytes:
    """A message."""
    return encode_message(body=body)


def bodies(connection: BlockingConnection, address: str) -> list[Any]:
    """What the queue has."""
    return [received.body for received in drained(connection, address)]


def always(client: SetClient) -> Any:
    """For `decide`."""
    return lambda again: client


def test_an_epoch_is_invisible_until_it_is_decided_and_then_whole(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """Two tasks, several record batches: all rows at once, in the order of the tasks and of their rows."""
    first = write_set(client, producer, 0, [batch(b"1", b"2"), batch(b"3")], producer)
    second = write_set(client, producer, 0, [batch(b"4")], producer)
    assert first.sealed is not None
    assert (first.sealed.count, first.sealed.checksum) == (3, checksum_of(map(data, (b"1", b"2", b"3"))))
    assert bodies(connection, producer) == []
    decide(always(client), [first, second], 1_000)
    assert bodies(connection, producer) == [b"1", b"2", b"3", b"4"]
    status = client.status(producer, 0)
    assert status.decided
    assert status.winners == (first.sealed, second.sealed)
    assert (status.latest, status.sets) == (0, ())


def test_a_set_has_as_many_destinations_as_its_rows(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """One set for a task, whatever the column address says."""
    a, b = f"{producer}.a", f"{producer}.b"
    written = write_set(client, producer, 0, [batch(b"1", b"2", b"3", addresses=[a, b, a])], None)
    decide(always(client), [written], 1_000)
    assert bodies(connection, a) == [b"1", b"3"]
    assert bodies(connection, b) == [b"2"]


def test_a_decided_epoch_is_skipped_and_never_doubled(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """A query that starts again runs its last batch again: nothing is staged, and the commit is a repeat."""
    decide(always(client), [write_set(client, producer, 3, [batch(b"1")], producer)], 1_000)
    again = write_set(client, producer, 3, [batch(b"1")], producer)
    assert again == Written(producer, 3, None, True, 1)
    decide(always(client), [again], 1_000)
    assert bodies(connection, producer) == [b"1"]


def test_losers_are_voided_by_the_decision_and_refused_after_it(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """The loser of a speculation stages a set of its own, gets no word, and may come late."""
    loser = write_set(client, producer, 0, [batch(b"1")], producer)
    winner = write_set(client, producer, 0, [batch(b"1")], producer)
    assert loser.sealed is not None
    late = client.stage(producer, 0, "late", producer)
    late.send([HEADER], [data(b"1")])
    decide(always(client), [winner], 1_000)
    assert client.status(producer, 0).sets == ()
    with pytest.raises(EpochDecided):
        late.send([HEADER], [data(b"2")])
    with pytest.raises(EpochDecided):
        client.stage(producer, 0, "later", producer)
    assert bodies(connection, producer) == [b"1"]


class Overtaken(SetClient):
    """Between the question and the staging somebody decides the epoch."""

    def status(self, producer: str, epoch: int | None = None) -> Any:
        found = super().status(producer, epoch)
        super().commit_epoch(producer, epoch or 0, [])
        return found


def test_a_task_that_is_overtaken_by_the_decision_writes_nothing(
    connection: BlockingConnection, producer: str
) -> None:
    """It is a loser, not a failure."""
    written = write_set(Overtaken(connection, GROUP), producer, 0, [batch(b"1")], producer)
    assert written == Written(producer, 0, None, True, 1)
    assert bodies(connection, producer) == []


class Lossy(SetClient):
    """The broker does what it is told, and the reply to the first commit is lost."""

    def __init__(self, connection: BlockingConnection, before: bool) -> None:
        super().__init__(connection, GROUP)
        self.before = before
        self.calls = 0

    def commit_epoch(
        self, producer: str, epoch: int, winners: Sequence[SealedSet], *, home: str = ""
    ) -> None:
        self.calls += 1
        if self.calls == 1:
            if not self.before:
                super().commit_epoch(producer, epoch, winners)
            raise ConnectionGone("the connection ended")
        super().commit_epoch(producer, epoch, winners)


@pytest.mark.parametrize("before", [True, False])
def test_a_commit_without_a_reply_is_told_again(
    connection: BlockingConnection, client: SetClient, producer: str, before: bool
) -> None:
    """Whether the first one arrived or not: the rows are there once."""
    lossy = Lossy(connection, before)
    pauses: list[float] = []
    asked: list[bool] = []

    def open_client(again: bool) -> SetClient:
        asked.append(again)
        return lossy

    written = write_set(client, producer, 0, [batch(b"1")], producer)
    decide(open_client, [written], 10_000, pauses.append)
    assert (lossy.calls, asked) == (2, [False, True])
    assert bodies(connection, producer) == [b"1"]


def test_hundreds_of_batches_go_over_one_connection(connection: BlockingConnection, producer: str) -> None:
    """Spark's processes live on from batch to batch: a session has 256 links, 2 for a batch."""

    def open_client(again: bool) -> SetClient:
        return SetClient(connection, GROUP)

    for epoch in range(130):
        decide(open_client, [Written(producer, epoch, None, False, 0)], 1_000)
    assert SetClient(connection, GROUP).status(producer).latest == 129


def test_a_commit_that_never_gets_a_reply_ends_with_an_error(client: SetClient, producer: str) -> None:
    """It names the option, and says that nothing is known."""
    written = write_set(client, producer, 0, [batch(b"1")], producer)

    def open_client(again: bool) -> SetClient:
        raise ConnectionGone("the connection ended")

    with pytest.raises(EpochError, match=r"within 1 ms \(option commitTimeoutMs\).* may be decided or not"):
        decide(open_client, [written], 1, lambda seconds: None)


def test_an_abort_after_a_lost_reply_changes_nothing(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """Spark calls abort with the same messages: what is decided stays, and nothing is raised."""
    written = write_set(client, producer, 0, [batch(b"1")], producer)
    decide(always(client), [written], 1_000)
    refused = void_sets(client, [None, written])
    assert refused is not None and "half:conflict" in refused
    with pytest.raises(SetDecided):
        client.void(producer, 0, [written.sealed.set_id] if written.sealed else [])
    assert bodies(connection, producer) == [b"1"]


def test_a_voided_set_is_not_committed_and_its_epoch_lives_on(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """Voided behind the back: the commit says so and does nothing, and the epoch is written again."""
    first = write_set(client, producer, 0, [batch(b"1")], producer)
    second = write_set(client, producer, 0, [batch(b"2")], producer)
    assert void_sets(client, [second]) is None
    with pytest.raises(SetGone, match="half:unknown-set"):
        decide(always(client), [first, second], 1_000)
    assert bodies(connection, producer) == []
    assert not client.status(producer, 0).decided
    void_sets(client, [first, second])
    again = [write_set(client, producer, 0, [batch(body)], producer) for body in (b"1", b"2")]
    decide(always(client), again, 1_000)
    assert bodies(connection, producer) == [b"1", b"2"]


def test_a_task_without_rows_stages_nothing(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """An epoch may be empty: it is decided all the same, so that nothing older can be."""
    written = write_set(client, producer, 0, [], producer)
    assert written == Written(producer, 0, None, False, 0)
    decide(always(client), [written], 1_000)
    assert client.status(producer, 0).decided
    assert bodies(connection, producer) == []


def test_an_older_epoch_is_refused_with_what_to_do(client: SetClient, producer: str) -> None:
    """A checkpoint that was restored or deleted writes with the name of a query that went on."""
    decide(always(client), [write_set(client, producer, 9, [batch(b"1")], producer)], 1_000)
    with pytest.raises(EpochError, match="above 9, .* found 4.* another producerId"):
        write_set(client, producer, 4, [batch(b"1")], producer)
    with pytest.raises(StaleEpoch):
        client.stage(producer, 4, "s", producer)
    with pytest.raises(StaleEpoch):
        client.commit_epoch(producer, 4, [])


def test_tasks_that_saw_a_decision_want_it_to_be_there(client: SetClient, producer: str) -> None:
    """Otherwise their rows would be missing: a store that was restored meanwhile."""
    with pytest.raises(EpochError, match="now it is not"):
        decide(always(client), [Written(producer, 0, None, True, 1)], 1_000)


def test_a_decided_epoch_with_other_rows_is_an_error(
    connection: BlockingConnection, client: SetClient, producer: str
) -> None:
    """A checkpoint that was restored plans the batch anew: skipping it would lose rows in silence."""
    decide(always(client), [write_set(client, producer, 3, [batch(b"1")], producer)], 1_000)
    again = write_set(client, producer, 3, [batch(b"1"), batch(b"2", b"3")], producer)
    assert again == Written(producer, 3, None, True, 3)
    with pytest.raises(EpochError, match="committed before with 1 rows, and now it has 3"):
        decide(always(client), [again], 1_000)
    assert bodies(connection, producer) == [b"1"]


def test_messages_of_two_epochs_are_never_committed_together(client: SetClient, producer: str) -> None:
    """That would be a fault of ours or of Spark's."""
    with pytest.raises(EpochError, match="one producer and epoch"):
        decide(
            always(client),
            [Written(producer, 0, None, False, 0), Written(producer, 1, None, False, 0)],
            1_000,
        )


def test_a_task_that_fails_leaves_no_set(client: SetClient, producer: str) -> None:
    """What it staged is voided at once, and the error is the task's own."""

    def rows() -> Iterator[Encoded]:
        yield batch(b"1")
        raise RuntimeError("a row that cannot be computed")

    with pytest.raises(RuntimeError, match="cannot be computed"):
        write_set(client, producer, 0, rows(), producer)
    assert client.status(producer, 0).sets == ()


def test_a_seal_wants_what_was_staged(client: SetClient, producer: str) -> None:
    """Count and checksum are compared, so a lost message is no silent one."""
    staging = client.stage(producer, 0, "s", producer)
    staging.send([HEADER] * 2, [data(b"1"), data(b"2")])
    staging.close()
    with pytest.raises(SetMismatch, match="half:mismatch"):
        client.seal(producer, 0, SealedSet("s", 3, staging.checksum))
    with pytest.raises(SetMismatch, match="half:mismatch"):
        client.seal(producer, 0, SealedSet("s", 2, staging.checksum + 1))
    with pytest.raises(SetGone, match="half:unknown-set"):
        client.seal(producer, 0, SealedSet("t", 2, staging.checksum))
    client.seal(producer, 0, SealedSet("s", 2, staging.checksum))
    client.seal(producer, 0, SealedSet("s", 2, staging.checksum))
    with pytest.raises(SetMismatch):
        client.commit_epoch(producer, 0, [SealedSet("s", 1, staging.checksum)])


def test_at_least_once_sends_as_it_comes(connection: BlockingConnection, producer: str) -> None:
    """No set, no epoch: everything is there when it returns."""
    a, b = f"{producer}.a", f"{producer}.b"
    assert (
        send_through(connection, [batch(b"1", b"2", addresses=[a, b]), batch(b"3", addresses=[a])], None) == 3
    )
    assert (bodies(connection, a), bodies(connection, b)) == ([b"1", b"3"], [b"2"])
