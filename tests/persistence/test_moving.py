"""Moves on disk: rows of the index, also in older stores, and what is swept and rewritten around them."""

from __future__ import annotations

from pathlib import Path

from amqp_broker.persistence import CreateNode, DecideEpoch, Move, Post, Purge, Record, Retire
from amqp_broker.persistence.questions import LatestDecisionOf
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    messages,
    new_queue,
    node_of,
    offsets,
    read_all,
)
from amqp_broker.testing.store_suite.sets import AT_MS, bodies, decision, names
from tests.persistence.stores import MIB, assert_whole, edit, reopened, small_store
from tests.persistence.versions import write_version


def test_messages_of_an_older_store_move(tmp_path: Path) -> None:
    """Rows that an older broker wrote move, holes and changed headers among them."""
    write_version(2, tmp_path)
    store = small_store(tmp_path)
    before = {record.body: record.annotations for record in read_all(store, 1)}
    do(store, Move(1, 3, 3, AT_MS), DecideEpoch(decision(1)))
    store = reopened(store)
    found = read_all(store, 3)[-4:]
    assert [record.offset for record in found] == [3, 4, 5, 6]
    assert {record.body: record.annotations for record in found} == before
    assert sorted(before.values(), key=str) == [None, None, None, b"notes"]
    assert store.ask(LatestDecisionOf("g", "p")) == decision(1)


def test_no_body_is_written_again(tmp_path: Path) -> None:
    """Ten megabytes move with a few kilobytes of the write-ahead log, and no segment changes."""
    store = small_store(tmp_path)
    target, source = new_queue(store), new_queue(store, "set")
    for first in range(0, 1000, 50):
        do(store, Post(source, messages(first, 50, size=10_000)))
    do_idle_work(store, 0.0)
    sql = "SELECT id, runs, length(bodies) FROM segment ORDER BY id"
    segments = store._connection.execute(sql).fetchall()
    do(store, Move(source, target, 0, AT_MS))
    assert store._measure_wal() < MIB // 4
    assert store._connection.execute(sql).fetchall() == segments
    assert offsets(store, target) == list(range(1000))
    assert_whole(store)


def test_many_moved_runs_are_retired_like_others(tmp_path: Path) -> None:
    """Moved runs are retired in ranges across old and new places, nearly without a cache."""
    store = small_store(tmp_path, run_cache_messages=1)
    target, source = new_queue(store), new_queue(store, "set")
    do(store, Post(target, messages(0, 10)))
    for first in range(40):
        do(store, Post(source, messages(first, 1)))
    do(store, *[Retire(source, offset, offset) for offset in range(0, 40, 4)])
    do(store, Move(source, target, 10, AT_MS), Post(target, messages(40, 10)))
    left = list(range(50))
    for first, last in ((8, 12), (39, 41), (20, 20), (22, 30), (0, 3), (48, 90)):
        do(store, Retire(target, first, last))
        left = [offset for offset in left if not first <= offset <= last]
        assert offsets(store, target) == left
        assert node_of(store, target).message_count == len(left)
    assert_whole(store)


def test_what_a_purge_left_is_swept_and_does_not_move(tmp_path: Path) -> None:
    """Rows below the purge mark of the moved node are swept."""
    store = small_store(tmp_path)
    target, source = new_queue(store), new_queue(store, "set")
    for first in range(0, 900, 3):
        do(store, Post(source, messages(first, 3)))
    do(store, Purge(source), Post(source, messages(900, 2)))
    do(store, Post(source, messages(902, 2)))
    do(store, Retire(source, 900, 901), Move(source, target, 0, AT_MS))
    assert bodies(store, target) == names(0, 902, 903)
    store = reopened(store)
    do_idle_work(store, 0.0)
    assert bodies(store, target) == names(0, 902, 903)
    assert_whole(store)
    assert edit(tmp_path, "SELECT count(*) FROM run UNION ALL SELECT count(*) FROM segment") == [(1,), (1,)]
    assert edit(tmp_path, "SELECT name FROM node") == [("orders",)]


def test_shared_segments_are_rewritten_for_the_last_of_their_runs(tmp_path: Path) -> None:
    """A segment is rewritten only when no other run needs its bodies. Nothing of the others is lost."""
    store = small_store(tmp_path)
    target, source = new_queue(store), new_queue(store, "set")
    do(store, Post(source, [Record(offset, b"%d:" % offset + bytes(4000)) for offset in range(100)]))
    do(store, Retire(source, 30, 30), Retire(source, 60, 60))
    do(store, Move(source, target, 0, AT_MS))  # 0-29, 30-58, 59-97

    def settle() -> int:
        do_idle_work(store, 0.0)
        ((size,),) = store._connection.execute("SELECT sum(length(bodies)) FROM segment").fetchall()
        return int(size)

    do(store, Retire(target, 1, 40), Retire(target, 42, 58))
    assert settle() > 400_000
    do(store, Retire(target, 0, 0), Retire(target, 60, 95))
    assert settle() > 400_000
    do(store, Retire(target, 41, 41), CreateNode("more", "queue"))
    assert settle() < 13_000
    assert [record.body[:3] for record in read_all(store, target)] == [b"61:", b"98:", b"99:"]
    assert node_of(store, target).byte_count == 3 * 4003
    assert_whole(store)
