"""Sets and decisions on disk: damage is found, reported, and never believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    CreateNode,
    DecideEpoch,
    Move,
    Post,
    Retire,
    Return,
    RowDamaged,
    Unit,
)
from amqp_broker.persistence.epoch_table import EPOCH
from amqp_broker.persistence.questions import DecisionOf, DecisionsOf, LatestDecisionOf, PageOf
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    messages,
    new_queue,
    node_of,
    offsets,
    read_all,
)
from amqp_broker.testing.store_suite.sets import AT_MS, decision, names
from tests.persistence.stores import assert_whole, edit, small_store


def filled(directory: Path, **changes: object) -> tuple[int, int]:
    """The queue and the first of two sets of five messages in three runs each, with ten decided epochs."""
    store = small_store(directory, **changes)
    target, one, two = (new_queue(store, name) for name in ("orders", "one", "two"))
    for queue_id in (one, two):
        for first, count in ((0, 2), (2, 1), (3, 2)):
            do(store, Post(queue_id, messages(first, count)))
        do(store, Return(queue_id, 2, 1))
    for epoch in range(10):
        do(store, DecideEpoch(decision(epoch, ("set", epoch, 2**64 - 1))))
    store.close()
    return target, one


def moves(target: int, one: int) -> list[Unit]:
    """The move of each set in a unit of its own, with a decision."""
    return [
        [Move(one, target, 0, AT_MS), DecideEpoch(decision(10)), Post(target, messages(5, 1))],
        [Move(one + 1, target, 6, AT_MS), DecideEpoch(decision(11))],
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE run SET live_count=1 WHERE queue_id=2 AND first_offset=3",
        "UPDATE run SET segment_id=1 WHERE queue_id=2 AND first_offset=3",
        "UPDATE run SET first_offset=4 WHERE queue_id=2 AND first_offset=3",
        "UPDATE run SET queue_id=2, first_offset=7 WHERE queue_id=3 AND first_offset=3",
        "UPDATE changed SET delivery_count=7 WHERE queue_id=2",
        "UPDATE changed SET offset=4 WHERE queue_id=2",
    ],
)
def test_a_set_with_a_damaged_index_does_not_move(sql: str, tmp_path: Path) -> None:
    """Its unit is refused wholly, the other one happens, and the store goes on."""
    target, one = filled(tmp_path)
    edit(tmp_path, sql)
    store = small_store(tmp_path)
    errors = do_units(store, moves(target, one))
    assert isinstance(errors[0], RowDamaged) and errors[1] is None, errors
    assert [node.name for node in store.recover().nodes] == ["orders", "one"]
    assert store.ask(DecisionOf("g", "p", 10)) is None
    assert store.ask(LatestDecisionOf("g", "p")) == decision(11)
    assert len(offsets(store, target)) == (3 if "queue_id=3" in sql else 5)
    assert isinstance(do_units(store, moves(target, one)[:1])[0], RowDamaged)
    do(store, Post(target, messages(20, 1)))


def test_a_damaged_body_moves_and_is_told_when_it_is_read(tmp_path: Path) -> None:
    """Reading finds the damaged message alone. The others of its set are delivered."""
    target, one = filled(tmp_path)
    sql = "UPDATE segment SET bodies=CAST(replace(CAST(bodies AS TEXT), '4', '5') AS BLOB)"
    edit(tmp_path, f"{sql} WHERE id=(SELECT segment_id FROM run WHERE queue_id=2 AND first_offset=3)")
    store = small_store(tmp_path)
    do_units(store, moves(target, one)[:1])
    page = store.ask(PageOf(target, 0, 100, 1 << 20))
    assert [record.offset for record in page.records] == [0, 1, 2, 3, 5]
    assert [one.offset for one in page.quarantined] == [4]
    assert node_of(store, target).message_count == 5
    assert_whole(store)


def test_damaged_pages_of_the_index_refuse_the_move(tmp_path: Path) -> None:
    """The set stays. Other questions to the store are answered."""
    target, one = filled(tmp_path, page_size_bytes=1024)
    store = small_store(tmp_path)
    for first in range(5, 105):
        do(store, Post(one, messages(first, 1)))
    do_idle_work(store, 0.0)
    ((checksum,),) = store._connection.execute(
        "SELECT checksum FROM run WHERE queue_id=2 AND first_offset=60"
    ).fetchall()
    data = bytearray((tmp_path / DATABASE_NAME).read_bytes())
    page = data.index(checksum.to_bytes(4, "big")) // 1024 * 1024
    with (tmp_path / DATABASE_NAME).open("r+b") as file:
        file.seek(page)
        file.write(b"\xff" * 1024)
    store._connection.execute("PRAGMA shrink_memory").fetchall()
    unit: Unit = [Move(one, target, 0, AT_MS), DecideEpoch(decision(10))]
    assert isinstance(do_units(store, [unit])[0], RowDamaged)
    assert store.ask(LatestDecisionOf("g", "p")) == decision(9, ("set", 9, 2**64 - 1))
    do(store, Post(target, messages(0, 1)), CreateNode("more", "queue"))
    assert [record.offset for record in store.ask(PageOf(target, 0, 10, 1000)).records] == [0]


def test_damaged_decisions_are_told_and_never_believed(tmp_path: Path) -> None:
    """Asking for a damaged decision raises, and so does deciding again. Lists leave it out."""
    filled(tmp_path)
    edit(tmp_path, "UPDATE epoch SET decided_at_ms=5 WHERE epoch=9")
    edit(tmp_path, "UPDATE epoch SET winners=CAST(x'ff61' AS TEXT) WHERE epoch=4")
    edit(tmp_path, "UPDATE epoch SET producer='q' WHERE epoch=3")
    assert verify_directory(tmp_path) == [
        f"group b'g', producer {producer!r}, epoch {epoch}: the row does not match its checksum"
        for producer, epoch in ((b"p", 4), (b"p", 9), (b"q", 3))
    ]
    store = small_store(tmp_path)
    questions: list[Callable[[], object]] = [
        lambda: store.ask(LatestDecisionOf("g", "p")),
        lambda: store.ask(DecisionOf("g", "p", 9)),
        lambda: store.ask(DecisionOf("g", "p", 4)),
        lambda: store.ask(LatestDecisionOf("g", "q")),
    ]
    for question in questions:
        with pytest.raises(RowDamaged):
            question()
    assert [one.epoch for one in store.ask(DecisionsOf("g", "p", 3))] == [8, 7, 6]
    assert [one.epoch for one in store.ask(DecisionsOf("g", "p", 6))] == [8, 7, 6, 5, 2, 1]
    errors = do_units(store, [[DecideEpoch(decision(9))], [DecideEpoch(decision(10))]])
    assert isinstance(errors[0], RowDamaged) and errors[1] is None
    assert store.ask(LatestDecisionOf("g", "p")) == decision(10)
    store.close()


HOMES = (
    (5, '{"coordinator":"h"}'),
    (6, '{"coordinator":1,"sets":[]}'),
    (7, '{"coordinator":"h","sets":[["set",1]]}'),
    (8, '[["set",1,1,7]]'),
)


def test_verification_finds_winners_that_are_none(tmp_path: Path) -> None:
    """Wrong winners with a right checksum are found: the mistake of a writer."""
    filled(tmp_path)
    for epoch, winners in ((1, "[["), (2, '{"a":1}'), (3, '[["set",1]]'), (4, '[["set",true,1]]'), *HOMES):
        checksum = EPOCH.row(epoch, AT_MS + epoch, "g", "p", winners)[-1]
        edit(tmp_path, "UPDATE epoch SET winners=?, checksum=? WHERE epoch=?", winners, checksum, epoch)
    assert verify_directory(tmp_path) == [
        f"group b'g', producer b'p', epoch {epoch}: the winners are no list of (set, count, checksum)"
        for epoch in range(1, 5 + len(HOMES))
    ]


def test_verification_counts_the_runs_of_a_segment(tmp_path: Path) -> None:
    """A run that became several shares its segment with them, until the last of them goes."""
    store = small_store(tmp_path)
    target, one = new_queue(store), new_queue(store, "one")
    do(store, Post(one, messages(0, 9)))
    do(store, Retire(one, 2, 2), Retire(one, 5, 6))
    do(store, Move(one, target, 0, AT_MS))
    assert [record.body.rstrip(b".") for record in read_all(store, target)] == [
        body for _, body in names(0, 0, 1, 3, 4, 7, 8)
    ]
    assert_whole(store)
    assert edit(tmp_path, "SELECT count(*), runs FROM run JOIN segment ON id=segment_id") == [(3, 3)]
    store = small_store(tmp_path)
    do(store, Retire(target, 0, 3))
    assert_whole(store)
    assert edit(tmp_path, "SELECT first_offset, runs FROM run JOIN segment ON id=segment_id") == [(4, 1)]
    edit(tmp_path, "UPDATE segment SET runs=2")
    assert verify_directory(tmp_path) == ["segment 1: counts 2 runs, but there are 1"]
    edit(tmp_path, "UPDATE segment SET runs=1")
    store = small_store(tmp_path)
    do(store, Retire(target, 4, 5))
    assert_whole(store)
    assert edit(tmp_path, "SELECT count(*) FROM segment") == [(0,)]


RUNS = ((b"0:", b"1:"), (b"2:",), (b"3:", b"4:"))
"""The bodies of each set, as `filled` posts them."""
