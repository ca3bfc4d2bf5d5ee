"""Cases of sets that no client can bring about alone: full disks, stores that fail, lost answers, restarts,
and changes that meet in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Header, encode_message
from amqp_broker.half_set_administration import HalfSetInfo
from amqp_broker.jobs import Step
from amqp_broker.persistence import Event, Log, StoreFailed
from tests.support.broker_clients import bodies, counts, receive, send, session_to, settle_down
from tests.support.half_sets import (
    SetClient,
    checksum,
    commit_of,
    condition_of,
    half_sets,
    row,
    seal_of,
    stage,
    stager,
    void_of,
)
from tests.support.halves import PATIENT, FaultyBroker, on_disk, tell
from tests.support.wire_client import ConnectionLost, PeerError, WireSender

ROWS = [row(b"%d" % number) for number in range(6)]


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    """A broker in memory whose commits go through a script."""
    running = FaultyBroker(PATIENT)
    try:
        yield running
    finally:
        running.stop()


class Life:
    """A broker on one data directory, which is started again and again."""

    def __init__(self, folder: Path) -> None:
        self.config = on_disk(folder)
        self.broker = FaultyBroker(self.config)

    def restart(self) -> FaultyBroker:
        """Stop and start."""
        self.broker.stop()
        return self.start()

    def start(self) -> FaultyBroker:
        """Start where the one before has stopped."""
        self.broker = FaultyBroker(self.config, after=self.broker)
        return self.broker


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A broker on disk."""
    found = Life(tmp_path)
    try:
        yield found
    finally:
        found.broker.stop()


def sets(broker: RunningBroker) -> dict[str, HalfSetInfo]:
    """What an administrator sees, by set."""
    return {each.set_id: each for each in half_sets(broker)}


def next_offset(broker: RunningBroker, name: str = "q") -> int:
    """The number that the next message of a queue gets."""

    def there(running: Broker) -> int:
        return running.nodes.registry._queues[name].next_offset

    found = broker.call(there)
    assert isinstance(found, int)
    return found


def nothing_is_held(broker: RunningBroker) -> None:
    """No change is on its way, and the figures are the sums of what is there."""

    def there(running: Broker) -> tuple[Any, ...]:
        service = running.nodes.half_sets
        staged = service.sets()
        assert not any(each.busy or each.under_way for each in staged)
        assert not any(producer.deciding for producer in service.producers.values())
        assert not any(queue.pending_posts for queue in running.nodes.registry.queues())
        assert service.part_count == sum([len(each.parts) for each in staged])
        assert service.byte_count == sum([each.byte_count for each in staged])
        assert all(producer.sets for producer in service.producers.values())
        return ()

    broker.call(there)


# The disk is full


def test_a_full_disk_changes_nothing_and_is_told(broker: FaultyBroker) -> None:
    """At the attach, while staging, at the seal, at the commit and at a void; each works the next time."""
    full = "amqp:resource-limit-exceeded"
    with session_to(broker) as session:
        client = SetClient(session)
        send(session.attach_sender("o", "q"), b"ordinary", durable=True)
        broker.faults.refuse_commit()
        with pytest.raises(PeerError, match=full):
            stager(session)
    with session_to(broker) as session:
        client = SetClient(session)
        link = client.staged("one", ROWS[0])
        broker.faults.refuse_commit()
        assert condition_of(tell(link, ROWS[1])) == full
        assert sets(broker)["one"].count == 1
        stage(link, ROWS[1])
        broker.faults.refuse_commit()
        assert condition_of(client.seal("one", *ROWS[:2])) == full
        assert sets(broker)["one"].state == "open"
        stage(link, ROWS[2])
        link.detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        winner = ("one", 3, checksum(*ROWS[:3]))
        client.staged("two", ROWS[3]).detach()
        broker.faults.refuse_commit()
        assert condition_of(client.void("two")) == full
        broker.faults.refuse_commit()
        assert condition_of(client.commit(winner)) == full
        assert set(sets(broker)) == {"one", "two"} and next_offset(broker) == 1
        nothing_is_held(broker)
        assert isinstance(client.commit(winner), Accepted)
        assert next_offset(broker) == 4 and not sets(broker)
    nothing_is_held(broker)


def test_a_full_disk_for_a_whole_group_gives_all_numbers_back(broker: FaultyBroker) -> None:
    """A commit of an epoch between ordinary messages: refused with them; then all fit without a hole."""
    with session_to(broker) as session, session_to(broker, "other") as other:
        client = SetClient(session)
        winner = client.sealed("one", *ROWS[:3])
        ordinary = other.attach_sender("ordinary", "q")
        other.connection.pump_until(lambda: ordinary.may_send)
        broker.faults.refuse_commit(2, count=5)  # the first is that of something else
        asked = [(ordinary, _durable(b"a")), (client.resolve, commit_of(winner)), (ordinary, _durable(b"b"))]
        told = together(broker, *asked)
        assert [condition_of(each) for each in told] == ["amqp:resource-limit-exceeded"] * 3
        broker.faults._commit_errors.clear()
        assert next_offset(broker) == 0 and counts(broker, "q") == (0, 0)
        told = together(broker, *asked)
        assert all(isinstance(each, Accepted) for each in told)
        assert next_offset(broker) == 5
        found = bodies(receive(session.attach_receiver("r", "q", credit=9), 5))
        assert found == [b"a", b"0", b"1", b"2", b"b"]
    nothing_is_held(broker)


def _durable(body: bytes) -> bytes:
    return encode_message(header=Header(durable=True), body=body)


# Answers that are lost, stores that fail


def test_a_lost_answer_to_a_commit(broker: FaultyBroker) -> None:
    """The repeat is accepted, what Spark does then (void all) is a conflict, and all is there once."""
    with session_to(broker) as session:
        client = SetClient(session)
        winner = client.sealed("one", *ROWS[:2])
        broker.faults.reset_after_commit()
        with pytest.raises((ConnectionLost, PeerError)):
            client.commit(winner)
    with session_to(broker) as session:
        client = SetClient(session)
        assert condition_of(client.void("one")) == "half:conflict"
        assert isinstance(client.commit(winner), Accepted)
        found = client.status(1)
        assert found["decided"] and found["winners"] == [{"set": "one", "count": 2, "checksum": winner[2]}]
        assert bodies(receive(session.attach_receiver("r", "q", credit=5), 2)) == [b"0", b"1"]
        assert counts(broker, "q")[0] == 2


def test_a_lost_answer_to_a_seal(broker: FaultyBroker) -> None:
    """Sealed again with the same is accepted."""
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", ROWS[0]).detach()
        broker.faults.reset_after_commit()
        with pytest.raises((ConnectionLost, PeerError)):
            client.seal("one", ROWS[0])
    with session_to(broker) as session:
        assert isinstance(SetClient(session).seal("one", ROWS[0]), Accepted)


def test_a_connection_that_goes_leaves_what_it_staged(broker: FaultyBroker) -> None:
    """The set is open, and another process may void it, or go on."""
    with session_to(broker) as session:
        stage(stager(session, "one"), ROWS[0])
        session.connection.abort()
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", ROWS[1]).detach()
        assert isinstance(client.seal("one", *ROWS[:2]), Accepted)
    nothing_is_held(broker)


STEPS = ("stage", "seal", "commit", "void")


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_store_that_ends_before_or_after_its_commit(tmp_path: Path, step: str, happened: bool) -> None:
    """After the restart all of the step is there or nothing, nobody was told of it, and asking again settles
    it.
    """
    life = Life(tmp_path)
    broker = life.broker
    rows = ROWS[:2] if step == "stage" else ROWS[:1]
    with session_to(broker) as session:
        client = SetClient(session)
        link = client.staged("one", ROWS[0])
        winner = ("one", 1, checksum(ROWS[0]))
        if step == "commit":
            link.detach()
            client.seal("one", ROWS[0])
        doing: dict[str, Callable[[], Any]] = {
            "stage": lambda: tell(link, ROWS[1]),
            "seal": lambda: client.seal("one", ROWS[0]),
            "commit": lambda: client.commit(winner),
            "void": lambda: client.void("one"),
        }
        broker.faults.fail_commit(happened=happened)
        with pytest.raises((ConnectionLost, PeerError)):
            doing[step]()
    with pytest.raises(StoreFailed):
        broker.stop()
    again = life.start()
    try:
        found = sets(again)
        gone = step in ("commit", "void") and happened
        assert set(found) == (set() if gone else {"one"})
        if found:
            assert found["one"].count == (len(rows) if step != "stage" or happened else 1)
            sealed = step == "commit" or (step == "seal" and happened)
            assert found["one"].state == ("sealed" if sealed else "open")
        assert counts(again, "q")[0] == (1 if step == "commit" and happened else 0)
        with session_to(again) as session:
            client = SetClient(session)
            if step == "stage":
                there = ROWS[: found["one"].count]
                assert isinstance(client.seal("one", *there), Accepted)
            elif step == "seal":
                assert isinstance(client.seal("one", ROWS[0]), Accepted)
            elif step == "commit":
                assert isinstance(client.commit(winner), Accepted)
                assert counts(again, "q")[0] == 1
            else:
                assert isinstance(client.void("one"), Accepted)
        nothing_is_held(again)
    finally:
        again.stop()


# Restarts


def test_a_restart_between_each_step(life: Life) -> None:
    """What was staged is counted and summed again when it is sealed; what was sealed stays sealed; what was
    decided is known.
    """
    with session_to(life.broker) as session:
        client = SetClient(session)
        client.staged("one", *ROWS[:2]).detach()
        client.staged("one", ROWS[2], destination="r").detach()
        client.staged("loser", ROWS[3]).detach()
    life.restart()
    assert {name: each.count for name, each in sets(life.broker).items()} == {"one": 3, "loser": 1}
    with session_to(life.broker) as session:
        client = SetClient(session)
        client.staged("one", ROWS[4]).detach()
        assert condition_of(client.seal("one", *ROWS[:3])) == "half:mismatch"
    life.restart()
    with session_to(life.broker) as session:
        client = SetClient(session)
        assert isinstance(client.seal("one", *ROWS[:3], ROWS[4]), Accepted)
        assert condition_of(client.seal("one", *ROWS[:3])) == "half:mismatch"
    life.restart()
    winner = ("one", 4, checksum(*ROWS[:3], ROWS[4]))
    with session_to(life.broker) as session:
        client = SetClient(session)
        assert isinstance(client.seal("one", *ROWS[:3], ROWS[4]), Accepted)
        with pytest.raises(PeerError, match="half:sealed"):
            stager(session, "one")
    with session_to(life.broker) as session:
        client = SetClient(session)
        send(session.attach_sender("o", "q"), b"before", durable=True)
        assert isinstance(client.commit(winner), Accepted)
        send(session.attach_sender("p", "q"), b"after", durable=True)
    life.restart()
    assert not sets(life.broker)
    with session_to(life.broker) as session:
        client = SetClient(session)
        assert isinstance(client.commit(winner), Accepted)
        assert condition_of(client.void("one", epoch=1)) == "half:conflict"
        with pytest.raises(PeerError, match="half:decided"):
            stager(session, "two")
    with session_to(life.broker) as session:
        found = bodies(receive(session.attach_receiver("r", "q", credit=9), 5))
        assert found == [b"before", b"0", b"1", b"4", b"after"]
        assert bodies(receive(session.attach_receiver("s", "r", credit=9), 1)) == [b"2"]
    nothing_is_held(life.broker)


def test_sets_are_no_queues_after_a_restart(life: Life) -> None:
    """Nobody can receive from a hidden node, by any name."""
    with session_to(life.broker) as session:
        stage(stager(session, "one"), ROWS[0])
    life.restart()
    names = life.broker.call(lambda broker: [queue.name for queue in broker.nodes.registry.queues()])
    assert names == ["q"]
    with session_to(life.broker) as session, pytest.raises(PeerError, match="not-allowed"):
        session.attach_receiver("r", "$half-set/g/p/1/one/q")


def test_a_set_that_became_too_old_while_nothing_ran(life: Life) -> None:
    """It is voided at the start; a younger one is not."""
    with session_to(life.broker) as session:
        client = SetClient(session)
        client.sealed("old", ROWS[0])
        life.broker.jump(3_600)
        client.staged("young", ROWS[1]).detach()
    life.broker.stop()
    life.broker._started_at_ms += 3 * 3_600_000 + 60_000
    life.start()
    life.broker.jump(0.001)
    with session_to(life.broker) as session:
        settle_down(life.broker, session)
        assert set(sets(life.broker)) == {"young"}
        life.broker.jump(3_600)
        settle_down(life.broker, session)
        assert not sets(life.broker)


# Changes that meet


def together(broker: FaultyBroker, *asked: tuple[WireSender, bytes]) -> list[Any]:
    """Requests of several connections, judged in one group; their outcomes."""
    with broker.faults.held_commits():
        broker.call(_something_else)
        numbers = []
        for sender, payload in asked:
            numbers.append(sender.send(payload))
            sender.session.connection.flush()
            broker.call(_arrived(len(numbers)))
    told = []
    for (sender, _), number in zip(asked, numbers, strict=True):
        sender.session.connection.pump_until(partial(sender.outcomes.__contains__, number))
        told.append(sender.outcomes[number])
    return told


async def _something_else(broker: Broker) -> None:
    """Its commit holds the writer: what comes meanwhile shares the next group."""
    broker.writer.submit(Step([Log(Event("test", 0, {}))]))
    while not broker.writer._in_worker:
        await trio.sleep(0)


def _arrived(count: int) -> Callable[[Broker], Any]:
    async def there(broker: Broker) -> None:
        while len(broker.writer._jobs) < count:
            await trio.sleep(0)

    return there


def test_two_committers_at_once(broker: FaultyBroker) -> None:
    """One decides, the other is told that it is decided; the queue holds the winners of the decision and
    nothing else, whatever came first.
    """
    with session_to(broker) as one, session_to(broker, "two") as two:
        first, second = SetClient(one), SetClient(two)
        for epoch in range(1, 21):
            a = first.sealed(f"a{epoch}", row(b"a"), epoch=epoch)
            b = first.sealed(f"b{epoch}", row(b"b"), row(b"b"), epoch=epoch)
            asked = [
                (first.resolve, commit_of(a, epoch=epoch)),
                (second.resolve, commit_of(b, epoch=epoch)),
            ]
            told = together(broker, *(asked if epoch % 2 else reversed(asked)))
            assert all(isinstance(each, Accepted) for each in told)
            found = first.status(epoch)
            chosen = a if epoch % 2 else b
            assert [each["set"] for each in found["winners"]] == [chosen[0]] and not found["sets"]
        assert counts(broker, "q")[0] == 10 * 1 + 10 * 2
    nothing_is_held(broker)


@pytest.mark.parametrize("first", ["commit", "void"])
def test_a_commit_and_a_void_at_once(broker: FaultyBroker, first: str) -> None:
    """Whoever is first has it, and the other is told so."""
    with session_to(broker) as one, session_to(broker, "two") as two:
        client, other = SetClient(one), SetClient(two)
        winner = client.sealed("one", ROWS[0])
        asked = [(client.resolve, commit_of(winner)), (other.resolve, void_of("one"))]
        if first == "void":
            asked.reverse()
        told = together(broker, *asked)
        assert isinstance(told[0], Accepted)
        assert condition_of(told[1]) == ("half:conflict" if first == "commit" else "half:unknown-set")
        assert counts(broker, "q")[0] == (1 if first == "commit" else 0)
    nothing_is_held(broker)


def test_later_and_earlier_epochs_at_once(broker: FaultyBroker) -> None:
    """In the order of their arrival, each judged by what is stored before it."""
    with session_to(broker) as one, session_to(broker, "two") as two:
        client, other = SetClient(one), SetClient(two)
        a = client.sealed("a", ROWS[0], epoch=1)
        b = client.sealed("b", ROWS[1], epoch=2)
        asked = [(client.resolve, commit_of(b, epoch=2)), (other.resolve, commit_of(a, epoch=1))]
        told = together(broker, *asked)
        assert isinstance(told[0], Accepted) and condition_of(told[1]) == "half:stale-epoch"
        assert client.status()["sets"] == [] and counts(broker, "q")[0] == 1


def test_a_late_stager_meets_the_commit(broker: FaultyBroker) -> None:
    """Staged before it in the same group: accepted, and voided with its set. After it: the link ends. Sets of
    later epochs go on.
    """
    with session_to(broker) as one, session_to(broker, "two") as two, session_to(broker, "3") as three:
        client = SetClient(one)
        winner = client.sealed("winner", ROWS[0])
        late = SetClient(two).staged("loser", ROWS[1])
        ahead = SetClient(three).staged("ahead", ROWS[2], epoch=2)
        with pytest.raises(PeerError, match="half:decided|half:sealed|half:voided"):
            together(
                broker,
                (client.resolve, commit_of(winner)),
                (ahead, ROWS[3]),
                (late, ROWS[4]),
            )
        settle_down(broker, one, three)
        assert sets(broker)["ahead"].count == 2 and set(sets(broker)) == {"ahead"}
        assert counts(broker, "q")[0] == 1
    nothing_is_held(broker)


def test_a_seal_that_is_sent_right_behind_its_messages(broker: FaultyBroker) -> None:
    """On one connection without waiting: judged again after them, and accepted; one commit later, no
    sooner.
    """
    with session_to(broker) as session:
        client = SetClient(session)
        link = client.staged("one", ROWS[0])
        told = together(
            broker, (link, ROWS[1]), (link, ROWS[2]), (client.resolve, seal_of("one", 3, checksum(*ROWS[:3])))
        )
        assert all(isinstance(each, Accepted) for each in told)
    nothing_is_held(broker)


def test_messages_behind_the_seal_are_not_in_the_set(broker: FaultyBroker) -> None:
    """In the same group: refused with the link, or the seal is a mismatch; never in a sealed set."""
    with session_to(broker) as one, session_to(broker, "two") as two:
        client = SetClient(one)
        link = SetClient(two).staged("one", ROWS[0])
        sealing = seal_of("one", 1, checksum(ROWS[0]))
        with pytest.raises(PeerError, match="half:sealed"):
            together(broker, (client.resolve, sealing), (link, ROWS[1]))
        assert isinstance(tell(client.resolve, sealing), Accepted)
        assert sets(broker)["one"].count == 1
    nothing_is_held(broker)


def test_two_links_open_a_set_at_once_with_its_seal_and_void(broker: FaultyBroker) -> None:
    """Attaches that meet make one set."""
    with session_to(broker) as one:
        client = SetClient(one)
        links = [client.staged("one", ROWS[n], destination=name) for n, name in enumerate("qqr")]
        for link in links:
            link.detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        assert sets(broker)["one"].destinations == {"q": 2, "r": 1}
        assert isinstance(client.void("one"), Accepted)
    nothing_is_held(broker)
