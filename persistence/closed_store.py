"""The store of a data directory that no broker uses, for what an administrator changes in it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from amqp_broker.persistence.data_directory import FileLock, sync_names
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.schema import bring_up_to_date, schema_version
from amqp_broker.persistence.sqlite_library import Pragmas, open_connection
from amqp_broker.persistence.sqlite_store import (
    CACHE_BYTES,
    CHECKPOINT_BYTES,
    DATABASE_NAME,
    LOCK_NAME,
    PAGE_SIZE_BYTES,
    WHAT_TO_DO,
)
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.write_ahead_log import lost_commits, make_durable

PRAGMAS = Pragmas(PAGE_SIZE_BYTES, CACHE_BYTES, CHECKPOINT_BYTES)


class ClosedStore:
    """The store of a data directory that no broker uses, for an administrator's changes."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Raises FileNotFoundError, StoreInUse, StoreTooNew, StoreCorrupt (also for a damaged log)."""
        self.path = os.fspath(Path(directory) / DATABASE_NAME)
        if not os.path.isfile(self.path):
            raise FileNotFoundError(f"{directory} holds no store: there is no {DATABASE_NAME}")
        with ExitStack() as opened:
            self._lock = FileLock(str(Path(directory) / LOCK_NAME))
            opened.callback(self._lock.release)
            damage = lost_commits(self.path)
            if damage is not None:
                raise StoreCorrupt(f"{damage}. {WHAT_TO_DO}")
            self.connection = open_connection(self.path, PRAGMAS)
            opened.callback(self.connection.close)
            self.unit = UnitOfWork(self.connection)
            schema_version(self.unit)
            make_durable(self.unit, self.path)
            bring_up_to_date(self.connection, self.unit)
            sync_names(Path(directory))
            opened.pop_all()

    def close(self) -> None:
        """Close the store: it is whole again, and free for a broker."""
        try:
            self.connection.close()
        finally:
            self._lock.release()
