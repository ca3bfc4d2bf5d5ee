"""Epochs of the sink over three brokers: staged, enlisted, prepared, decided at home, carried out at the
shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
import pytest

from amqp_broker.client import BlockingConnection, ConnectionGone, connect
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Header, encode_message, encode_section
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError, SchemaError
from amqp_broker.pipeline.messages_of_rows import Encoded, RowEncoder
from amqp_broker.pipeline.set_brokers import HOME, SetBrokers
from amqp_broker.pipeline.set_client import (
    SealedSet,
    SetClient,
    SetGone,
    SetMismatch,
    SetPrepared,
    StaleEpoch,
)
from amqp_broker.pipeline.set_writer import SetStage, Written, decide, write_set
from amqp_broker.pipeline.sharded_sets import (
    carry_out,
    decide_sharded,
    send_to_all,
    settle,
    void_sharded,
    write_sharded,
)
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.pipeline.receiving import drained

GROUP = "spark"
HEADER = encode_section("header", Header(durable=True))
SECONDS_MS = 10_000


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    """Three brokers in memory; tests attach and detach faster than any client would."""
    patient = BrokerLimits(
        control_operations_per_s=100_000, control_operations_burst=100_000,
        address_operations_per_s=100_000, address_operations_burst=100_000,
    )  # fmt: skip
    with ExitStack() as stack:
        config = memory_config(limits=patient)
        yield [stack.enter_context(running_broker(config)).url for _ in range(3)]


@pytest.fixture
def connections(urls: list[str]) -> Iterator[list[BlockingConnection]]:
    """The test's own."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(url, timeout_s=PATIENCE_S)) for url in urls]


@pytest.fixture
def brokers(urls: list[str], connections: list[BlockingConnection]) -> SetBrokers:
    """All of them, in their order."""
    return over(urls, connections)


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> str:
    """A name that no other test writes with; it is the name of the queue, too."""
    return str(request.node.name)[:60].replace("[", ".").replace("]", "")


def over(urls: Sequence[str], connections: Sequence[BlockingConnection]) -> SetBrokers:
    """These, whose connections stay."""
    return SetBrokers(urls, GROUP, lambda number: connections[number], lambda number: None)


def batch(*bodies: bytes, shards: Sequence[int], addresses: Sequence[str] | None = None) -> Encoded:
    """Messages of one record batch, and where they go."""
    rests = [encode_message(body=body) for body in bodies]
    return Encoded(
        None if addresses is None else list(addresses), [HEADER] * len(bodies), rests, list(shards)
    )


def bodies(connections: Sequence[BlockingConnection], address: str) -> list[list[Any]]:
    """What each broker's queue has."""
    return [[received.body for received in drained(each, address)] for each in connections]


def sets_left(brokers: SetBrokers, producer: str) -> list[int]:
    """How many sets each broker has without a decision."""
    return [
        len(brokers.ask(number, lambda client: client.status(producer)).sets)
        for number in range(len(brokers))
    ]


def two_tasks(brokers: SetBrokers, producer: str, epoch: int = 0) -> list[Written]:
    """The first writes to all brokers, the other to the shards."""
    first = batch(b"1", b"2", b"3", b"4", shards=[0, 1, 2, 1])
    return [
        write_sharded(brokers, producer, epoch, [first, batch(b"5", shards=[0])], producer),
        write_sharded(brokers, producer, epoch, [batch(b"6", b"7", shards=[1, 2])], producer),
    ]


ALL = [[b"1", b"5"], [b"2", b"4", b"6"], [b"3", b"7"]]


def test_an_epoch_is_invisible_until_it_is_decided_and_then_whole(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """Prepared at its shards, enlisted at home; at each broker in the order of the tasks and of their
    rows.
    """
    written = two_tasks(brokers, producer)
    assert [len(one.sets) for one in written] == [3, 2]
    assert bodies(connections, producer) == [[], [], []]
    states = [sorted(one["state"] for one in brokers.status(n, producer, 0).sets) for n in range(3)]
    assert states == [["sealed"] * 5, ["prepared"] * 2, ["prepared"] * 2]
    decide_sharded(brokers, written, SECONDS_MS)
    assert bodies(connections, producer) == ALL
    home = brokers.status(HOME, producer, 0)
    assert home.winners == tuple(each for one in written for each in one.sets)
    assert [brokers.status(number, producer, 0).home for number in range(3)] == ["", home.log, home.log]
    assert sets_left(brokers, producer) == [0, 0, 0]


def test_a_decided_epoch_is_skipped_and_carried_out(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """The driver was killed between the two: its next run writes nothing, and goes on where it ended."""
    written = two_tasks(brokers, producer)
    winners = [each for one in written for each in one.sets]
    brokers.ask(HOME, lambda client: client.commit_epoch(producer, 0, winners))
    assert bodies(connections, producer) == [ALL[0], [], []]
    again = two_tasks(brokers, producer)
    assert again == [Written(producer, 0, None, True, 5), Written(producer, 0, None, True, 2)]
    decide_sharded(brokers, again, SECONDS_MS)
    decide_sharded(brokers, again, SECONDS_MS)
    assert bodies(connections, producer) == [[], *ALL[1:]]


def test_what_home_decided_is_carried_out_whatever_a_driver_names(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """The commit of a driver that is gone arrives late, before that of the next one, which had its own
    sets.
    """
    gone = [write_sharded(brokers, producer, 0, [batch(b"a", b"b", shards=[0, 1])], producer)]
    here = [write_sharded(brokers, producer, 0, [batch(b"a", b"b", shards=[1, 0])], producer)]
    brokers.ask(HOME, lambda client: client.commit_epoch(producer, 0, gone[0].sets))
    decide_sharded(brokers, here, SECONDS_MS)
    assert bodies(connections, producer) == [[b"a"], [b"b"], []]
    assert sets_left(brokers, producer) == [0, 0, 0]


class Unsure(SetBrokers):
    """Some answers are lost, one after the other: before the word arrives, or after it."""

    def __init__(self, urls: Sequence[str], connections: Sequence[BlockingConnection], before: bool) -> None:
        super().__init__(urls, GROUP, lambda number: connections[number], lambda number: None)
        self.before = before
        self.asked = 0
        self.lost: set[int] = set()

    def ask(self, number: int, question: Callable[[SetClient], Any]) -> Any:
        """Every other question has no answer."""
        self.asked += 1
        if self.asked % 2 == 0:
            return super().ask(number, question)
        if not self.before:
            super().ask(number, question)
        raise BrokerUnreachable("the connection ended")


@pytest.mark.parametrize("before", [True, False])
def test_words_without_an_answer_are_told_again(
    urls: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str, before: bool
) -> None:
    """Whether they arrived or not: the rows are there once."""
    written = two_tasks(brokers, producer)
    pauses: list[float] = []
    decide_sharded(Unsure(urls, connections, before), written, SECONDS_MS, pauses.append)
    assert len(pauses) >= 3
    assert bodies(connections, producer) == ALL


def test_a_shard_that_does_not_answer_is_named(
    urls: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """Before anything is decided, if it is gone by then."""
    written = two_tasks(brokers, producer)

    def connection(number: int) -> BlockingConnection:
        if number == 2:
            raise ConnectionGone("the connection ended")
        return connections[number]

    without = SetBrokers(urls, GROUP, connection, lambda number: None)
    with pytest.raises(EpochError, match=f"broker at {urls[2]} did not .* nothing is decided by this run"):
        decide_sharded(without, written, 1, lambda seconds: None)
    assert not brokers.status(HOME, producer, 0).decided


def test_an_epoch_that_failed_is_voided_by_the_vote(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """At home first; and a prepared set is dropped for nobody else."""
    written = two_tasks(brokers, producer)
    prepared = written[1].elsewhere[0].set_id
    with pytest.raises(SetPrepared, match="half:prepared"):
        brokers.ask(1, lambda client: client.void(producer, 0, [prepared]))
    assert void_sharded(brokers, [None, *written]) is None
    assert sets_left(brokers, producer) == [0, 0, 0]
    with pytest.raises(SetGone, match="half:unknown-set"):
        decide_sharded(brokers, written, SECONDS_MS)
    again = two_tasks(brokers, producer)
    decide_sharded(brokers, again, SECONDS_MS)
    assert bodies(connections, producer) == ALL


def test_an_abort_after_the_decision_changes_nothing(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """The reply was lost, Spark aborts: home refuses, the shards are not asked."""
    written = two_tasks(brokers, producer)
    brokers.ask(
        HOME, lambda client: client.commit_epoch(producer, 0, [each for one in written for each in one.sets])
    )
    refused = void_sharded(brokers, written)
    assert refused is not None and "half:conflict" in refused
    only_shards = Written(producer, 0, None, False, 2, written[1].elsewhere)
    refused = void_sharded(brokers, [only_shards])
    assert refused is not None and "half:conflict" in refused
    decide_sharded(brokers, two_tasks(brokers, producer), SECONDS_MS)
    assert bodies(connections, producer) == ALL


def test_a_task_that_fails_leaves_no_set(brokers: SetBrokers, producer: str) -> None:
    """At no broker; the error is the task's own."""

    def rows() -> Iterator[Encoded]:
        yield batch(b"1", b"2", shards=[0, 1])
        raise RuntimeError("a row that cannot be computed")

    with pytest.raises(RuntimeError, match="cannot be computed"):
        write_sharded(brokers, producer, 0, rows(), producer)
    assert sets_left(brokers, producer) == [0, 0, 0]


def test_losers_are_gone_at_all_brokers(brokers: SetBrokers, producer: str) -> None:
    """The loser of a speculation gets no word."""
    two_tasks(brokers, producer)
    winner = two_tasks(brokers, producer)
    decide_sharded(brokers, winner, SECONDS_MS)
    assert sets_left(brokers, producer) == [0, 0, 0]


def test_earlier_epochs_are_settled_first(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """One was decided and not carried out, one never decided: a shard takes no later one before these."""
    decided = [write_sharded(brokers, producer, 1, [batch(b"1", shards=[1])], producer)]
    brokers.ask(HOME, lambda client: client.commit_epoch(producer, 1, decided[0].sets))
    write_sharded(brokers, producer, 2, [batch(b"2", shards=[1])], producer)
    later = [write_sharded(brokers, producer, 3, [batch(b"3", b"4", shards=[1, 2])], producer)]
    decide_sharded(brokers, later, SECONDS_MS)
    assert bodies(connections, producer) == [[], [b"1", b"3"], [b"4"]]
    assert sets_left(brokers, producer) == [0, 0, 0]


def test_an_epoch_that_is_decided_meanwhile_is_carried_out_instead(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """Who settles it sees no decision, votes, and is told that it was decided."""
    written = [write_sharded(brokers, producer, 0, [batch(b"1", shards=[1])], producer)]

    class Overtaken(SetBrokers):
        """Between question and vote it is decided."""

        def status(self, number: int, producer: str, epoch: int) -> Any:
            found = super().status(number, producer, epoch)
            if number == 1:
                self.ask(HOME, lambda client: client.commit_epoch(producer, epoch, written[0].sets))
            return found

    overtaken = Overtaken(brokers.names, GROUP, lambda number: connections[number], lambda number: None)
    settle(overtaken, 1, producer, 0)
    assert bodies(connections, producer) == [[], [b"1"], []]


def test_a_shard_may_be_beyond_an_epoch_that_it_has_nothing_of(brokers: SetBrokers, producer: str) -> None:
    """A driver that is gone brings an old word; where rows would be missing it is an error."""
    first = [write_sharded(brokers, producer, 1, [batch(b"1", shards=[0])], producer)]
    brokers.ask(HOME, lambda client: client.commit_epoch(producer, 1, first[0].sets))
    decided = brokers.status(HOME, producer, 1)
    decide_sharded(brokers, [write_sharded(brokers, producer, 2, [batch(b"2", shards=[1])], producer)], 9_000)
    carry_out(brokers, 1, producer, 1, decided)
    missing = SealedSet("s", 1, 1, brokers.log(1, producer, 1))
    with pytest.raises(StaleEpoch, match=f"the broker at {brokers.names[1]}"):
        carry_out(brokers, 1, producer, 1, attrs.evolve(decided, winners=(missing,)))


def test_a_winner_whose_seal_is_damaged_is_prepared_again(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """It is open after the shard's start. What is not as home decided it is an error."""
    rows = batch(b"1", b"2", shards=[1, 1])
    log = brokers.log(1, producer, 0)
    for epoch, lost in ((0, 0), (1, 1)):
        stage = SetStage(SetClient(connections[1], GROUP), producer, epoch, f"open{epoch}", 10)
        stage.send(rows, producer)
        staged = stage.close()
        assert staged is not None
        won = attrs.evolve(staged, store=log, count=staged.count + lost)
        brokers.ask(HOME, partial(_enlist_and_commit, producer, epoch, won))
        decided = brokers.status(HOME, producer, epoch)
        if lost:
            with pytest.raises(SetMismatch, match="expected 3 messages .* there are 2"):
                carry_out(brokers, 1, producer, epoch, decided)
        else:
            carry_out(brokers, 1, producer, epoch, decided)
    assert bodies(connections, producer) == [[], [b"1", b"2"], []]


def _enlist_and_commit(producer: str, epoch: int, won: SealedSet, home: SetClient) -> None:
    home.seal(producer, epoch, won, store=won.store)
    home.commit_epoch(producer, epoch, [won])


def test_another_order_of_the_brokers_is_told(
    urls: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """By tasks and by the commit, with the broker that has to be first."""
    decide_sharded(brokers, two_tasks(brokers, producer), SECONDS_MS)
    order = [1, 0, 2]
    other = over([urls[n] for n in order], [connections[n] for n in order])
    with pytest.raises(EpochError, match=f"first broker of .*, {urls[1]}, .* The order .* stays"):
        two_tasks(other, producer, 1)
    with pytest.raises(EpochError, match=f"name {urls[0]} first"):
        decide_sharded(other, [Written(producer, 1, None, False, 0)], SECONDS_MS)
    bodies(connections, producer)


def test_a_query_of_one_broker_goes_on_with_more(
    urls: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """They are added at the end; before its first broker it is another order."""
    client = SetClient(connections[0], GROUP)
    one = write_set(client, producer, 0, [batch(b"1", shards=[0])], producer)
    decide(lambda again: client, [one], SECONDS_MS)
    decide_sharded(brokers, [write_sharded(brokers, producer, 1, [batch(b"2", shards=[1])], producer)], 9_000)
    assert bodies(connections, producer) == [[b"1"], [b"2"], []]
    alone = SetClient(connections[2], GROUP)
    decide(lambda again: alone, [Written(f"{producer}2", 0, None, False, 0)], SECONDS_MS)
    with pytest.raises(EpochError, match=f"name {urls[2]} first"):
        decide_sharded(brokers, [Written(f"{producer}2", 1, None, False, 0)], SECONDS_MS)


def test_a_broker_that_is_left_out_or_named_twice_is_told(
    urls: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """Rows are there, and nobody would carry them out."""
    written = two_tasks(brokers, producer)
    with pytest.raises(EpochError, match="1 of its rows are in the store .* wiped or .* left it out"):
        decide_sharded(over(urls[:2], connections[:2]), written, SECONDS_MS)
    with pytest.raises(EpochError, match="are the same broker"):
        decide_sharded(over([urls[0], "again"], [connections[0]] * 2), written, SECONDS_MS)
    assert void_sharded(brokers, written) is None


def test_a_decided_epoch_with_other_rows_is_an_error(brokers: SetBrokers, producer: str) -> None:
    """As with one broker: leaving them out would lose rows in silence."""
    decide_sharded(brokers, two_tasks(brokers, producer), SECONDS_MS)
    with pytest.raises(EpochError, match="committed before with 7 rows, and now it has 5"):
        decide_sharded(brokers, two_tasks(brokers, producer)[:1], SECONDS_MS)


def test_destinations_and_rows_without_a_set(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """A set has as many as its rows; a task without rows has no set, and an epoch may be empty."""
    a, b = f"{producer}.a", f"{producer}.b"
    rows = batch(b"1", b"2", b"3", shards=[1, 1, 0], addresses=[a, b, a])
    written = write_sharded(brokers, producer, 0, [rows], None)
    empty = write_sharded(brokers, producer, 0, [], None)
    assert empty == Written(producer, 0, None, False, 0)
    decide_sharded(brokers, [empty, written], SECONDS_MS)
    assert (bodies(connections, a), bodies(connections, b)) == ([[b"3"], [b"1"], []], [[], [b"2"], []])
    decide_sharded(brokers, [write_sharded(brokers, producer, 1, [], None)], SECONDS_MS)
    assert all(brokers.status(number, producer, 1).decided for number in range(3))


def test_at_least_once_sends_to_all(connections: list[BlockingConnection], producer: str) -> None:
    """No set, no epoch."""
    rows = [batch(b"1", b"2", b"3", shards=[2, 0, 2])]
    assert send_to_all(lambda number: connections[number], rows, producer) == 3
    assert bodies(connections, producer) == [[b"2"], [], [b"1", b"3"]]


def test_rows_are_routed_by_partition_then_group_then_task() -> None:
    """A null goes on to the next; a broker that there is not is an error, and so is the column with one
    broker.
    """
    properties = {"type": "struct", "fields": [{"name": "group_id", "type": "string"}]}
    fields = [("body", "binary"), ("partition", "integer"), ("properties", properties)]
    columns: dict[str, list[Any]] = {
        "body": [b"x"] * 4,
        "partition": [2, None, None, None],
        "properties": [{"group_id": "b"}, {"group_id": "b"}, {"group_id": None}, None],
    }
    # CRC-32 of "b" is 0x71BEEFF9, which is 2 modulo 3 and 1 modulo 4.
    assert RowEncoder(fields, "q", 3).encode(columns, 4, task=4).shards == [2, 2, 1, 1]
    assert RowEncoder(fields, "q", 4).encode(columns, 4, task=4).shards == [2, 1, 0, 0]
    assert RowEncoder(fields[:1], "q", 3).encode(columns, 4, task=5).shards == [2] * 4
    assert RowEncoder(fields[:1], "q").encode(columns, 4, task=5).shards is None
    with pytest.raises(SchemaError, match="column partition, row 0 .* 0 to 1, found 2"):
        RowEncoder(fields, "q", 2).encode(columns, 4)
    with pytest.raises(SchemaError, match="column partition: expected BYTE or SHORT or INT"):
        RowEncoder([("body", "binary"), ("partition", "string")], "q", 2)
    with pytest.raises(SchemaError, match="columns partition: they tell where a message was read"):
        RowEncoder(fields, "q")


def test_sets_of_the_wire_have_their_store() -> None:
    """At home only: a shard is told of its own."""
    assert SealedSet("s", 1, 2).named() == SealedSet("s", 1, 2, "store").described()
    assert SealedSet("s", 1, 2, "store").named()["store"] == "store"
