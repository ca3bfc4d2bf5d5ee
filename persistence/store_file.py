"""The database file of a data directory, opened: for the broker that uses it, or for an administrator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from amqp_broker.persistence.data_directory import FileLock, restrict_files, sync_names
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.gathering import gather_all
from amqp_broker.persistence.migrations import bring_up_to_date
from amqp_broker.persistence.schema import SCHEMA_VERSION, schema_version
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Pragmas, open_connection, raise_translated
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.write_ahead_log import lost_commits, make_durable

DATABASE_NAME: Final = "store.sqlite3"
LOCK_NAME: Final = "store.lock"

PAGE_SIZE_BYTES: Final = 8192  # for new files; suits bodies of 10 KiB and costs little at 100 B
CACHE_BYTES: Final = 16 * 1024 * 1024  # of SQLite's pages
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024  # of WAL; longer ones make the restart and the checkpoint longer
PRAGMAS: Final = Pragmas(PAGE_SIZE_BYTES, CACHE_BYTES, CHECKPOINT_BYTES)

WHAT_TO_DO: Final = (
    "What was acknowledged would be lost: restore the file from a good copy of the disk, or restore a "
    "backup; or go on without it, deliberately: amqp-broker check DIR --give-up-log"
)


class StoreFile:
    """The file, locked for this process, with the tables of this version, and all that was committed."""

    def __init__(self, directory: Path, pragmas: Pragmas = PRAGMAS) -> None:
        """Raises StoreInUse, StoreTooNew, StoreCorrupt (also for a damaged log), StoreFailed, StoreFull."""
        self.path = os.fspath(directory / DATABASE_NAME)
        with ExitStack() as opened:  # whatever fails, nothing stays open or locked
            self._lock = FileLock(str(directory / LOCK_NAME))
            opened.callback(self._lock.release)
            damage = lost_commits(self.path)
            if damage is not None:
                raise StoreCorrupt(f"{damage}. {WHAT_TO_DO}")
            self.connection = open_connection(self.path, pragmas)
            opened.callback(self.connection.close)
            self.unit = UnitOfWork(self.connection)
            schema_version(self.unit)  # what is not ours stays as it is
            make_durable(self.unit, self.path)
            if bring_up_to_date(self.connection, self.unit):
                restrict_files(self.path)
            sync_names(directory)
            opened.pop_all()

    def close(self) -> None:
        """Close the file: it is whole, and free for others."""
        try:
            self.connection.close()
        except DATABASE_ERRORS as error:
            raise_translated(error)
        finally:
            self._lock.release()


@contextmanager
def closed_store(directory: str | os.PathLike[str]) -> Iterator[StoreFile]:
    """The file of a store that no broker uses, for what an administrator changes in it.

    Raises FileNotFoundError if there is none, and as `StoreFile`.
    """
    if not (Path(directory) / DATABASE_NAME).is_file():
        raise FileNotFoundError(f"{directory} holds no store: there is no {DATABASE_NAME}")
    store = StoreFile(Path(directory))
    try:
        gather_all(store.unit, SCHEMA_VERSION)
        yield store
    finally:
        store.close()
