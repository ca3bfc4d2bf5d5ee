"""Sets when disks are full, stores fail, answers are lost, changes meet in one group, rows are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.frames import Accepted
from amqp_broker.persistence import StoreFailed
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.persistence.stores import edit
from tests.support.broker_clients import (
    bodies,
    condition_of,
    counts,
    error_of,
    receive,
    send,
    session_to,
    settle_down,
)
from tests.support.half_set_groups import durable, next_offset, nothing_is_held, sets_of, together
from tests.support.half_sets import (
    SetClient,
    checksum,
    commit_of,
    refused,
    row,
    seal_of,
    stage,
    stager,
    void_of,
)
from tests.support.halves import resolver, tell
from tests.support.jumping_broker import InEachStore, JumpingBroker, Start, on_disk
from tests.support.retained import offset_of, read, retaining

ROWS = [row(b"%d" % number) for number in range(6)]
WINNER = ("one", 3, checksum(*ROWS[:3]))
OTHER = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"


# The disk is full


def test_a_full_disk_changes_nothing_and_is_told(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """At the attach, while staging, at the seal, at the commit and at a void; each works the next time."""
    full = "amqp:resource-limit-exceeded"
    send(session.attach_sender("o", "q"), b"ordinary", durable=True)
    broker.faults.refuse_commit()
    refused(session, full, "$half-set/g/p/1/one/q")
    link = client.staged("one", ROWS[0])
    broker.faults.refuse_commit()
    assert condition_of(tell(link, ROWS[1])) == full
    assert sets_of(broker)["one"].count == 1
    stage(link, ROWS[1])
    broker.faults.refuse_commit()
    assert condition_of(client.seal("one", *ROWS[:2])) == full
    assert sets_of(broker)["one"].state == "open"
    stage(link, ROWS[2])
    link.detach()
    assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
    client.staged("two", ROWS[3]).detach()
    broker.faults.refuse_commit()
    assert condition_of(client.void("two")) == full
    broker.faults.refuse_commit()
    assert condition_of(client.commit(WINNER)) == full
    assert set(sets_of(broker)) == {"one", "two"} and next_offset(broker) == 1
    nothing_is_held(broker)
    assert isinstance(client.commit(WINNER), Accepted)
    assert next_offset(broker) == 4 and not sets_of(broker)
    nothing_is_held(broker)


def test_a_full_disk_for_a_whole_group_gives_all_numbers_back(
    broker: JumpingBroker, client: SetClient, session: PeerSession, other: PeerSession
) -> None:
    """A commit of an epoch between ordinary messages: refused with them; then all fit without a hole."""
    winner = client.sealed("one", *ROWS[:3])
    ordinary = other.attach_sender("ordinary", "q")
    other.connection.pump_until(lambda: ordinary.may_send)
    broker.faults.refuse_commit(2, count=5)  # the first is that of something else
    asked = [(ordinary, durable(b"a")), (client.resolve, commit_of(winner)), (ordinary, durable(b"b"))]
    told = together(broker, *asked)
    assert [condition_of(each) for each in told] == ["amqp:resource-limit-exceeded"] * 3
    broker.faults._commit_errors.clear()
    assert next_offset(broker) == 0 and counts(broker, "q") == (0, 0)
    assert together(broker, *asked) == [Accepted()] * 3
    assert next_offset(broker) == 5
    found = bodies(receive(session.attach_receiver("r", "q", credit=9), 5))
    assert found == [b"a", b"0", b"1", b"2", b"b"]
    nothing_is_held(broker)


def test_what_is_tried_again_one_by_one_is_counted_once(
    broker: JumpingBroker, client: SetClient, session: PeerSession, other: PeerSession
) -> None:
    """A whole group is refused, and then each of it finds room alone."""
    link = client.staged("one", ROWS[0])
    ordinary = other.attach_sender("ordinary", "q")
    other.connection.pump_until(lambda: ordinary.may_send)
    broker.faults.refuse_commit(2)  # the first is that of something else
    told = together(broker, (link, ROWS[1]), (ordinary, durable(b"a")), (link, ROWS[2]))
    assert told == [Accepted()] * 3
    nothing_is_held(broker)
    link.detach()
    assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
    assert isinstance(client.commit(WINNER), Accepted)
    found = bodies(receive(session.attach_receiver("r", "q", credit=9), 4))
    assert found == [b"a", b"0", b"1", b"2"]


# Answers that are lost, stores that fail


@pytest.mark.parametrize("step", ["seal", "commit"])
def test_a_lost_answer(broker: JumpingBroker, step: str) -> None:
    """Asked again, it is accepted, and all is there once; what Spark does after a commit (void all) is a
    conflict.
    """
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", *ROWS[:3]).detach()
        if step == "commit":
            client.seal("one", *ROWS[:3])
        broker.faults.reset_after_commit()
        with pytest.raises((ConnectionLost, PeerError)):
            client.commit(WINNER) if step == "commit" else client.seal("one", *ROWS[:3])
    with session_to(broker) as session:
        client = SetClient(session)
        if step == "seal":
            assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        else:
            assert condition_of(client.void("one")) == "half:conflict"
        assert isinstance(client.commit(WINNER), Accepted)
        found = client.status(1)
        assert found["decided"] and found["winners"] == [{"set": "one", "count": 3, "checksum": WINNER[2]}]
        assert bodies(receive(session.attach_receiver("r", "q", credit=5), 3)) == [b"0", b"1", b"2"]
        assert counts(broker, "q")[0] == 3


def test_a_connection_that_goes_leaves_what_it_staged(broker: JumpingBroker, client: SetClient) -> None:
    """The set is open, and another process may void it, or go on."""
    with session_to(broker, "gone") as session:
        stage(stager(session, "one"), ROWS[0])
        session.connection.abort()
    client.staged("one", ROWS[1]).detach()
    assert isinstance(client.seal("one", *ROWS[:2]), Accepted)
    nothing_is_held(broker)


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("step", ["stage", "seal", "commit", "void"])
def test_a_store_that_ends_before_or_after_its_commit(
    start: Start, tmp_path: Path, step: str, happened: bool
) -> None:
    """After the restart all of the step is there or nothing, nobody was told of it, and asking again settles
    it.
    """
    broker = start(on_disk(tmp_path))
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
    again = start(broker.config, broker)
    found = sets_of(again)
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


# Restarts


def test_a_restart_between_each_step(start: Start, tmp_path: Path) -> None:
    """What was staged is counted and summed again when it is sealed; what was sealed stays sealed; what was
    decided is known.
    """
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", *ROWS[:2]).detach()
        client.staged("one", ROWS[2], destination="r").detach()
        client.staged("loser", ROWS[3]).detach()
    broker = start(broker.config, broker)
    assert {name: each.count for name, each in sets_of(broker).items()} == {"one": 3, "loser": 1}
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", ROWS[4]).detach()
        assert condition_of(client.seal("one", *ROWS[:3])) == "half:mismatch"
    broker = start(broker.config, broker)
    with session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(client.seal("one", *ROWS[:3], ROWS[4]), Accepted)
        assert condition_of(client.seal("one", *ROWS[:3])) == "half:mismatch"
    broker = start(broker.config, broker)
    winner = ("one", 4, checksum(*ROWS[:3], ROWS[4]))
    with session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(client.seal("one", *ROWS[:3], ROWS[4]), Accepted)
        with pytest.raises(PeerError, match="half:sealed"):
            stager(session, "one")
    with session_to(broker) as session:
        client = SetClient(session)
        send(session.attach_sender("o", "q"), b"before", durable=True)
        assert isinstance(client.commit(winner), Accepted)
        send(session.attach_sender("p", "q"), b"after", durable=True)
    broker = start(broker.config, broker)
    assert not sets_of(broker)
    with session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(client.commit(winner), Accepted)
        assert condition_of(client.void("one", epoch=1)) == "half:conflict"
        with pytest.raises(PeerError, match="half:decided"):
            stager(session, "two")
    with session_to(broker) as session:
        found = bodies(receive(session.attach_receiver("r", "q", credit=9), 5))
        assert found == [b"before", b"0", b"1", b"4", b"after"]
        assert bodies(receive(session.attach_receiver("s", "r", credit=9), 1)) == [b"2"]
    nothing_is_held(broker)


def test_a_damaged_message_is_missed_at_the_seal(start: Start, tmp_path: Path) -> None:
    """What was staged is read again after a restart: what does not match its checksum is a mismatch, and the
    set can be given up.
    """
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        SetClient(session).staged("one", *ROWS[:3]).detach()
    broker.stop()
    ((found, octets),) = edit(tmp_path / "data", "SELECT id, bodies FROM segment ORDER BY id DESC LIMIT 1")
    damaged = octets[:-1] + bytes([octets[-1] ^ 1])
    edit(tmp_path / "data", "UPDATE segment SET bodies=? WHERE id=?", damaged, found)
    broker = start(broker.config, broker)
    with session_to(broker) as session:
        client = SetClient(session)
        assert sets_of(broker)["one"].count == 3
        error = error_of(client.seal("one", *ROWS[:3]))
        assert error.condition == "half:mismatch" and "there are 2" in (error.description or "")
        assert isinstance(client.void("one"), Accepted)
        assert isinstance(client.commit(), Accepted)
    nothing_is_held(broker)


def test_sets_are_no_queues_after_a_restart(start: Start, tmp_path: Path) -> None:
    """Nobody can receive from a hidden node, by any name."""
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        stage(stager(session, "one"), ROWS[0])
    broker = start(broker.config, broker)
    names = broker.call(lambda broker: [queue.name for queue in broker.nodes.queues.queues()])
    assert names == ["q"]
    with session_to(broker) as session, pytest.raises(PeerError, match="not-allowed"):
        session.attach_receiver("r", "$half-set/g/p/1/one/q")


def test_no_set_becomes_older_while_nothing_runs(start: Start, tmp_path: Path) -> None:
    """Each has the time after the start that it had left; the older one is voided first."""
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        client = SetClient(session)
        client.sealed("old", ROWS[0])
        broker.jump(3_600)
        client.staged("young", ROWS[1]).detach()
    broker.stop()
    broker.set_wall(3 * 3_600 + 60)
    broker = start(broker.config, broker)
    with session_to(broker) as session:
        broker.jump(3 * 3_600 - 1)
        settle_down(broker, session)
        assert set(sets_of(broker)) == {"old", "young"}
        broker.jump(2)
        settle_down(broker, session)
        assert set(sets_of(broker)) == {"young"}
        broker.jump(3_600)
        settle_down(broker, session)
        assert not sets_of(broker)


# Changes that meet in one group of the writer: each is judged by what is stored before it


def test_two_committers_at_once(broker: JumpingBroker, client: SetClient, other: PeerSession) -> None:
    """One decides, the other is told that it is decided; the queue holds the winners of the decision and
    nothing else, whatever came first.
    """
    second = resolver(other)
    for epoch in range(1, 21):
        a = client.sealed(f"a{epoch}", row(b"a"), epoch=epoch)
        b = client.sealed(f"b{epoch}", row(b"b"), row(b"b"), epoch=epoch)
        asked = [(client.resolve, commit_of(a, epoch=epoch)), (second, commit_of(b, epoch=epoch))]
        assert together(broker, *(asked if epoch % 2 else reversed(asked))) == [Accepted()] * 2
        found = client.status(epoch)
        chosen = a if epoch % 2 else b
        assert [each["set"] for each in found["winners"]] == [chosen[0]] and not found["sets"]
    assert counts(broker, "q")[0] == 10 * 1 + 10 * 2
    nothing_is_held(broker)


ONE = ("one", 1, checksum(ROWS[0]))
PLAIN, AT_HOME = commit_of(ONE), commit_of(ONE, coordinator=OTHER)
FAR, VOTE = commit_of((*ONE, OTHER)), void_of("one", epoch=1, store=OTHER)
SEAL, PREPARE, ENLIST = seal_of(*ONE), seal_of(*ONE, coordinator=OTHER), seal_of(*ONE, store=OTHER)


@pytest.mark.parametrize(
    ("before", "first", "second", "told", "committed", "state"),
    [
        (SEAL, PLAIN, void_of("one"), "half:conflict", 1, None),
        (SEAL, void_of("one"), PLAIN, "half:unknown-set", 0, None),
        (None, PREPARE, void_of("one"), "half:prepared", 0, "prepared"),
        (None, void_of("one"), PREPARE, "half:unknown-set", 0, None),
        (None, PREPARE, AT_HOME, "", 1, None),
        (ENLIST, FAR, VOTE, "half:conflict", 0, None),
        (ENLIST, VOTE, FAR, "half:unknown-set", 0, "voided"),
        ("", ENLIST, VOTE, "", 0, "voided"),
        ("", VOTE, ENLIST, "half:voided", 0, "voided"),
    ],
)
def test_two_requests_at_once(
    broker: JumpingBroker, client: SetClient, other: PeerSession, before: bytes | str | None, first: bytes,
    second: bytes, told: str, committed: int, state: str | None,
) -> None:  # fmt: skip
    """Whoever is first has it, and the other is told so: prepared is prepared from its commit on, and what
    coordinator voted about never wins. `before` seals or enlists it; None: it is open; "": there is none.
    """
    if before is None or before == SEAL:
        client.staged("one", ROWS[0]).detach()
    if isinstance(before, bytes):
        assert isinstance(tell(client.resolve, before), Accepted)
    outcomes = together(broker, (client.resolve, first), (resolver(other), second))
    assert isinstance(outcomes[0], Accepted)
    assert (condition_of(outcomes[1]) if told else "") == told
    assert {each.state for each in sets_of(broker).values()} == ({state} if state else set())
    queues = broker.call(lambda running: running.nodes.queues.queues())
    assert sum(queue.message_count for queue in queues) == committed
    nothing_is_held(broker)


def test_later_and_earlier_epochs_at_once(
    broker: JumpingBroker, client: SetClient, other: PeerSession
) -> None:
    """In the order of their arrival, each judged by what is stored before it."""
    a = client.sealed("a", ROWS[0], epoch=1)
    b = client.sealed("b", ROWS[1], epoch=2)
    asked = [(client.resolve, commit_of(b, epoch=2)), (resolver(other), commit_of(a, epoch=1))]
    told = together(broker, *asked)
    assert isinstance(told[0], Accepted) and condition_of(told[1]) == "half:stale-epoch"
    assert client.status()["sets"] == [] and counts(broker, "q")[0] == 1


def test_a_late_stager_meets_the_commit(broker: JumpingBroker) -> None:
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
        assert sets_of(broker)["ahead"].count == 2 and set(sets_of(broker)) == {"ahead"}
        assert counts(broker, "q")[0] == 1
    nothing_is_held(broker)


def test_a_seal_that_is_sent_right_behind_its_messages(broker: JumpingBroker, client: SetClient) -> None:
    """On one connection without waiting: judged after them, and accepted."""
    link = client.staged("one", ROWS[0])
    told = together(
        broker, (link, ROWS[1]), (link, ROWS[2]), (client.resolve, seal_of("one", 3, checksum(*ROWS[:3])))
    )
    assert all(isinstance(each, Accepted) for each in told)
    nothing_is_held(broker)


def test_messages_behind_the_seal_are_not_in_the_set(
    broker: JumpingBroker, client: SetClient, other: PeerSession
) -> None:
    """In the same group: refused with the link, or the seal is a mismatch; never in a sealed set."""
    link = SetClient(other).staged("one", ROWS[0])
    sealing = seal_of("one", 1, checksum(ROWS[0]))
    with pytest.raises(PeerError, match="half:sealed"):
        together(broker, (client.resolve, sealing), (link, ROWS[1]))
    assert isinstance(tell(client.resolve, sealing), Accepted)
    assert sets_of(broker)["one"].count == 1
    nothing_is_held(broker)


# Damaged rows of hidden nodes: a seal that cannot be trusted is never committed


FORGED = {"sealed_count": 3, "sealed_checksum": WINNER[2]}


Change = Callable[[dict[str, Any]], object]


def broker_after(
    start: Start, folder: Path, before: Callable[[SetClient], object], change: Change
) -> JumpingBroker:
    """A broker whose first hidden node has other settings than the one before has left."""
    first = start(on_disk(folder))
    with session_to(first) as session:
        before(SetClient(session))
    first.stop()
    select = "SELECT id, settings FROM node WHERE kind='set' ORDER BY id LIMIT 1"
    ((number, settings),) = edit(folder / "data", select)
    told = json.loads(settings)
    change(told)
    edit(folder / "data", "UPDATE node SET settings=? WHERE id=?", json.dumps(told), number)
    return start(first.config, first)


@pytest.mark.parametrize(
    ("sealed", "change"),
    [
        (False, lambda told: told.update(FORGED)),
        (True, lambda told: told.update(sealed_checksum=told["sealed_checksum"] ^ 1)),
        (True, lambda told: told.update(epoch=3)),
        (True, lambda told: told.update(set="two")),
        (True, lambda told: told.update(destination="r")),
        (True, lambda told: told.update(coordinator="elsewhere")),
        (True, lambda told: told.clear()),
    ],
)
def test_a_seal_that_may_be_damaged_is_never_committed(
    sealed: bool, change: Change, start: Start, tmp_path: Path
) -> None:
    """Whatever the row says: the set is open, by its name, and who has staged it can seal it again."""

    def before(client: SetClient) -> None:
        if sealed:
            client.sealed("one", *ROWS[:3])
        else:
            client.staged("one", *ROWS[:3]).detach()

    broker = broker_after(start, tmp_path, before, change)
    assert {name: (each.state, each.count) for name, each in sets_of(broker).items()} == {
        "one": ("open", 3)
    }
    with session_to(broker) as session:
        client = SetClient(session)
        for epoch, set_id in ((1, "one"), (3, "one"), (1, "two")):
            winner = (set_id, *WINNER[1:])
            assert condition_of(client.commit(winner, epoch=epoch)) in (
                "half:unsealed",
                "half:unknown-set",
            )
        assert condition_of(client.seal("one", *ROWS[:2])) == "half:mismatch"
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        assert isinstance(client.commit(WINNER), Accepted)
        found = bodies(receive(session.attach_receiver("r", "q", credit=9), 3))
        assert found == [b"0", b"1", b"2"]
    nothing_is_held(broker)


def test_a_set_with_a_damaged_part_has_all_of_it_or_is_not_committed(start: Start, tmp_path: Path) -> None:
    """The sound part's seal says how many there are: the damaged one is found by its name, and voided with
    it.
    """

    def before(client: SetClient) -> None:
        client.staged("one", *ROWS[:2]).detach()
        client.staged("one", ROWS[2], destination="r").detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)

    broker = broker_after(start, tmp_path, before, lambda told: told.clear())
    (one,) = sets_of(broker).values()
    assert (one.state, one.count) == ("sealed", 3)
    with session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(client.commit(WINNER), Accepted)
        found = bodies(receive(session.attach_receiver("q", "q", credit=9), 2))
        assert found == [b"0", b"1"]
    nothing_is_held(broker)


def test_what_may_have_been_prepared_is_not_ended_by_its_age(start: Start, tmp_path: Path) -> None:
    """It is open, and is prepared again by the same seal, which needs no more than coordinator knows."""
    broker = broker_after(
        start, tmp_path,
        lambda client: client.sealed("one", *ROWS[:3], coordinator=OTHER), lambda told: told.clear(),
    )
    broker.jump(24 * 3_600)
    with session_to(broker) as session:
        settle_down(broker, session)
        client = SetClient(session)
        assert condition_of(client.commit(WINNER, coordinator=OTHER)) == "half:unsealed"
        assert isinstance(client.seal("one", *ROWS[:3], coordinator=OTHER), Accepted)
        assert isinstance(client.commit(WINNER, coordinator=OTHER), Accepted)
        assert len(receive(session.attach_receiver("r", "q", credit=9), 3)) == 3
    nothing_is_held(broker)


@pytest.mark.parametrize("voted", [False, True])
def test_a_damaged_set_of_another_store_never_wins(voted: bool, start: Start, tmp_path: Path) -> None:
    """The coordinator may have given its word about it; its trace ends as any."""

    def before(client: SetClient) -> None:
        tell(client.resolve, seal_of("far", 7, 77, store=OTHER))
        if voted:
            client.void("far", epoch=1, store=OTHER)

    broker = broker_after(start, tmp_path, before, lambda told: told.clear())
    assert sets_of(broker)["far"].state == "voided"
    with session_to(broker) as session:
        client = SetClient(session)
        assert condition_of(tell(client.resolve, seal_of("far", 7, 77, store=OTHER))) == "half:voided"
        assert condition_of(client.commit(("far", 7, 77, OTHER))) == "half:unknown-set"
        assert isinstance(client.void("far", epoch=1, store=OTHER), Accepted)
        broker.jump(5 * 3_600)
        settle_down(broker, session)
    assert sets_of(broker) == {}
    nothing_is_held(broker)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_commit_that_is_refused_alone_leaves_no_hole(
    start: Start, tmp_path: Path, before: int
) -> None:
    """Damaged rows of one set refuse its epoch only; what shares the group with it, `before` it or behind,
    has offsets without a hole, and so has what comes later.
    """
    kept = attrs.evolve(retaining("q"), memory=False, data_dir=str(tmp_path / "data"))
    first = start(kept)
    with session_to(first) as session:
        SetClient(session).sealed("one", *ROWS[:3])
    first.stop()
    select = "SELECT id FROM node WHERE kind='set'"
    edit(tmp_path / "data", f"UPDATE run SET live_bytes=live_bytes+1 WHERE queue_id=({select})")
    broker = start(kept, after=first)
    with session_to(broker) as session, session_to(broker, "other") as other:
        client = SetClient(session)
        ordinary = other.attach_sender("ordinary", "q")
        other.connection.pump_until(lambda: ordinary.may_send)
        asked = [(ordinary, durable(b"%d" % number)) for number in range(2)]
        asked.insert(before, (client.resolve, commit_of(WINNER)))
        told = together(broker, *asked)
        assert condition_of(told.pop(before)) == "amqp:internal-error"
        assert all(isinstance(each, Accepted) for each in told)
        assert next_offset(broker) == 2
        assert condition_of(client.commit(WINNER)) == "amqp:internal-error", "alone in its group"
        send(ordinary, b"2", durable=True)
        found = receive(read(session, "q", "first", until=3), 3)
        assert [offset_of(each) for each in found] == [0, 1, 2]
        assert bodies(found) == [b"0", b"1", b"2"]
    nothing_is_held(broker)


# A destination that retains: what a commit makes available is read by its offset like all else


def test_committed_sets_are_retained_with_dense_offsets(start: Start, in_each_store: InEachStore) -> None:
    """Between ordinary messages; also after they were consumed, and after a restart."""
    config = in_each_store(retaining("q"))
    rows = ROWS[:5]
    broker = start(config)
    with session_to(broker) as session:
        client = SetClient(session)
        ordinary = session.attach_sender("o", "q")
        send(ordinary, b"first")
        one, two = client.sealed("one", *rows[:3]), client.sealed("two", *rows[3:])
        client.staged("loser", row(b"loser")).detach()
        tail = read(session, "q", "next")
        assert isinstance(client.commit(two, one), Accepted)
        send(ordinary, b"last")
        expected = [b"first", b"3", b"4", b"0", b"1", b"2", b"last"]
        found = receive(tail, 6)
        assert bodies(found) == expected[1:] and [offset_of(each) for each in found] == [*range(1, 7)]
        consumer = session.attach_receiver("r", "q", credit=10)
        deliveries = receive(consumer, 7)
        consumer.settle(deliveries, Accepted(), settled=False)
        session.connection.pump_until(lambda: len(consumer.confirmed) == 7)
        _reads_all(session, expected)
        settle_down(broker, session)
    if not config.memory:
        with session_to(start(config, broker)) as session:
            _reads_all(session, expected)


def _reads_all(session: Any, expected: list[bytes]) -> None:
    found = receive(read(session, "q", "first", until=len(expected)), len(expected))
    assert bodies(found) == expected and [offset_of(each) for each in found] == [*range(len(expected))]
    with pytest.raises(PeerError, match="retained:beyond"):
        read(session, "q", 0, until=len(expected) + 1)
