"""`amqp-broker compact DIR`: a closed store gives all the room back that it does not need.

Large bodies in files of which little is wanted (body_files.py) go to the database first. A file whose pages
can be moved (shrinking.py) is made smaller unit by unit, which needs next to no room. A file of an older
version is copied once, beside itself, and is one of the new kind afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from amqp_broker.persistence.body_files import BODY_FILE_SIZES, PREFIX, BodyFiles
from amqp_broker.persistence.data_directory import restrict_files, sync_path
from amqp_broker.persistence.errors import StoreFull
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.free_space import free_bytes_of
from amqp_broker.persistence.shrinking import give_back, is_incremental, number_of
from amqp_broker.persistence.sqlite_library import (
    DATABASE_ERRORS,
    Connection,
    connect,
    raise_translated,
    verify,
)
from amqp_broker.persistence.store_file import StoreFile, closed_store

COMMAND_PAGES: Final = 512  # in one unit of the command, with a checkpoint behind each
STEP_INSTRUCTIONS: Final = 100  # of SQLite's machine between two chances to stop a copy
COPY_SUFFIX: Final = ".compact"


def compact(directory: str | os.PathLike[str]) -> tuple[int, int]:
    """Give all of the room back that the closed store of a data directory does not need: its bytes before and
    after. Whenever it is cut off, the store is whole.

    Raises FileNotFoundError, StoreInUse, StoreTooNew, StoreCorrupt, StoreFailed, StoreFull (there is no room
    for the copy of a file of an older version: nothing happened).
    """
    with closed_store(directory) as store:
        path = Path(store.path)
        copy = path.with_name(path.name + COPY_SUFFIX)
        before = _size_of(path)
        copy.unlink(missing_ok=True)  # of a time before, that was cut off
        fault_point("compact.before")
        _tidy_files(store, path.parent)
        if is_incremental(store.unit):
            while give_back(store.unit, COMMAND_PAGES):
                store.unit.query("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            _copy(store, copy)
            store.connection.close()  # the log is gone with it, durably, before another file has its name
            sync_path(path.parent)
            os.rename(copy, path)
            sync_path(path.parent)
        fault_point("compact.after")
    return before, _size_of(path)


def _size_of(path: Path) -> int:
    """Of the database and the files with bodies."""
    files = path.parent.glob(f"{PREFIX}*")
    return path.stat().st_size + sum([file.stat().st_size for file in files])


def _tidy_files(store: StoreFile, directory: Path) -> None:
    """What is in files of which little is wanted goes to the database."""
    files = BodyFiles(directory, store.unit, BODY_FILE_SIZES)
    files.recover()
    while files.step() is not None:
        store.unit.query("PRAGMA wal_checkpoint(TRUNCATE)")
    files.close()


def _copy(store: StoreFile, copy: Path) -> None:
    live = number_of(store.unit, "page_count") - number_of(store.unit, "freelist_count")
    wanted = live * number_of(store.unit, "page_size")
    free = free_bytes_of(str(copy.parent))
    if free < wanted + wanted // 16:
        raise StoreFull(f"the copy needs {wanted} bytes beside the store, and {free} are free")
    connection = store.connection
    connection.set_progress_handler(_between, STEP_INSTRUCTIONS)
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL").fetchall()
        connection.execute("VACUUM INTO ?", (str(copy),)).fetchall()
        restrict_files(str(copy))
        _check(copy)
    except DATABASE_ERRORS as error:
        raise_translated(error)
    finally:
        connection.set_progress_handler(None, 0)
    sync_path(copy)


def _between() -> int:
    fault_point("compact.step")
    return 0


def _check(copy: Path) -> None:
    target: Connection = connect(str(copy))
    try:
        verify(target)
    finally:
        target.close()
