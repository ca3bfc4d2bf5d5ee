"""Checkpoints, sweeping and compaction, in bounded steps."""

from __future__ import annotations

from pathlib import Path

from amqp_broker.persistence import DeleteNode, Post, Purge, Record, Retire, Return
from amqp_broker.persistence.housekeeping import REWRITES, SWEEP_RUNS
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    fields,
    messages,
    new_queue,
    offsets,
    read_all,
)
from tests.persistence.stores import IN_ROWS, MIB, assert_whole, edit, reopened, small_store


def test_wal_stays_near_its_limit(tmp_path: Path) -> None:
    """The checkpoint is due at the configured size. Then the file is used again from its front."""
    store = small_store(tmp_path, checkpoint_bytes=MIB)
    queue_id = new_queue(store)
    wal = tmp_path / "store.sqlite3-wal"
    longest = checkpoints = written = 0
    for first in range(0, 10_000, 10):
        do(store, Post(queue_id, messages(first, 10, size=1000)), Retire(queue_id, 0, first - 30))
        written += 10_000
        longest = max(longest, wal.stat().st_size)
        if store.checkpoint_due:
            assert written > MIB // 8, "due too early"
            store.idle(0.0)
            assert not store.checkpoint_due
            checkpoints += 1
            written = 0
    assert checkpoints >= 5
    assert longest < 1.5 * MIB, f"a WAL of {longest} bytes"


def test_nothing_is_checkpointed_by_sqlite_itself(tmp_path: Path) -> None:
    """Without `idle` the database file does not change: checkpoints happen between commits only."""
    store = small_store(tmp_path, checkpoint_bytes=MIB)
    queue_id = new_queue(store)
    before = (tmp_path / "store.sqlite3").stat().st_mtime_ns
    do(store, Post(queue_id, messages(0, 8000, size=1000)))
    do(store, Post(queue_id, messages(8000, 1)))
    assert store.checkpoint_due
    assert (tmp_path / "store.sqlite3").stat().st_mtime_ns == before
    store.idle(0.0)
    assert (tmp_path / "store.sqlite3").stat().st_mtime_ns > before


def test_quiet_store_checkpoints_what_there_is(tmp_path: Path) -> None:
    """An idle store copies a small WAL, and then `idle` does nothing."""
    store = small_store(tmp_path)
    new_queue(store)
    assert not store.checkpoint_due
    assert store.idle(0.0) is False
    assert store._measure_wal() == 0
    checkpoints: list[int] = []
    store._checkpoint = lambda: checkpoints.append(1)  # type: ignore[method-assign]
    assert store.idle(0.0) is False
    assert checkpoints == []


def test_sweeping_is_bounded_and_survives_a_restart(tmp_path: Path) -> None:
    """A purge and a deleted node are one mark each. Their rows go in steps, also after a restart."""
    store = small_store(tmp_path, synchronous="OFF")
    purged, deleted, kept = (new_queue(store, name) for name in ("purged", "deleted", "kept"))
    for queue_id in (purged, deleted, kept):
        for offset in range(SWEEP_RUNS + 50):
            do(store, Post(queue_id, [Record(offset, b"x", delivery_count=offset % 2)]))
    changes = store._connection.total_changes
    do(store, Purge(purged), DeleteNode(deleted))
    assert store._connection.total_changes - changes == 2
    assert store.idle(0.0) is True
    assert rows(store, purged) == 50
    store = reopened(store, synchronous="OFF")
    assert [node.name for node in store.recover().nodes] == ["purged", "kept"]
    do(store, Post(purged, [Record(SWEEP_RUNS + 50, b"new", delivery_count=7)]))
    steps = 1
    while store.idle(0.0):
        steps += 1
    assert steps < 10
    assert (rows(store, purged), rows(store, deleted), rows(store, kept)) == (1, 0, SWEEP_RUNS + 50)
    assert [record.delivery_count for record in read_all(store, purged)] == [7]
    assert offsets(store, kept) == list(range(SWEEP_RUNS + 50))
    assert_whole(store)
    assert edit(tmp_path, "SELECT count(*) FROM segment") == [(SWEEP_RUNS + 51,)]
    assert edit(tmp_path, "SELECT count(*) FROM changed WHERE queue_id<>?", kept) == [(1,)]
    assert edit(tmp_path, "SELECT count(*) FROM node") == [(2,)]


def test_one_step_sweeps_many_small_nodes(tmp_path: Path) -> None:
    """Queues that come and go, each with a little in it: what is left of them is gone as fast as they go."""
    store = small_store(tmp_path, synchronous="OFF")
    kept = new_queue(store, "kept")
    do(store, Post(kept, [Record(0, b"x")]))
    gone = [new_queue(store, f"gone-{number}") for number in range(100)]
    for queue_id in gone:
        do(store, Post(queue_id, [Record(0, b"x")]), Post(queue_id, [Record(1, b"y")]))
    do(store, *[DeleteNode(queue_id) for queue_id in gone])
    store.idle(0.0)
    for table in ("node", "run", "segment"):
        assert store._connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(1,)], table
    assert offsets(store, kept) == [0]
    assert_whole(store)


def rows(store: object, queue_id: int) -> int:
    """How many runs a queue has on disk."""
    connection = store._connection  # type: ignore[attr-defined]
    ((count,),) = connection.execute("SELECT count(*) FROM run WHERE queue_id=?", (queue_id,)).fetchall()
    return int(count)


def test_sparse_segments_are_rewritten(tmp_path: Path) -> None:
    """One live message does not hold a megabyte. Live messages keep their place, bytes and changes."""
    store = small_store(tmp_path, body_files=IN_ROWS)
    queue_id = new_queue(store)
    for first in range(0, 20 * 100, 100):
        do(store, Post(queue_id, messages(first, 100, size=5000)))
    do(store, Return(queue_id, 50, 3, b"a"))
    keep = {offset for first in range(0, 2000, 100) for offset in (first + 50, first + 51, first + 99)}
    do(store, *[Retire(queue_id, offset, offset) for offset in range(2000) if offset not in keep])
    before = list(map(fields, read_all(store, queue_id, page=7)))
    assert segment_bytes(store) == 20 * 100 * 5000
    assert store.idle(0.0) is True
    assert segment_bytes(store) == (20 - REWRITES) * 100 * 5000 + REWRITES * 3 * 5000
    do_idle_work(store, 0.0)
    assert segment_bytes(store) == 20 * 3 * 5000
    assert list(map(fields, read_all(store, queue_id, page=7))) == before
    do(store, Retire(queue_id, 0, 99))
    store = reopened(store)
    assert list(map(fields, read_all(store, queue_id))) == before[3:]
    assert store.idle(0.0) is False, "nothing is sparse any more"


def segment_bytes(store: object) -> int:
    """How many bytes of bodies are on disk."""
    connection = store._connection  # type: ignore[attr-defined]
    ((size,),) = connection.execute("SELECT sum(octet_length(bodies)) FROM segment").fetchall()
    return int(size)
