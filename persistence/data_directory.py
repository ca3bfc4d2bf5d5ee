"""The data directory of a store: made, restricted to this user, and synced so that a power cut keeps it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_directory(directory: Path) -> None:
    """Make it, for this user only, so that it is still there after a power cut. One that exists is left as it
    is.
    """
    if directory.is_dir():
        return
    make_parent(directory.absolute().parent)
    directory.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    sync_directory(directory.absolute().parent)


def make_parent(directory: Path) -> None:
    """Make the folders above a data directory, with the usual mode."""
    if not directory.is_dir():
        make_parent(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_names(directory: Path) -> None:
    """Have the names of the files, of the directory and of the folders above it survive a power cut: a
    process that ended between making one and syncing it has left them. Those of others are not ours to sync.
    """
    directory = directory.absolute()
    sync_directory(directory)
    for above in directory.parents:
        if not os.access(above, os.R_OK | os.W_OK | os.X_OK):
            break
        sync_directory(above)


def sync_directory(directory: Path) -> None:
    """Make new and removed names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict_files(database: str) -> None:
    """For this user only; SQLite gives the WAL the mode of the database from then on. Nothing is opened."""
    for path in (database, database + "-wal"):
        if os.path.exists(path):
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
