"""The data directory of a store: made, restricted to this user, synced for a power cut, and locked.

The lock, one broker for each directory, is an flock on a file of its own, for the life of the store. The
database file itself is opened by nothing but SQLite: closing any other descriptor of it would drop SQLite's
own POSIX locks.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from amqp_broker.persistence.errors import StoreInUse


def make_directory(directory: Path) -> None:
    """Make it, for this user only, so that it is still there after a power cut. One that exists is left as it
    is.
    """
    if directory.is_dir():
        return
    make_parent(directory.absolute().parent)
    directory.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    sync_path(directory.absolute().parent)


def make_parent(directory: Path) -> None:
    """Make the folders above a data directory, with the usual mode."""
    if not directory.is_dir():
        make_parent(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_path(directory.parent)


def sync_names(directory: Path) -> None:
    """Have the names of the files, of the directory and of the folders above it survive a power cut: a
    process that ended between making one and syncing it has left them. Those of others are not ours to sync.
    """
    directory = directory.absolute()
    sync_path(directory)
    for above in directory.parents:
        if not os.access(above, os.R_OK | os.W_OK | os.X_OK):
            break
        sync_path(above)


def sync_path(path: str | Path) -> None:
    """Have a file, or new and removed names in a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict_files(database: str) -> None:
    """For this user only; SQLite gives the WAL the mode of the database from then on. Nothing is opened."""
    for path in (database, database + "-wal"):
        if os.path.exists(path):
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)


class FileLock:
    """Hold `path` exclusively; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: str) -> None:
        """Raises StoreInUse if it is held, by this process or another."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode("ascii"), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            by = f"process {holder}" if holder.isdigit() else "another broker"
            raise StoreInUse(f"{os.path.dirname(path)} is in use by {by} ({path} is locked)") from None
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let go; a second call is harmless. The file stays, so that nobody locks an unlinked one."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
