"""`amqp-broker restore BACKUP DIR`: a data directory out of a backup, whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

from amqp_broker.persistence.backup import MANIFEST_NAME, Manifest, read_manifest, sum_of
from amqp_broker.persistence.body_files import body_file_names
from amqp_broker.persistence.data_directory import FileLock, make_directory, sync_path
from amqp_broker.persistence.errors import StoreCorrupt, StoreTooNew
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.schema import SCHEMA_VERSION
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, connect, raise_translated
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX

RESTORING_SUFFIX = ".restoring"


def restore(
    backup: str | os.PathLike[str], directory: str | os.PathLike[str], new_id: str | None
) -> Manifest:
    """Make a store of a backup, in a data directory that holds none. `new_id` is its id from then on: its
    offsets stand for other messages than those that were stored after the backup. None: it keeps its own.

    The database gets its name last: what was cut off before can be done again. Raises FileNotFoundError,
    FileExistsError (there is a store), StoreCorrupt (the backup is damaged), StoreTooNew, StoreInUse,
    StoreFailed, OSError.
    """
    source, directory = Path(backup), Path(directory)
    manifest = read_manifest(source)
    if manifest.schema > SCHEMA_VERSION:
        raise StoreTooNew(
            f"the backup has schema version {manifest.schema}, this broker knows {SCHEMA_VERSION}"
        )
    make_directory(directory)
    lock = FileLock(str(directory / LOCK_NAME))
    try:
        for name in (DATABASE_NAME, DATABASE_NAME + LOG_SUFFIX):
            if (directory / name).exists():
                raise FileExistsError(f"{directory} holds a store already: restore to another directory")
        for name in body_file_names(directory):
            if name not in manifest.files or sum_of(directory / name) != manifest.files[name]:
                raise FileExistsError(
                    f"{directory / name} is of another store, or of another backup that was not wholly "
                    "restored: move it away, or restore to another directory"
                )
        fault_point("restore.before")
        for name in sorted(manifest.files, key=lambda name: name == DATABASE_NAME):
            _copy(manifest, source, directory, name, new_id)
        fault_point("restore.before_rename")
        others = [directory / name for name in manifest.files if name != DATABASE_NAME]
        for path in others:
            os.rename(path.with_name(path.name + RESTORING_SUFFIX), path)
        for parent in {path.parent for path in others}:  # once, however many large messages there are
            sync_path(parent)
        os.rename(directory / (DATABASE_NAME + RESTORING_SUFFIX), directory / DATABASE_NAME)
        sync_path(directory)
        fault_point("restore.after")
    finally:
        lock.release()
    return manifest


def _copy(manifest: Manifest, source: Path, directory: Path, name: str, new_id: str | None) -> None:
    """Copy a file, compare it with what the backup says of it, and sync it."""
    path = directory / (name + RESTORING_SUFFIX)
    if name == DATABASE_NAME:  # of a time before: SQLite would take it for the log of this one
        path.with_name(path.name + LOG_SUFFIX).unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        shutil.copyfile(source / name, path)
    except FileNotFoundError:
        raise StoreCorrupt(f"the backup is damaged: {MANIFEST_NAME} names {name}, but it is gone") from None
    os.chmod(path, 0o600)
    fault_point("restore.copied")
    found = sum_of(path)
    if found != manifest.files[name]:
        expected = "{} bytes with the SHA-256 {}".format(*manifest.files[name])
        os.unlink(path)
        raise StoreCorrupt(
            f"the backup is damaged: {name} has {found[0]} bytes with the SHA-256 {found[1]}, "
            f"expected {expected}"
        )
    if name == DATABASE_NAME and new_id is not None:
        _rename_store(path, new_id)
    sync_path(path)


def _rename_store(path: Path, new_id: str) -> None:
    try:
        with closing(connect(str(path))) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            connection.execute("UPDATE meta SET value=? WHERE key='store_id'", (new_id,)).fetchall()
    except DATABASE_ERRORS as error:
        raise_translated(error)
