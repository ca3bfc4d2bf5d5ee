"""Damaged rows of hidden nodes: a seal that cannot be trusted is never committed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.frames import Accepted
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from tests.support.broker_clients import bodies, condition_of, receive, send, session_to, settle_down
from tests.support.half_set_groups import durable, next_offset, nothing_is_held, sets_of, together
from tests.support.half_sets import SetClient, checksum, commit_of, row, seal_of
from tests.support.halves import tell
from tests.support.jumping_broker import JumpingBroker, Start, on_disk
from tests.support.retained import offset_of, read, retaining

ROWS = [row(b"%d" % number) for number in range(4)]
WINNER = ("one", 3, checksum(*ROWS[:3]))
OTHER = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
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
    with sqlite3.connect(Path(first.config.data_dir) / DATABASE_NAME) as database:
        select = "SELECT id, settings FROM node WHERE kind='set' ORDER BY id LIMIT 1"
        number, settings = database.execute(select).fetchone()
        told = json.loads(settings)
        change(told)
        database.execute("UPDATE node SET settings=? WHERE id=?", (json.dumps(told), number))
    database.close()
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
    with sqlite3.connect(tmp_path / "data" / DATABASE_NAME) as database:
        select = "SELECT id FROM node WHERE kind='set'"
        database.execute(f"UPDATE run SET live_bytes=live_bytes+1 WHERE queue_id=({select})")
    database.close()
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
