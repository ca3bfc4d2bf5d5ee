"""Backups of a store in use, and stores out of backups: each is what one commit left, wholly."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import BackupFailed, Post, Retire
from amqp_broker.persistence.backup import MANIFEST_NAME, back_up_closed, read_manifest, sum_of
from amqp_broker.persistence.body_files import body_file_names
from amqp_broker.persistence.errors import StoreCorrupt, StoreInUse, StoreTooNew
from amqp_broker.persistence.fault_points import arm, disarm
from amqp_broker.persistence.questions import StoreId
from amqp_broker.persistence.restoring import restore
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, offsets
from tests.persistence.stores import assert_whole, backed_up, edit, killed_at, small_store


def filled(directory: Path, count: int = 9000) -> tuple[SqliteStore, int]:
    """A store of some megabytes, and its queue."""
    store = small_store(directory)
    queue_id = new_queue(store)
    for first in range(0, count, 1000):
        do(store, Post(queue_id, messages(first, 1000, size=1000)))
    return store, queue_id


def test_backup_while_groups_are_committed(tmp_path: Path) -> None:
    """The store works on between the steps of a backup. The copy is the state that the last commit before the
    last step left, and opens as a store.
    """
    store, queue_id = filled(tmp_path / "data")
    steps: list[list[int]] = []

    def work() -> None:
        first = 9000 + len(steps)
        do(store, Post(queue_id, messages(first, 1)), Retire(queue_id, first - 9000, first - 9000))
        if len(steps) == 1:
            store.apply([[Post(queue_id, messages(first + 1, 500, size=1000))]])
            store.abandon()
        if len(steps) == 2:
            store.idle(0.0)
        steps.append(offsets(store, queue_id))

    backed_up(store, tmp_path / "copy", work)
    assert len(steps) > 3
    do(store, Post(queue_id, messages(9000 + len(steps), 1)))
    store.close()
    assert verify_directory(tmp_path / "copy") == []
    restored = small_store(tmp_path / "copy")
    assert offsets(restored, queue_id) == steps[-1]


def test_backup_while_the_file_shrinks(tmp_path: Path) -> None:
    """Room that is given back, and what is compacted, between two steps leave a whole copy."""
    store, queue_id = filled(tmp_path / "data")
    do(store, Retire(queue_id, 0, 7998))
    backed_up(store, tmp_path / "copy", lambda: store.idle(0.0))
    here = offsets(store, queue_id)
    store.close()
    assert verify_directory(tmp_path / "copy") == []
    assert offsets(small_store(tmp_path / "copy"), queue_id) == here


def test_backup_never_overwrites(tmp_path: Path) -> None:
    """A backup leaves a file alone that stands where it would write."""
    store = small_store(tmp_path / "data")
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(FileExistsError):
        store.begin_backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


class Interrupted(Exception):
    pass


def _interrupt() -> None:
    raise Interrupted


def test_interrupted_backup_leaves_nothing_of_that_name(tmp_path: Path) -> None:
    """Only a complete copy gets the name. The next attempt clears up."""
    store, queue_id = filled(tmp_path / "data", 1000)
    for point in ("backup.before", "backup.step", "backup.before_rename"):
        arm(point, _interrupt)
        with pytest.raises(Interrupted):
            backed_up(store, tmp_path / "copy")
        disarm()
        assert not (tmp_path / "copy").exists()
    backed_up(store, tmp_path / "copy")
    assert verify_directory(tmp_path / "copy") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
    do(store, Post(queue_id, messages(1000, 1)))


@pytest.mark.parametrize("end", [SqliteStore.end_backup, SqliteStore.close])
def test_a_backup_that_is_given_up_leaves_nothing(end: Callable[[SqliteStore], None], tmp_path: Path) -> None:
    """Between two steps, by whoever began it or by the end of the store."""
    store, _ = filled(tmp_path / "data")
    store.begin_backup(tmp_path / "copy")
    assert store.backup_step()
    with pytest.raises(BackupFailed, match="another one is under way"):
        store.begin_backup(tmp_path / "other")
    end(store)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    if end is SqliteStore.end_backup:
        backed_up(store, tmp_path / "copy")


def test_a_copy_that_cannot_be_written_is_no_failure_of_the_store(tmp_path: Path) -> None:
    """The backup fails; the store goes on."""
    store, queue_id = filled(tmp_path / "data", 1000)
    with pytest.raises(BackupFailed, match="could not be made"):
        store.begin_backup(tmp_path / "nowhere" / "copy")
    backup = store.begin_backup(tmp_path / "copy")
    while store.backup_step():
        pass
    (backup.partial / DATABASE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(BackupFailed):
        backup.finish(1)
    assert not backup.partial.exists()
    do(store, Post(queue_id, messages(1000, 1)))


# Restoring


def test_a_restored_store_has_all_of_it_and_another_id(tmp_path: Path) -> None:
    """Its offsets are given again, so readers have to see that it is another one; unless nothing was stored
    after the backup.
    """
    store, queue_id = filled(tmp_path / "data", 1000)
    own, here = store.ask(StoreId()), offsets(store, queue_id)
    store.close()
    manifest = back_up_closed(tmp_path / "data", tmp_path / "copy", 1_700_000_000_000)
    assert (manifest.store_id, manifest.made_at_ms) == (own, 1_700_000_000_000)
    assert read_manifest(tmp_path / "copy") == manifest
    for name, new_id, expected in (("moved", None, own), ("restored", "another", "another")):
        restore(tmp_path / "copy", tmp_path / name, new_id)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [LOCK_NAME, DATABASE_NAME]
        assert verify_directory(tmp_path / name) == []
        restored = small_store(tmp_path / name)
        assert restored.ask(StoreId()) == expected and offsets(restored, queue_id) == here


def test_a_store_is_never_restored_over(tmp_path: Path) -> None:
    """Neither one that is open nor one that is closed."""
    store, _ = filled(tmp_path / "data", 1000)
    backed_up(store, tmp_path / "copy")
    with pytest.raises(StoreInUse):
        restore(tmp_path / "copy", tmp_path / "data", None)
    store.close()
    before = (tmp_path / "data" / DATABASE_NAME).read_bytes()
    with pytest.raises(FileExistsError, match="holds a store already"):
        restore(tmp_path / "copy", tmp_path / "data", None)
    assert (tmp_path / "data" / DATABASE_NAME).read_bytes() == before


def test_a_damaged_backup_is_told(tmp_path: Path) -> None:
    """A flipped bit, a file that is gone, a manifest that is none, a newer schema: no store is made."""
    store, _ = filled(tmp_path / "data", 1000)
    store.close()
    back_up_closed(tmp_path / "data", tmp_path / "copy", 1)
    database, manifest = tmp_path / "copy" / DATABASE_NAME, tmp_path / "copy" / MANIFEST_NAME
    sound, told = database.read_bytes(), manifest.read_text()

    def refused(error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            restore(tmp_path / "copy", tmp_path / "restored", "new")
        assert not (tmp_path / "restored" / DATABASE_NAME).exists()

    database.write_bytes(sound[:5000] + bytes([sound[5000] ^ 1]) + sound[5001:])
    refused(StoreCorrupt, "SHA-256")
    database.unlink()
    refused(StoreCorrupt, "it is gone")
    database.write_bytes(sound)
    elsewhere, unknown = told.replace(DATABASE_NAME, f"../{DATABASE_NAME}"), told.replace("sha256", "md5")
    for wrong in ("{", "[]", elsewhere, unknown):
        manifest.write_text(wrong)
        refused(StoreCorrupt, MANIFEST_NAME)
    manifest.write_text(json.dumps(json.loads(told) | {"schema": 99}))
    refused(StoreTooNew, "99")
    manifest.unlink()
    refused(FileNotFoundError, "no backup")
    manifest.write_text(told)
    restore(tmp_path / "copy", tmp_path / "restored", "new")


RESTORE = """
import sys
from amqp_broker.persistence.restoring import restore
restore(sys.argv[1] + "/copy", sys.argv[1] + "/restored", "new")
"""


@pytest.mark.parametrize("point", ["before", "copied", "before_rename", "after"])
def test_a_restore_that_is_killed_can_be_done_again(point: str, tmp_path: Path) -> None:
    """Before its end there is no store; after it the whole one."""
    store, queue_id = filled(tmp_path / "data", 1000)
    here = offsets(store, queue_id)
    store.close()
    back_up_closed(tmp_path / "data", tmp_path / "copy", 1)
    killed_at(f"restore.{point}", 1, RESTORE, tmp_path)
    assert (tmp_path / "restored" / DATABASE_NAME).exists() == (point == "after")
    if point != "after":
        restore(tmp_path / "copy", tmp_path / "restored", "new")
    assert edit(tmp_path / "restored", "SELECT value FROM meta WHERE key='store_id'") == [("new",)]
    assert verify_directory(tmp_path / "restored") == []
    restored = small_store(tmp_path / "restored")
    assert offsets(restored, queue_id) == here
    do_idle_work(restored, 0.0)


def with_large_bodies(directory: Path) -> tuple[SqliteStore, int]:
    """A store with a file beside the database, and its queue."""
    store = small_store(directory)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 4, size=40_000)))
    return store, queue_id


def test_what_a_former_backup_has_is_linked(tmp_path: Path) -> None:
    """A file of large bodies is written once for two backups, each of which is whole without the other."""
    store, queue_id = with_large_bodies(tmp_path / "data")
    (name,) = body_file_names(tmp_path / "data")
    backed_up(store, tmp_path / "monday")
    do(store, Post(queue_id, messages(4, 1)))
    manifest = backed_up(store, tmp_path / "tuesday")
    assert (tmp_path / "tuesday" / name).samefile(tmp_path / "monday" / name)
    assert not (tmp_path / "tuesday" / name).samefile(tmp_path / "data" / name)
    assert manifest.files[name] == sum_of(tmp_path / "data" / name)
    shutil.rmtree(tmp_path / "monday")
    restore(tmp_path / "tuesday", tmp_path / "restored", new_id=None)
    assert offsets(small_store(tmp_path / "restored"), queue_id) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["changed", "damaged", "gone", "no links", "another store", "writable"])
def test_what_a_former_backup_has_not_is_copied(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what changed since, nor what the disk has damaged or others may change, nor where the file
    system has no links.
    """
    store, queue_id = with_large_bodies(tmp_path / "data")
    (name,) = body_file_names(tmp_path / "data")
    backed_up(store, tmp_path / "monday")
    former = tmp_path / "monday" / name
    if how == "changed":
        do(store, Post(queue_id, messages(4, 4, size=40_000)))
    if how == "damaged":
        former.write_bytes(b"?" + former.read_bytes()[1:])
    if how == "gone":
        former.unlink()
    if how == "writable":
        former.chmod(0o666)
    if how == "no links":
        monkeypatch.setattr(os, "link", refused)
    if how == "another store":
        written = former.with_name(MANIFEST_NAME)
        written.write_text(json.dumps(json.loads(written.read_text()) | {"store_id": "another"}))
    backed_up(store, tmp_path / "tuesday")
    assert not former.exists() or not (tmp_path / "tuesday" / name).samefile(former)
    restore(tmp_path / "tuesday", tmp_path / "restored", new_id=None)
    restored = small_store(tmp_path / "restored")
    assert offsets(restored, queue_id) == offsets(store, queue_id)
    assert_whole(restored)


def refused(*_: object) -> None:
    """A file system without hard links."""
    raise PermissionError(errno.EPERM, "Operation not permitted")
