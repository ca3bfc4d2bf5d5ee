"""Damaged rows of hidden nodes: a seal that cannot be trusted is never committed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.frames import Accepted
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from tests.support.broker_clients import bodies, receive, session_to
from tests.support.half_set_groups import nothing_is_held, sets_of
from tests.support.half_sets import SetClient, checksum, condition_of, row
from tests.support.halves import FaultyBroker, on_disk

ROWS = [row(b"%d" % number) for number in range(4)]
WINNER = ("one", 3, checksum(*ROWS[:3]))
FORGED = {"sealed_count": 3, "sealed_checksum": WINNER[2]}


def broker_after(
    folder: Path, before: Callable[[SetClient], None], change: Callable[[dict[str, Any]], object]
) -> FaultyBroker:
    """A broker whose first hidden node has other settings than the one before has left."""
    first = FaultyBroker(on_disk(folder))
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
    return FaultyBroker(first.config, after=first)


@pytest.mark.parametrize(
    ("sealed", "change"),
    [
        (False, lambda told: told.update(FORGED)),
        (True, lambda told: told.update(sealed_checksum=told["sealed_checksum"] ^ 1)),
        (True, lambda told: told.update(epoch=3)),
        (True, lambda told: told.update(set="two")),
        (True, lambda told: told.update(destination="r")),
        (True, lambda told: told.update(home="elsewhere")),
        (True, lambda told: told.clear()),
    ],
)
def test_a_seal_that_may_be_damaged_is_never_committed(
    sealed: bool, change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    """Whatever the row says: the set is open, by its name, and who has staged it can seal it again."""

    def before(client: SetClient) -> None:
        if sealed:
            client.sealed("one", *ROWS[:3])
        else:
            client.staged("one", *ROWS[:3]).detach()

    broker = broker_after(tmp_path, before, change)
    try:
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
    finally:
        broker.stop()


def test_a_set_with_a_damaged_part_has_all_of_it_or_is_not_committed(tmp_path: Path) -> None:
    """The sound part's seal says how many there are: the damaged one is found by its name, and voided with
    it.
    """

    def before(client: SetClient) -> None:
        client.staged("one", *ROWS[:2]).detach()
        client.staged("one", ROWS[2], destination="r").detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)

    broker = broker_after(tmp_path, before, lambda told: told.clear())
    try:
        (one,) = sets_of(broker).values()
        assert (one.state, one.count) == ("sealed", 3)
        with session_to(broker) as session:
            client = SetClient(session)
            assert isinstance(client.commit(WINNER), Accepted)
            found = bodies(receive(session.attach_receiver("q", "q", credit=9), 2))
            assert found == [b"0", b"1"]
        nothing_is_held(broker)
    finally:
        broker.stop()
