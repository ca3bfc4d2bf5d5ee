"""Epochs of the sink over one broker and over three: staged, sealed, decided, repeated, voided."""

from __future__ import annotations

import time
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
    EpochStatus,
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


class Case:
    """So many brokers, with the connections of the test and a producer of its own, whose name the queue has,
    too.
    """

    def __init__(
        self, urls: Sequence[str], connections: Sequence[BlockingConnection], producer: str,
        kind: Any = SetBrokers,
    ) -> None:  # fmt: skip
        self.urls = urls
        self.connections = connections
        self.producer = producer
        self.count = len(urls)
        self.brokers = kind(urls, GROUP, lambda number: connections[number], lambda number: None)

    def over(self, *numbers: int, kind: Any = SetBrokers) -> Case:
        """The same over these brokers, or over another kind of them."""
        chosen = numbers or range(self.count)
        connections = [self.connections[number] for number in chosen]
        return Case([self.urls[number] for number in chosen], connections, self.producer, kind)

    def ask(self, question: Callable[[SetClient], Any], number: int = COORDINATOR) -> Any:
        """A broker's answer."""
        return self.brokers.ask(number, question)

    def status(self, number: int = COORDINATOR, epoch: int = 0) -> EpochStatus:
        """What a broker knows."""
        found: EpochStatus = self.brokers.status(number, self.producer, epoch)
        return found

    def decide(self, *written: Written, pause: Callable[[float], None] = time.sleep) -> None:
        """Has an epoch decided."""
        decide_epoch(self.brokers, written, SECONDS_MS, pause)

    def commit(self, *written: Written) -> None:
        """Has the coordinator decide, and tells nobody else."""
        winners = [each for one in written for each in one.sets]
        self.ask(lambda client: client.commit_epoch(self.producer, written[0].epoch, winners))

    def task(self, epoch: int, *bodies: bytes, **more: Any) -> Written:
        """A task with one record batch."""
        return write_sets(self.brokers, self.producer, epoch, [batch(*bodies, **more)], self.producer)

    def two_tasks(self, epoch: int = 0) -> list[Written]:
        """The first writes to all brokers, the other to all but the first if there are several."""

        def routed(*bodies: bytes, shards: Sequence[int]) -> Encoded:
            return batch(*bodies, shards=shards if self.count > 1 else ())

        first = [routed(b"1", b"2", b"3", b"4", shards=[0, 1, 2, 1]), routed(b"5", shards=[0])]
        return [
            write_sets(self.brokers, self.producer, epoch, batches, self.producer)
            for batches in (first, [routed(b"6", b"7", shards=[1, 2])])
        ]

    def bodies(self, address: str = "") -> list[list[Any]]:
        """What each broker's queue has."""
        queue = address or self.producer
        return [[received.body for received in drained(each, queue)] for each in self.connections]

    def sets_left(self) -> int:
        """How many sets the brokers have without a decision."""
        return sum(
            len(self.ask(lambda client: client.status(self.producer), number).sets)
            for number in range(self.count)
        )


@pytest.fixture
def on(every_url: list[str], count: int, request: pytest.FixtureRequest) -> Iterator[Case]:
    """The brokers, and a name that no other test writes with."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(url, timeout_s=PATIENCE_S)) for url in every_url[:count]]
        name = str(request.node.name)[:80].replace("[", ".").replace("]", "")
        yield Case(every_url[:count], connections, name)


def batch(*bodies: bytes, shards: Sequence[int] = (), addresses: Sequence[str] | None = None) -> Encoded:
    """Messages of one record batch, and where they go; without shards there is one broker."""
    chosen = None if addresses is None else list(addresses)
    return Encoded(chosen, [HEADER] * len(bodies), list(map(data, bodies)), list(shards) or None)


def data(body: bytes) -> bytes:
    """A message."""
    return encode_message(body=body)


# --- with one broker as with several


@one_and_three
def test_an_epoch_is_invisible_until_it_is_decided_and_then_whole(on: Case) -> None:
    """Prepared at the participants, enlisted at the coordinator; then all rows at once, at each broker in the
    order of the tasks and of their rows.
    """
    written = on.two_tasks()
    assert [len(one.sets) for one in written] == {1: [1, 1], 3: [3, 2]}[on.count]
    assert [sum(each.count for each in one.sets) for one in written] == [5, 2]
    assert [one.rows for one in written] == [5, 2]
    assert on.bodies() == [[]] * on.count
    states = [sorted(one["state"] for one in on.status(number).sets) for number in range(on.count)]
    assert states == {1: [["sealed"] * 2], 3: [["sealed"] * 5, ["prepared"] * 2, ["prepared"] * 2]}[on.count]
    on.decide(*written)
    assert on.bodies() == ALL[on.count]
    status = [on.status(number) for number in range(on.count)]
    assert status[COORDINATOR].winners == tuple(each for one in written for each in one.sets)
    assert [each.coordinator for each in status] == ["", status[0].store, status[0].store][:on.count]
    assert all((each.decided, each.latest, each.sets) == (True, 0, ()) for each in status)


@one
def test_a_single_broker_is_asked_for_nothing_that_several_need(on: Case) -> None:
    """One question and one seal for each task, one commit for the epoch: its rate is what it was."""
    asked: list[str] = []
    said = SetClient._told

    def noted(client: SetClient, what: str, do: Callable[[], Any], *more: Any) -> Any:
        asked.append(what.partition(" for ")[0])
        return said(client, what, do, *more)

    with mock.patch.object(SetClient, "_told", noted):
        written = on.task(0, b"1", b"2")
        on.decide(written)
    assert asked == ["status", "a link to stage", "seal", "commit-epoch"]
    assert (written.sets[0].count, written.sets[0].checksum) == (2, checksum_of(map(data, (b"1", b"2"))))


@one_and_three
def test_a_decided_epoch_is_skipped_and_never_doubled(on: Case) -> None:
    """The driver was killed after the decision: its next run writes nothing, and goes on where it ended."""
    on.commit(*on.two_tasks())
    assert on.bodies() == [ALL[on.count][0], [], []][:on.count]
    again = on.two_tasks()
    assert again == [Written(on.producer, 0, (), True, 5), Written(on.producer, 0, (), True, 2)]
    on.decide(*again)
    on.decide(*again)
    assert on.bodies() == [[], *ALL[on.count][1:]]


@one_and_three
def test_losers_are_voided_by_the_decision_and_refused_after_it(on: Case) -> None:
    """The loser of a speculation stages sets of its own, is told nothing, and may come late."""
    on.two_tasks()
    winner = on.two_tasks()
    late = on.ask(lambda client: client.stage(on.producer, 0, "late", on.producer))
    late.send([HEADER], [data(b"1")])
    on.decide(*winner)
    assert on.sets_left() == 0
    with pytest.raises(EpochDecided):
        late.send([HEADER], [data(b"2")])
    with pytest.raises(EpochDecided):
        on.ask(lambda client: client.stage(on.producer, 0, "later", on.producer))


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
def test_a_task_that_is_overtaken_by_the_decision_writes_nothing(on: Case) -> None:
    """It is a loser, not a failure."""
    assert on.over(kind=Overtaken).task(0, b"1") == Written(on.producer, 0, (), True, 1)
    assert on.bodies() == [[]] * on.count


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
def test_what_has_no_answer_is_said_again(on: Case, before: bool) -> None:
    """Whether it arrived or not: the rows are there once."""
    written = on.two_tasks()
    pauses: list[float] = []
    unsure = on.over(kind=Unsure)
    unsure.brokers.before = before
    unsure.decide(*written, pause=pauses.append)
    assert len(pauses) >= on.count
    assert on.bodies() == ALL[on.count]


@one_and_three
def test_a_broker_that_never_answers_is_named_and_asked_over_a_new_connection(on: Case) -> None:
    """The error names the option. One broker may have decided; of several, nothing was decided before all of
    them answered.
    """
    written = on.two_tasks()
    dropped: list[int] = []

    def connection(number: int) -> BlockingConnection:
        if number == on.count - 1:
            raise ConnectionGone("the connection ended")
        return on.connections[number]

    without = SetBrokers(on.urls, GROUP, connection, dropped.append)
    otherwise = {1: "it may be decided or not", 3: "nothing is decided by this run"}[on.count]
    said = rf"within 1 ms \(option commitTimeoutMs\), last: the broker at {on.urls[on.count - 1]} did not "
    with pytest.raises(EpochError, match=f"{said}.* Now {otherwise}"):
        decide_epoch(without, written, 1, lambda seconds: None)
    assert dropped and set(dropped) == {on.count - 1}
    assert not on.status().decided


@one_and_three
def test_an_abort_after_a_lost_reply_changes_nothing(on: Case) -> None:
    """Spark calls abort with the same messages: what is decided stays, and nothing is raised."""
    written = on.two_tasks()
    on.commit(*written)
    for each in ([None, *written], [written[1]]):  # of several, the second has sets of participants only
        refused = void_sets(on.brokers, each)
        assert refused is not None and "half:conflict" in refused
    with pytest.raises(SetDecided):
        on.ask(lambda client: client.void(on.producer, 0, [written[0].sets[0].set_id]))
    on.decide(*on.two_tasks())
    assert on.bodies() == ALL[on.count]


@one_and_three
def test_a_voided_set_is_not_committed_and_its_epoch_lives_on(on: Case) -> None:
    """Voided behind the back: the commit says so and does nothing, and the epoch is written again. A prepared
    set is dropped for nobody but its coordinator, which rules it out first.
    """
    written = on.two_tasks()
    if on.count > 1:
        with pytest.raises(SetPrepared, match="half:prepared"):
            on.ask(lambda client: client.void(on.producer, 0, [written[1].sets[0].set_id]), 1)
    assert void_sets(on.brokers, [None, written[1]]) is None
    with pytest.raises(SetGone, match="half:unknown-set"):
        on.decide(*written)
    assert on.bodies() == [[]] * on.count
    assert not on.status().decided
    assert void_sets(on.brokers, written) is None
    assert on.sets_left() == 0
    on.decide(*on.two_tasks())
    assert on.bodies() == ALL[on.count]


@one_and_three
def test_destinations_and_rows_without_a_set(on: Case) -> None:
    """A set has as many destinations as its rows; a task without rows has no set, and an epoch may be empty:
    it is decided all the same, so that nothing older can be.
    """
    a, b = f"{on.producer}.a", f"{on.producer}.b"
    shards = [1, 1, 0] if on.count > 1 else []
    rows = batch(b"1", b"2", b"3", shards=shards, addresses=[a, b, a])
    written = write_sets(on.brokers, on.producer, 0, [rows], None)
    empty = write_sets(on.brokers, on.producer, 0, [], None)
    assert empty == Written(on.producer, 0, (), False, 0)
    on.decide(empty, written)
    assert on.bodies(a) == {1: [[b"1", b"3"]], 3: [[b"3"], [b"1"], []]}[on.count]
    assert on.bodies(b) == {1: [[b"2"]], 3: [[], [b"2"], []]}[on.count]
    on.decide(write_sets(on.brokers, on.producer, 1, [], None))
    assert all(on.status(number, 1).decided for number in range(on.count))


@one_and_three
def test_a_decided_epoch_with_other_rows_is_an_error(on: Case) -> None:
    """A checkpoint that was restored plans the batch anew: skipping it would lose rows in silence."""
    on.decide(*on.two_tasks())
    again = on.two_tasks()[:1]
    with pytest.raises(EpochError, match="committed before with 7 rows, and now it has 5"):
        on.decide(*again)
    assert on.bodies() == ALL[on.count]


@one_and_three
def test_tasks_that_saw_a_decision_want_it_to_be_there(on: Case) -> None:
    """Otherwise their rows would be missing: a store that was restored meanwhile."""
    with pytest.raises(EpochError, match="now it is not"):
        on.decide(Written(on.producer, 0, (), True, 1))


@one
def test_messages_of_two_epochs_are_never_committed_together(on: Case) -> None:
    """That would be a fault of ours or of Spark's."""
    with pytest.raises(EpochError, match="one producer and epoch"):
        on.decide(*(Written(on.producer, epoch, (), False, 0) for epoch in (0, 1)))


@one_and_three
def test_a_task_that_fails_leaves_no_set(on: Case) -> None:
    """What it staged is voided at once, at each broker, and the error is the task's own."""

    def rows() -> Iterator[Encoded]:
        yield batch(b"1", b"2", shards=[0, 1] if on.count > 1 else [])
        raise RuntimeError("a row that cannot be computed")

    with pytest.raises(RuntimeError, match="cannot be computed"):
        write_sets(on.brokers, on.producer, 0, rows(), on.producer)
    assert on.sets_left() == 0


@one_and_three
def test_at_least_once_sends_as_it_comes(on: Case) -> None:
    """No set, no epoch: everything is there when it returns."""
    a, b = f"{on.producer}.a", f"{on.producer}.b"
    several = on.count > 1
    rows = [
        batch(b"1", b"2", shards=[2, 0] if several else [], addresses=[a, b]),
        batch(b"3", shards=[2] if several else [], addresses=[a]),
    ]
    assert send_all(lambda number: on.connections[number], rows, None) == 3
    assert on.bodies(a) == [[], [], [b"1", b"3"]][-on.count:]
    assert on.bodies(b) == [[b"2"], [], []][:on.count]


@one
def test_hundreds_of_batches_go_over_one_connection(on: Case) -> None:
    """Spark's processes live on from batch to batch: a session has 256 links, 2 for a batch."""
    for epoch in range(130):
        batch = on.over()
        batch.decide(Written(on.producer, epoch, (), False, 0))
        batch.brokers.close()
    assert SetClient(on.connections[0], GROUP).status(on.producer).latest == 129


@one
def test_an_older_epoch_is_refused_with_what_to_do(on: Case) -> None:
    """A checkpoint that was restored or deleted writes with the name of a query that went on."""
    on.decide(on.task(9, b"1"))
    with pytest.raises(EpochError, match="above 9, .* found 4.* another producerId"):
        on.task(4, b"1")
    with pytest.raises(StaleEpoch):
        on.ask(lambda client: client.stage(on.producer, 4, "s", on.producer))
    with pytest.raises(StaleEpoch):
        on.ask(lambda client: client.commit_epoch(on.producer, 4, []))


@one
def test_a_seal_wants_what_was_staged(on: Case) -> None:
    """Count and checksum are compared, so a lost message is no silent one."""
    client = SetClient(on.connections[0], GROUP)
    staging = client.stage(on.producer, 0, "s", on.producer)
    staging.send([HEADER] * 2, [data(b"1"), data(b"2")])
    staging.close()
    for wrong in (("s", 3, staging.checksum), ("s", 2, staging.checksum + 1)):
        with pytest.raises(SetMismatch, match="half:mismatch"):
            client.seal(on.producer, 0, SealedSet(*wrong))
    with pytest.raises(SetGone, match="half:unknown-set"):
        client.seal(on.producer, 0, SealedSet("t", 2, staging.checksum))
    client.seal(on.producer, 0, SealedSet("s", 2, staging.checksum))
    client.seal(on.producer, 0, SealedSet("s", 2, staging.checksum))
    with pytest.raises(SetMismatch):
        client.commit_epoch(on.producer, 0, [SealedSet("s", 1, staging.checksum)])


# --- with several


@three
def test_what_the_coordinator_decided_is_applied_whatever_a_driver_names(on: Case) -> None:
    """The commit of a driver that is gone arrives late, before that of the next one, which had its own
    sets.
    """
    gone = on.task(0, b"a", b"b", shards=[0, 1])
    here = on.task(0, b"a", b"b", shards=[1, 0])
    on.commit(gone)
    on.decide(here)
    assert on.bodies() == [[b"a"], [b"b"], []]
    assert on.sets_left() == 0


@three
def test_earlier_epochs_are_ended_first(on: Case) -> None:
    """One was decided and not applied, one never decided: a participant takes no later one before these."""
    on.commit(on.task(1, b"1", shards=[1]))
    on.task(2, b"2", shards=[1])
    on.decide(on.task(3, b"3", b"4", shards=[1, 2]))
    assert on.bodies() == [[], [b"1", b"3"], [b"4"]]
    assert on.sets_left() == 0


@three
def test_an_epoch_that_is_decided_meanwhile_is_applied_instead(on: Case) -> None:
    """Who ends it sees no decision, wants its sets ruled out, and is told that it was decided."""
    overtaken = on.over(kind=Overtaken).brokers
    overtaken.sets = on.task(0, b"1", shards=[1]).sets
    overtaken.after = 1
    end_prepared(overtaken, 1, on.producer, 0)
    assert on.bodies() == [[], [b"1"], []]


@three
def test_a_participant_may_be_beyond_an_epoch_that_it_has_nothing_of(on: Case) -> None:
    """A driver that is gone brings an old decision; where rows would be missing it is an error."""
    on.commit(on.task(1, b"1", shards=[0]))
    decided = on.status(epoch=1)
    on.decide(on.task(2, b"2", shards=[1]))
    apply_decision(on.brokers, 1, on.producer, 1, decided)
    missing = SealedSet("s", 1, 1, on.brokers.store(1, on.producer, 1))
    with pytest.raises(StaleEpoch, match=f"the broker at {on.brokers.names[1]}"):
        apply_decision(on.brokers, 1, on.producer, 1, attrs.evolve(decided, winners=(missing,)))


@three
def test_a_winner_whose_seal_is_damaged_is_prepared_again(on: Case) -> None:
    """It is open after the participant's start. What is not as it was decided is an error."""
    store = on.brokers.store(1, on.producer, 0)
    for epoch, lost in ((0, 0), (1, 1)):
        stage = SetStage(SetClient(on.connections[1], GROUP), on.producer, epoch, f"open{epoch}", 10)
        stage.send(batch(b"1", b"2"), on.producer)
        staged = stage.close()
        assert staged is not None
        won = attrs.evolve(staged, store=store, count=staged.count + lost)
        on.ask(partial(_enlist_and_commit, on.producer, epoch, won))
        decided = on.status(epoch=epoch)
        if lost:
            with pytest.raises(SetMismatch, match="expected 3 messages .* there are 2"):
                apply_decision(on.brokers, 1, on.producer, epoch, decided)
        else:
            apply_decision(on.brokers, 1, on.producer, epoch, decided)
    assert on.bodies() == [[], [b"1", b"2"], []]


def _enlist_and_commit(producer: str, epoch: int, won: SealedSet, client: SetClient) -> None:
    client.seal(producer, epoch, won, store=won.store)
    client.commit_epoch(producer, epoch, [won])


@three
def test_another_order_of_the_brokers_is_told(on: Case) -> None:
    """By tasks and by the commit, with the broker that has to be first; a participant alone is one, too."""
    on.decide(*on.two_tasks())
    other = on.over(1, 0, 2)
    with pytest.raises(EpochError, match=f"first broker of .*, {on.urls[1]}, .* The order .* stays"):
        other.two_tasks(1)
    with pytest.raises(EpochError, match=f"name {on.urls[0]} first"):
        other.decide(Written(on.producer, 1, (), False, 0))
    with pytest.raises(EpochError, match="name another one first"):
        on.over(1).task(1, b"1")
    on.bodies()


@three
def test_a_query_of_one_broker_goes_on_with_more(on: Case) -> None:
    """They are added at the end; before its first broker it is another order."""
    first = on.over(0)
    first.decide(first.task(0, b"1"))
    on.decide(on.task(1, b"2", shards=[1]))
    assert on.bodies() == [[b"1"], [b"2"], []]
    on.over(2).decide(Written(f"{on.producer}2", 0, (), False, 0))
    with pytest.raises(EpochError, match=f"name {on.urls[2]} first"):
        on.decide(Written(f"{on.producer}2", 1, (), False, 0))


@three
def test_a_broker_that_is_left_out_or_named_twice_is_told(on: Case) -> None:
    """Rows are there, and nobody would make them visible."""
    written = on.two_tasks()
    for left in (1, 2):
        lost = f"{3 - left} of its rows are in the store .* wiped or .* left it out"
        with pytest.raises(EpochError, match=lost):
            on.over(*range(left)).decide(*written)
    with pytest.raises(EpochError, match="are the same broker"):
        on.over(0, 0).decide(*written)
    assert void_sets(on.brokers, written) is None


def test_sets_of_the_wire_have_their_store() -> None:
    """At the coordinator only: a participant is told of its own."""
    assert SealedSet("s", 1, 2).named() == SealedSet("s", 1, 2, "store").described()
    assert SealedSet("s", 1, 2, "store").named()["store"] == "store"
