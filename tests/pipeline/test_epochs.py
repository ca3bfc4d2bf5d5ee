"""Epochs of the sink over one broker and over three: staged, sealed, decided, repeated, voided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import attrs
import pytest

from amqp_broker.client import BlockingConnection, ConnectionGone, connect
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Header, encode_message, encode_section
from amqp_broker.pipeline.epochs import (
    SetStage,
    Written,
    apply_decision,
    decide_epoch,
    end_prepared,
    send_all,
    void_sets,
    write_sets,
)
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_brokers import COORDINATOR, SetBrokers
from amqp_broker.pipeline.set_client import (
    EpochDecided,
    SealedSet,
    SetClient,
    SetDecided,
    SetGone,
    SetMismatch,
    SetPrepared,
    StaleEpoch,
    checksum_of,
)
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.pipeline.receiving import drained

GROUP = "spark"
HEADER = encode_section("header", Header(durable=True))  # no part of a checksum
SECONDS_MS = 10_000
ALL = {1: [[b"1", b"2", b"3", b"4", b"5", b"6", b"7"]], 3: [[b"1", b"5"], [b"2", b"4", b"6"], [b"3", b"7"]]}
"""What two tasks write to so many brokers."""

one_and_three = pytest.mark.parametrize("count", [1, 3])
three = pytest.mark.parametrize("count", [3])
one = pytest.mark.parametrize("count", [1])


@pytest.fixture(scope="module")
def every_url() -> Iterator[list[str]]:
    """Three brokers in memory; tests attach and detach faster than any client would."""
    patient = BrokerLimits(
        control_operations_per_s=100_000, control_operations_burst=100_000,
        address_operations_per_s=100_000, address_operations_burst=100_000,
    )  # fmt: skip
    with ExitStack() as stack:
        config = memory_config(limits=patient)
        yield [stack.enter_context(running_broker(config)).url for _ in range(3)]


@pytest.fixture
def connections(every_url: list[str], count: int) -> Iterator[list[BlockingConnection]]:
    """The test's own, to so many of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(url, timeout_s=PATIENCE_S)) for url in every_url[:count]]


@pytest.fixture
def brokers(every_url: list[str], connections: list[BlockingConnection], count: int) -> Any:
    """So many, in their order."""
    return over(every_url[:count], connections)


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> str:
    """A name that no other test writes with; it is the name of the queue, too."""
    return str(request.node.name)[:80].replace("[", ".").replace("]", "")


def over(
    names: Sequence[str], connections: Sequence[BlockingConnection], kind: Any = SetBrokers
) -> Any:
    """Brokers whose connections stay."""
    return kind(names, GROUP, lambda number: connections[number], lambda number: None)


def batch(*bodies: bytes, shards: Sequence[int] = (), addresses: Sequence[str] | None = None) -> Encoded:
    """Messages of one record batch, and where they go; without shards there is one broker."""
    chosen = None if addresses is None else list(addresses)
    return Encoded(chosen, [HEADER] * len(bodies), list(map(data, bodies)), list(shards) or None)


def data(body: bytes) -> bytes:
    """A message."""
    return encode_message(body=body)


def bodies(connections: Sequence[BlockingConnection], address: str) -> list[list[Any]]:
    """What each broker's queue has."""
    return [[received.body for received in drained(each, address)] for each in connections]


def sets_left(brokers: SetBrokers, producer: str) -> int:
    """How many sets the brokers have without a decision."""
    return sum(
        len(brokers.ask(number, lambda client: client.status(producer)).sets)
        for number in range(len(brokers))
    )


def two_tasks(brokers: SetBrokers, producer: str, epoch: int = 0) -> list[Written]:
    """The first writes to all brokers, the other to all but the first if there are several."""

    def routed(*bodies: bytes, shards: Sequence[int]) -> Encoded:
        return batch(*bodies, shards=shards if len(brokers) > 1 else ())

    first = routed(b"1", b"2", b"3", b"4", shards=[0, 1, 2, 1])
    second = routed(b"6", b"7", shards=[1, 2])
    return [
        write_sets(brokers, producer, epoch, [first, routed(b"5", shards=[0])], producer),
        write_sets(brokers, producer, epoch, [second], producer),
    ]


def one_task(brokers: SetBrokers, producer: str, epoch: int, *bodies: bytes, **more: Any) -> Written:
    """A task with one record batch."""
    return write_sets(brokers, producer, epoch, [batch(*bodies, **more)], producer)


def commit(brokers: SetBrokers, written: Sequence[Written]) -> None:
    """Has the coordinator decide, and tells nobody else."""
    producer, epoch = written[0].producer, written[0].epoch
    winners = [each for one in written for each in one.sets]
    brokers.ask(COORDINATOR, lambda client: client.commit_epoch(producer, epoch, winners))


def ids_of(*written: Written) -> list[str]:
    """Of the sets that they name."""
    return [each.set_id for one in written for each in one.sets]


# --- with one broker as with several


@one_and_three
def test_an_epoch_is_invisible_until_it_is_decided_and_then_whole(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """Prepared at the participants, enlisted at the coordinator; then all rows at once, at each broker in the
    order of the tasks and of their rows.
    """
    written = two_tasks(brokers, producer)
    assert [len(one.sets) for one in written] == {1: [1, 1], 3: [3, 2]}[count]
    assert [sum(each.count for each in one.sets) for one in written] == [5, 2]
    assert [one.rows for one in written] == [5, 2]
    assert bodies(connections, producer) == [[]] * count
    states = [sorted(one["state"] for one in brokers.status(n, producer, 0).sets) for n in range(count)]
    assert states == {1: [["sealed"] * 2], 3: [["sealed"] * 5, ["prepared"] * 2, ["prepared"] * 2]}[count]
    decide_epoch(brokers, written, SECONDS_MS)
    assert bodies(connections, producer) == ALL[count]
    status = [brokers.status(number, producer, 0) for number in range(count)]
    assert status[COORDINATOR].winners == tuple(each for one in written for each in one.sets)
    assert [each.coordinator for each in status] == ["", status[0].store, status[0].store][:count]
    assert all((each.decided, each.latest, each.sets) == (True, 0, ()) for each in status)


@one
def test_a_single_broker_is_asked_for_nothing_that_several_need(brokers: SetBrokers, producer: str) -> None:
    """One question and one seal for each task, one commit for the epoch: its rate is what it was."""
    asked: list[str] = []
    said = SetClient._told

    def noted(client: SetClient, what: str, do: Callable[[], Any]) -> Any:
        asked.append(what.partition(" for ")[0])
        return said(client, what, do)

    with mock.patch.object(SetClient, "_told", noted):
        written = one_task(brokers, producer, 0, b"1", b"2")
        decide_epoch(brokers, [written], SECONDS_MS)
    assert asked == ["status", "a link to stage", "seal", "commit-epoch"]
    assert (written.sets[0].count, written.sets[0].checksum) == (2, checksum_of(map(data, (b"1", b"2"))))


@one_and_three
def test_a_decided_epoch_is_skipped_and_never_doubled(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """The driver was killed after the decision: its next run writes nothing, and goes on where it ended."""
    commit(brokers, two_tasks(brokers, producer))
    assert bodies(connections, producer) == [ALL[count][0], [], []][:count]
    again = two_tasks(brokers, producer)
    assert again == [Written(producer, 0, (), True, 5), Written(producer, 0, (), True, 2)]
    decide_epoch(brokers, again, SECONDS_MS)
    decide_epoch(brokers, again, SECONDS_MS)
    assert bodies(connections, producer) == [[], *ALL[count][1:]]


@one_and_three
def test_losers_are_voided_by_the_decision_and_refused_after_it(brokers: SetBrokers, producer: str) -> None:
    """The loser of a speculation stages sets of its own, is told nothing, and may come late."""
    two_tasks(brokers, producer)
    winner = two_tasks(brokers, producer)
    late = brokers.ask(COORDINATOR, lambda client: client.stage(producer, 0, "late", producer))
    late.send([HEADER], [data(b"1")])
    decide_epoch(brokers, winner, SECONDS_MS)
    assert sets_left(brokers, producer) == 0
    with pytest.raises(EpochDecided):
        late.send([HEADER], [data(b"2")])
    with pytest.raises(EpochDecided):
        brokers.ask(COORDINATOR, lambda client: client.stage(producer, 0, "later", producer))


class Overtaken(SetBrokers):
    """After a question to the broker `after` somebody decides the epoch, for these sets."""

    after = COORDINATOR
    sets: tuple[SealedSet, ...] = ()

    def status(self, number: int, producer: str, epoch: int) -> Any:
        found = super().status(number, producer, epoch)
        if number == self.after:
            self.ask(COORDINATOR, lambda client: client.commit_epoch(producer, epoch, self.sets))
        return found


@one_and_three
def test_a_task_that_is_overtaken_by_the_decision_writes_nothing(
    every_url: list[str], connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """It is a loser, not a failure."""
    overtaken = over(every_url[:count], connections, Overtaken)
    assert one_task(overtaken, producer, 0, b"1") == Written(producer, 0, (), True, 1)
    assert bodies(connections, producer) == [[]] * count


class Unsure(SetBrokers):
    """Some answers are lost, one after the other: before the question arrives, or after it."""

    before = True
    asked = 0

    def ask(self, number: int, question: Callable[[SetClient], Any]) -> Any:
        """Every other question has no answer."""
        self.asked += 1
        if self.asked % 2 == 0:
            return super().ask(number, question)
        if not self.before:
            super().ask(number, question)
        raise BrokerUnreachable("the connection ended")


@one_and_three
@pytest.mark.parametrize("before", [True, False])
def test_what_has_no_answer_is_said_again(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str,
    count: int, before: bool,
) -> None:  # fmt: skip
    """Whether it arrived or not: the rows are there once."""
    written = two_tasks(brokers, producer)
    pauses: list[float] = []
    unsure = over(every_url[:count], connections, Unsure)
    unsure.before = before
    decide_epoch(unsure, written, SECONDS_MS, pauses.append)
    assert len(pauses) >= count
    assert bodies(connections, producer) == ALL[count]


@one_and_three
def test_a_broker_that_never_answers_is_named_and_asked_over_a_new_connection(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str, count:
    int
) -> None:
    """The error names the option. One broker may have decided; of several, nothing was decided before all of
    them answered.
    """
    written = two_tasks(brokers, producer)
    dropped: list[int] = []

    def connection(number: int) -> BlockingConnection:
        if number == count - 1:
            raise ConnectionGone("the connection ended")
        return connections[number]

    without = SetBrokers(every_url[:count], GROUP, connection, dropped.append)
    otherwise = {1: "it may be decided or not", 3: "nothing is decided by this run"}[count]
    said = rf"within 1 ms \(option commitTimeoutMs\), last: the broker at {every_url[count - 1]} did not "
    with pytest.raises(EpochError, match=f"{said}.* Now {otherwise}"):
        decide_epoch(without, written, 1, lambda seconds: None)
    assert dropped and set(dropped) == {count - 1}
    assert not brokers.status(COORDINATOR, producer, 0).decided


@one_and_three
def test_an_abort_after_a_lost_reply_changes_nothing(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """Spark calls abort with the same messages: what is decided stays, and nothing is raised."""
    written = two_tasks(brokers, producer)
    commit(brokers, written)
    for each in ([None, *written], [written[1]]):  # of several, the second has sets of participants only
        refused = void_sets(brokers, each)
        assert refused is not None and "half:conflict" in refused
    with pytest.raises(SetDecided):
        brokers.ask(COORDINATOR, lambda client: client.void(producer, 0, ids_of(written[0])[:1]))
    decide_epoch(brokers, two_tasks(brokers, producer), SECONDS_MS)
    assert bodies(connections, producer) == ALL[count]


@one_and_three
def test_a_voided_set_is_not_committed_and_its_epoch_lives_on(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """Voided behind the back: the commit says so and does nothing, and the epoch is written again. A prepared
    set is dropped for nobody but its coordinator, which rules it out first.
    """
    written = two_tasks(brokers, producer)
    if count > 1:
        with pytest.raises(SetPrepared, match="half:prepared"):
            brokers.ask(1, lambda client: client.void(producer, 0, [written[1].sets[0].set_id]))
    assert void_sets(brokers, [None, written[1]]) is None
    with pytest.raises(SetGone, match="half:unknown-set"):
        decide_epoch(brokers, written, SECONDS_MS)
    assert bodies(connections, producer) == [[]] * count
    assert not brokers.status(COORDINATOR, producer, 0).decided
    assert void_sets(brokers, written) is None
    assert sets_left(brokers, producer) == 0
    decide_epoch(brokers, two_tasks(brokers, producer), SECONDS_MS)
    assert bodies(connections, producer) == ALL[count]


@one_and_three
def test_destinations_and_rows_without_a_set(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """A set has as many destinations as its rows; a task without rows has no set, and an epoch may be empty:
    it is decided all the same, so that nothing older can be.
    """
    a, b = f"{producer}.a", f"{producer}.b"
    shards = [1, 1, 0] if count > 1 else []
    rows = batch(b"1", b"2", b"3", shards=shards, addresses=[a, b, a])
    written = write_sets(brokers, producer, 0, [rows], None)
    empty = write_sets(brokers, producer, 0, [], None)
    assert empty == Written(producer, 0, (), False, 0)
    decide_epoch(brokers, [empty, written], SECONDS_MS)
    assert bodies(connections, a) == {1: [[b"1", b"3"]], 3: [[b"3"], [b"1"], []]}[count]
    assert bodies(connections, b) == {1: [[b"2"]], 3: [[], [b"2"], []]}[count]
    decide_epoch(brokers, [write_sets(brokers, producer, 1, [], None)], SECONDS_MS)
    assert all(brokers.status(number, producer, 1).decided for number in range(count))


@one_and_three
def test_a_decided_epoch_with_other_rows_is_an_error(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """A checkpoint that was restored plans the batch anew: skipping it would lose rows in silence."""
    decide_epoch(brokers, two_tasks(brokers, producer), SECONDS_MS)
    again = two_tasks(brokers, producer)[:1]
    with pytest.raises(EpochError, match="committed before with 7 rows, and now it has 5"):
        decide_epoch(brokers, again, SECONDS_MS)
    assert bodies(connections, producer) == ALL[count]


@one_and_three
def test_tasks_that_saw_a_decision_want_it_to_be_there(brokers: SetBrokers, producer: str) -> None:
    """Otherwise their rows would be missing: a store that was restored meanwhile."""
    with pytest.raises(EpochError, match="now it is not"):
        decide_epoch(brokers, [Written(producer, 0, (), True, 1)], SECONDS_MS)


@one
def test_messages_of_two_epochs_are_never_committed_together(brokers: SetBrokers, producer: str) -> None:
    """That would be a fault of ours or of Spark's."""
    with pytest.raises(EpochError, match="one producer and epoch"):
        decide_epoch(brokers, [Written(producer, epoch, (), False, 0) for epoch in (0, 1)], SECONDS_MS)


@one_and_three
def test_a_task_that_fails_leaves_no_set(brokers: SetBrokers, producer: str, count: int) -> None:
    """What it staged is voided at once, at each broker, and the error is the task's own."""

    def rows() -> Iterator[Encoded]:
        yield batch(b"1", b"2", shards=[0, 1] if count > 1 else [])
        raise RuntimeError("a row that cannot be computed")

    with pytest.raises(RuntimeError, match="cannot be computed"):
        write_sets(brokers, producer, 0, rows(), producer)
    assert sets_left(brokers, producer) == 0


@one_and_three
def test_at_least_once_sends_as_it_comes(
    connections: list[BlockingConnection], producer: str, count: int
) -> None:
    """No set, no epoch: everything is there when it returns."""
    a, b = f"{producer}.a", f"{producer}.b"
    several = count > 1
    rows = [
        batch(b"1", b"2", shards=[2, 0] if several else [], addresses=[a, b]),
        batch(b"3", shards=[2] if several else [], addresses=[a]),
    ]
    assert send_all(lambda number: connections[number], rows, None) == 3
    assert bodies(connections, a) == [[], [], [b"1", b"3"]][-count:]
    assert bodies(connections, b) == [[b"2"], [], []][:count]


@one
def test_hundreds_of_batches_go_over_one_connection(
    every_url: list[str], connections: list[BlockingConnection], producer: str
) -> None:
    """Spark's processes live on from batch to batch: a session has 256 links, 2 for a batch."""
    for epoch in range(130):
        brokers = over(every_url[:1], connections)
        decide_epoch(brokers, [Written(producer, epoch, (), False, 0)], SECONDS_MS)
        brokers.close()
    assert SetClient(connections[0], GROUP).status(producer).latest == 129


@one
def test_an_older_epoch_is_refused_with_what_to_do(brokers: SetBrokers, producer: str) -> None:
    """A checkpoint that was restored or deleted writes with the name of a query that went on."""
    decide_epoch(brokers, [one_task(brokers, producer, 9, b"1")], SECONDS_MS)
    with pytest.raises(EpochError, match="above 9, .* found 4.* another producerId"):
        one_task(brokers, producer, 4, b"1")
    with pytest.raises(StaleEpoch):
        brokers.ask(COORDINATOR, lambda client: client.stage(producer, 4, "s", producer))
    with pytest.raises(StaleEpoch):
        brokers.ask(COORDINATOR, lambda client: client.commit_epoch(producer, 4, []))


@one
def test_a_seal_wants_what_was_staged(connections: list[BlockingConnection], producer: str) -> None:
    """Count and checksum are compared, so a lost message is no silent one."""
    client = SetClient(connections[0], GROUP)
    staging = client.stage(producer, 0, "s", producer)
    staging.send([HEADER] * 2, [data(b"1"), data(b"2")])
    staging.close()
    for wrong in (("s", 3, staging.checksum), ("s", 2, staging.checksum + 1)):
        with pytest.raises(SetMismatch, match="half:mismatch"):
            client.seal(producer, 0, SealedSet(*wrong))
    with pytest.raises(SetGone, match="half:unknown-set"):
        client.seal(producer, 0, SealedSet("t", 2, staging.checksum))
    client.seal(producer, 0, SealedSet("s", 2, staging.checksum))
    client.seal(producer, 0, SealedSet("s", 2, staging.checksum))
    with pytest.raises(SetMismatch):
        client.commit_epoch(producer, 0, [SealedSet("s", 1, staging.checksum)])


# --- with several


@three
def test_what_the_coordinator_decided_is_applied_whatever_a_driver_names(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """The commit of a driver that is gone arrives late, before that of the next one, which had its own
    sets.
    """
    gone = one_task(brokers, producer, 0, b"a", b"b", shards=[0, 1])
    here = one_task(brokers, producer, 0, b"a", b"b", shards=[1, 0])
    commit(brokers, [gone])
    decide_epoch(brokers, [here], SECONDS_MS)
    assert bodies(connections, producer) == [[b"a"], [b"b"], []]
    assert sets_left(brokers, producer) == 0


@three
def test_earlier_epochs_are_ended_first(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """One was decided and not applied, one never decided: a participant takes no later one before these."""
    commit(brokers, [one_task(brokers, producer, 1, b"1", shards=[1])])
    one_task(brokers, producer, 2, b"2", shards=[1])
    decide_epoch(brokers, [one_task(brokers, producer, 3, b"3", b"4", shards=[1, 2])], SECONDS_MS)
    assert bodies(connections, producer) == [[], [b"1", b"3"], [b"4"]]
    assert sets_left(brokers, producer) == 0


@three
def test_an_epoch_that_is_decided_meanwhile_is_applied_instead(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """Who ends it sees no decision, wants its sets ruled out, and is told that it was decided."""
    overtaken = over(every_url, connections, Overtaken)
    overtaken.sets = one_task(brokers, producer, 0, b"1", shards=[1]).sets
    overtaken.after = 1
    end_prepared(overtaken, 1, producer, 0)
    assert bodies(connections, producer) == [[], [b"1"], []]


@three
def test_a_participant_may_be_beyond_an_epoch_that_it_has_nothing_of(
    brokers: SetBrokers, producer: str
) -> None:
    """A driver that is gone brings an old decision; where rows would be missing it is an error."""
    commit(brokers, [one_task(brokers, producer, 1, b"1", shards=[0])])
    decided = brokers.status(COORDINATOR, producer, 1)
    decide_epoch(brokers, [one_task(brokers, producer, 2, b"2", shards=[1])], SECONDS_MS)
    apply_decision(brokers, 1, producer, 1, decided)
    missing = SealedSet("s", 1, 1, brokers.store(1, producer, 1))
    with pytest.raises(StaleEpoch, match=f"the broker at {brokers.names[1]}"):
        apply_decision(brokers, 1, producer, 1, attrs.evolve(decided, winners=(missing,)))


@three
def test_a_winner_whose_seal_is_damaged_is_prepared_again(
    brokers: SetBrokers, connections: list[BlockingConnection], producer: str
) -> None:
    """It is open after the participant's start. What is not as it was decided is an error."""
    store = brokers.store(1, producer, 0)
    for epoch, lost in ((0, 0), (1, 1)):
        stage = SetStage(SetClient(connections[1], GROUP), producer, epoch, f"open{epoch}", 10)
        stage.send(batch(b"1", b"2"), producer)
        staged = stage.close()
        assert staged is not None
        won = attrs.evolve(staged, store=store, count=staged.count + lost)
        brokers.ask(COORDINATOR, partial(_enlist_and_commit, producer, epoch, won))
        decided = brokers.status(COORDINATOR, producer, epoch)
        if lost:
            with pytest.raises(SetMismatch, match="expected 3 messages .* there are 2"):
                apply_decision(brokers, 1, producer, epoch, decided)
        else:
            apply_decision(brokers, 1, producer, epoch, decided)
    assert bodies(connections, producer) == [[], [b"1", b"2"], []]


def _enlist_and_commit(producer: str, epoch: int, won: SealedSet, client: SetClient) -> None:
    client.seal(producer, epoch, won, store=won.store)
    client.commit_epoch(producer, epoch, [won])


@three
def test_another_order_of_the_brokers_is_told(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """By tasks and by the commit, with the broker that has to be first; a participant alone is one, too."""
    decide_epoch(brokers, two_tasks(brokers, producer), SECONDS_MS)
    order = [1, 0, 2]
    other = over([every_url[n] for n in order], [connections[n] for n in order])
    with pytest.raises(EpochError, match=f"first broker of .*, {every_url[1]}, .* The order .* stays"):
        two_tasks(other, producer, 1)
    with pytest.raises(EpochError, match=f"name {every_url[0]} first"):
        decide_epoch(other, [Written(producer, 1, (), False, 0)], SECONDS_MS)
    with pytest.raises(EpochError, match="name another one first"):
        one_task(over(every_url[1:2], connections[1:2]), producer, 1, b"1")
    bodies(connections, producer)


@three
def test_a_query_of_one_broker_goes_on_with_more(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """They are added at the end; before its first broker it is another order."""
    first = over(every_url[:1], connections[:1])
    decide_epoch(first, [one_task(first, producer, 0, b"1")], SECONDS_MS)
    decide_epoch(brokers, [one_task(brokers, producer, 1, b"2", shards=[1])], SECONDS_MS)
    assert bodies(connections, producer) == [[b"1"], [b"2"], []]
    last = over(every_url[2:], connections[2:])
    decide_epoch(last, [Written(f"{producer}2", 0, (), False, 0)], SECONDS_MS)
    with pytest.raises(EpochError, match=f"name {every_url[2]} first"):
        decide_epoch(brokers, [Written(f"{producer}2", 1, (), False, 0)], SECONDS_MS)


@three
def test_a_broker_that_is_left_out_or_named_twice_is_told(
    every_url: list[str], connections: list[BlockingConnection], brokers: SetBrokers, producer: str
) -> None:
    """Rows are there, and nobody would make them visible."""
    written = two_tasks(brokers, producer)
    for left in (1, 2):
        lost = f"{3 - left} of its rows are in the store .* wiped or .* left it out"
        with pytest.raises(EpochError, match=lost):
            decide_epoch(over(every_url[:left], connections[:left]), written, SECONDS_MS)
    with pytest.raises(EpochError, match="are the same broker"):
        decide_epoch(over([every_url[0], "again"], [connections[0]] * 2), written, SECONDS_MS)
    assert void_sets(brokers, written) is None


def test_sets_of_the_wire_have_their_store() -> None:
    """At the coordinator only: a participant is told of its own."""
    assert SealedSet("s", 1, 2).named() == SealedSet("s", 1, 2, "store").described()
    assert SealedSet("s", 1, 2, "store").named()["store"] == "store"
