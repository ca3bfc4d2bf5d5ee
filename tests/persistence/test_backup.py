"""Backups of a store in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.persistence import Post, Retire
from amqp_broker.persistence.fault_points import arm, disarm
from amqp_broker.persistence.sqlite import verify_file
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, offsets
from tests.persistence.stores import small_store


def test_backup_while_groups_are_committed(tmp_path: Path) -> None:
    """The store works on between the steps of a backup. The copy is one sound state and opens as a store."""
    store = small_store(tmp_path / "data")
    queue_id = new_queue(store)
    for first in range(0, 9000, 1000):
        do(store, Post(queue_id, messages(first, 1000, size=1000)))
    steps: list[int] = []

    def work() -> None:
        first = 9000 + len(steps)
        steps.append(first)
        do(store, Post(queue_id, messages(first, 1)), Retire(queue_id, first - 9000, first - 9000))
        if len(steps) == 2:
            store.idle(0.0)

    store.backup(tmp_path / "copy.sqlite3", work)
    assert len(steps) > 3
    here = offsets(store, queue_id)
    store.close()
    assert verify_file(tmp_path / "copy.sqlite3") == []
    (tmp_path / "restored").mkdir()
    (tmp_path / "copy.sqlite3").rename(tmp_path / "restored" / DATABASE_NAME)
    restored = small_store(tmp_path / "restored")
    there = offsets(restored, queue_id)
    restored.close()
    assert there == list(range(there[0], there[-1] + 1))
    assert here[0] >= there[0] and set(range(len(steps), 9000)) <= set(there)


def test_backup_never_overwrites(tmp_path: Path) -> None:
    """A backup leaves a file alone that stands where it would write."""
    store = small_store(tmp_path / "data")
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(FileExistsError):
        store.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_interrupted_backup_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    """Only a complete copy gets the name. The next attempt clears up."""

    class Interrupted(Exception):
        pass

    def interrupt() -> None:
        raise Interrupted

    store = small_store(tmp_path / "data")
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 1000, size=1000)))
    for point in ("backup.before", "backup.step", "backup.before_rename"):
        arm(point, interrupt)
        with pytest.raises(Interrupted):
            store.backup(tmp_path / "copy")
        disarm()
        assert not (tmp_path / "copy").exists()
    store.backup(tmp_path / "copy")
    assert verify_file(tmp_path / "copy") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
    do(store, Post(queue_id, messages(1000, 1)))
