"""Cases of sets that no client can bring about alone: full disks, failing stores, lost answers, restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.frames import Accepted
from amqp_broker.persistence import StoreFailed
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerSession
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
from tests.support.half_sets import SetClient, checksum, commit_of, row, stage, stager
from tests.support.halves import tell
from tests.support.jumping_broker import JumpingBroker, Start, on_disk

ROWS = [row(b"%d" % number) for number in range(6)]


# The disk is full


def test_a_full_disk_changes_nothing_and_is_told(broker: JumpingBroker) -> None:
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
        assert sets_of(broker)["one"].count == 1
        stage(link, ROWS[1])
        broker.faults.refuse_commit()
        assert condition_of(client.seal("one", *ROWS[:2])) == full
        assert sets_of(broker)["one"].state == "open"
        stage(link, ROWS[2])
        link.detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        winner = ("one", 3, checksum(*ROWS[:3]))
        client.staged("two", ROWS[3]).detach()
        broker.faults.refuse_commit()
        assert condition_of(client.void("two")) == full
        broker.faults.refuse_commit()
        assert condition_of(client.commit(winner)) == full
        assert set(sets_of(broker)) == {"one", "two"} and next_offset(broker) == 1
        nothing_is_held(broker)
        assert isinstance(client.commit(winner), Accepted)
        assert next_offset(broker) == 4 and not sets_of(broker)
    nothing_is_held(broker)


def test_a_full_disk_for_a_whole_group_gives_all_numbers_back(broker: JumpingBroker) -> None:
    """A commit of an epoch between ordinary messages: refused with them; then all fit without a hole."""
    with session_to(broker) as session, session_to(broker, "other") as other:
        client = SetClient(session)
        winner = client.sealed("one", *ROWS[:3])
        ordinary = other.attach_sender("ordinary", "q")
        other.connection.pump_until(lambda: ordinary.may_send)
        broker.faults.refuse_commit(2, count=5)  # the first is that of something else
        asked = [(ordinary, durable(b"a")), (client.resolve, commit_of(winner)), (ordinary, durable(b"b"))]
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


def test_what_is_tried_again_one_by_one_is_counted_once(
    broker: JumpingBroker, client: SetClient, session: PeerSession, other: PeerSession
) -> None:
    """A whole group is refused, and then each of it finds room alone."""
    link = client.staged("one", ROWS[0])
    ordinary = other.attach_sender("ordinary", "q")
    other.connection.pump_until(lambda: ordinary.may_send)
    broker.faults.refuse_commit(2)  # the first is that of something else
    told = together(broker, (link, ROWS[1]), (ordinary, durable(b"a")), (link, ROWS[2]))
    assert all(isinstance(each, Accepted) for each in told)
    nothing_is_held(broker)
    link.detach()
    assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
    assert isinstance(client.commit(("one", 3, checksum(*ROWS[:3]))), Accepted)
    found = bodies(receive(session.attach_receiver("r", "q", credit=9), 4))
    assert found == [b"a", b"0", b"1", b"2"]


# Answers that are lost, stores that fail


def test_a_lost_answer_to_a_commit(broker: JumpingBroker) -> None:
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


def test_a_lost_answer_to_a_seal(broker: JumpingBroker) -> None:
    """Sealed again with the same is accepted."""
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", ROWS[0]).detach()
        broker.faults.reset_after_commit()
        with pytest.raises((ConnectionLost, PeerError)):
            client.seal("one", ROWS[0])
    with session_to(broker) as session:
        assert isinstance(SetClient(session).seal("one", ROWS[0]), Accepted)


def test_a_connection_that_goes_leaves_what_it_staged(broker: JumpingBroker) -> None:
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
    with sqlite3.connect(Path(broker.config.data_dir) / DATABASE_NAME) as database:
        (found,) = database.execute("SELECT max(id) FROM segment").fetchone()
        (octets,) = database.execute("SELECT bodies FROM segment WHERE id=?", (found,)).fetchone()
        damaged = octets[:-1] + bytes([octets[-1] ^ 1])
        database.execute("UPDATE segment SET bodies=? WHERE id=?", (damaged, found))
    database.close()
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
