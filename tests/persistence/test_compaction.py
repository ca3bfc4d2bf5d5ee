"""The file of a store becomes smaller: by a command, wholly, and in the idle time of a store, in steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.persistence import Post, Retire, StoreFull, compaction, shrinking
from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE
from amqp_broker.persistence.sqlite import SqliteStore, StoreInUse, compact, verify_directory
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, node_of, offsets
from tests.persistence.stores import IN_ROWS, MIB, edit, run_child, small_store

KEPT = list(range(100, 110))
COMPACT = """
import sys
from amqp_broker.persistence import compaction
compaction.COMMAND_PAGES, compaction.STEP_INSTRUCTIONS = 64, 10
compaction.compact(sys.argv[1])
"""


def fill(directory: Path, size: int = 30_000) -> int:
    """Fill a store, and empty most of it again."""
    store = small_store(directory, synchronous="OFF", body_files=IN_ROWS)
    queue_id = new_queue(store)
    for number in range(22):
        do(store, Post(queue_id, messages(5 * number, 5, size=size)))
    do(store, Retire(queue_id, 0, 99))
    do_idle_work(store, 0.0)
    store.close()
    return queue_id


def as_before(directory: Path) -> None:
    """Make the file one of a version that could not move pages."""
    connection = connect(str(directory / DATABASE_NAME))
    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    connection.execute("PRAGMA auto_vacuum=NONE").fetchall()
    connection.execute("VACUUM").fetchall()
    connection.execute("CREATE TABLE ballast AS SELECT randomblob(3000000)").fetchall()
    connection.execute("DROP TABLE ballast").fetchall()
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.close()


def is_whole(directory: Path, queue_id: int) -> None:
    """The file verifies, and what was kept is delivered."""
    assert verify_directory(directory) == []
    store = small_store(directory)
    assert offsets(store, queue_id) == KEPT
    at = node_of(store, queue_id).next_offset
    do(store, Post(queue_id, messages(at, 1)), Retire(queue_id, at, at))
    store.close()


@pytest.mark.parametrize("former", [False, True])
def test_a_closed_store_gives_its_free_room_back(tmp_path: Path, former: bool) -> None:
    """The command shrinks a closed file. One of an older version gets the new format."""
    queue_id = fill(tmp_path)
    if former:
        as_before(tmp_path)
        assert edit(tmp_path, "PRAGMA auto_vacuum") == [(0,)]
    before, after = compact(tmp_path)
    assert before > 3 * MIB and after < MIB
    assert (tmp_path / DATABASE_NAME).stat().st_size == after
    assert (tmp_path / DATABASE_NAME).stat().st_mode & 0o777 == 0o600
    assert edit(tmp_path, "PRAGMA auto_vacuum") == [(2,)]
    assert edit(tmp_path, "PRAGMA freelist_count") == [(0,)]
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE_NAME, "store.lock"}
    is_whole(tmp_path, queue_id)
    assert compact(tmp_path) == (after, after)


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("point", ["compact.before", "compact.step", "compact.step:3", "commit.after:2"])
def test_a_kill_leaves_the_store_whole(tmp_path: Path, point: str, former: bool) -> None:
    """A kill in a step, between two, or before the copy has its name. The next command finishes."""
    queue_id = fill(tmp_path)
    if former:
        as_before(tmp_path)
    child = run_child(COMPACT, tmp_path, **{ENVIRONMENT_VARIABLE: point})
    assert child.returncode == -9 or (former and point.startswith("commit")), child.stderr
    is_whole(tmp_path, queue_id)
    assert compact(tmp_path)[1] < MIB
    is_whole(tmp_path, queue_id)
    assert not (tmp_path / (DATABASE_NAME + compaction.COPY_SUFFIX)).exists()


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    """The command refuses a store in use, whose broker compacts it when it is idle."""
    queue_id = fill(tmp_path)
    store = small_store(tmp_path)
    with pytest.raises(StoreInUse):
        compact(tmp_path)
    store.close()
    is_whole(tmp_path, queue_id)


def test_without_room_for_a_copy_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says how much room is free."""
    queue_id = fill(tmp_path)
    as_before(tmp_path)
    monkeypatch.setattr(compaction, "free_bytes_of", lambda _: 1_000)
    with pytest.raises(StoreFull, match="1000 are free"):
        compact(tmp_path)
    is_whole(tmp_path, queue_id)


def test_an_idle_store_gives_room_back_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most of the file is free, each step moves a few pages. What is posted meanwhile is there."""
    queue_id = fill(tmp_path)
    monkeypatch.setattr(shrinking, "SHRINK_BYTES", 256 * 1024)
    monkeypatch.setattr(shrinking, "IDLE_PAGES", 16)
    size = (tmp_path / DATABASE_NAME).stat().st_size
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == KEPT
    pages = [page_count(store)]
    more = True
    while more:
        more = store.idle(0.0)
        pages.append(page_count(store))
        do(store, Post(queue_id, messages(109 + len(pages), 1)))
        do(store, Retire(queue_id, 109 + len(pages), 109 + len(pages)))
    steps = [before - after for before, after in zip(pages, pages[1:], strict=False)]
    assert max(steps) <= 16 and sum(step > 0 for step in steps) > 10
    assert offsets(store, queue_id) == KEPT
    store.close()
    assert (tmp_path / DATABASE_NAME).stat().st_size < size // 4
    assert verify_directory(tmp_path) == []


def test_a_store_that_is_mostly_full_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few pages are free they are left, since they are wanted again."""
    store = small_store(tmp_path, synchronous="OFF")
    queue_id = new_queue(store)
    for number in range(10):
        do(store, Post(queue_id, messages(5 * number, 5, size=30_000)))
    do(store, Retire(queue_id, 0, 19))
    monkeypatch.setattr(shrinking, "SHRINK_BYTES", 0)
    do_idle_work(store, 0.0)
    before = page_count(store)
    assert not store.idle(1.0) and page_count(store) == before


def page_count(store: SqliteStore) -> int:
    """The pages of the file, as the last commit left it."""
    return int(store._unit.query("PRAGMA page_count")[0][0])
