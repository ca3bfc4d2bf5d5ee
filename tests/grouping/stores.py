"""The stores that programs run on."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory


class Stores(Protocol):
    """Makes a fresh store for each run."""

    def make(self) -> Store:
        """An empty one; the one before is closed."""

    def findings(self) -> list[str]:
        """What is wrong with the last one, which is closed."""


class MemoryStores:
    """Stores in memory."""

    def make(self) -> Store:
        """An empty one."""
        return MemoryStore()

    def findings(self) -> list[str]:
        """Nothing is left to look at."""
        return []


class SqliteStores:
    """Stores on disk, each a copy of an empty one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty = folder / "empty"
        SqliteStore(self._empty).close()

    def make(self) -> Store:
        """An empty one."""
        data = self._folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(self._empty, data)
        return SqliteStore(data)

    def findings(self) -> list[str]:
        """What the checker says about the files."""
        return verify_directory(self._folder / "data")


def quick_folder() -> Path:
    """A new folder, in memory where the system has that: no program waits for a disk."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="grouping-", dir=shared if shared.is_dir() else None))
