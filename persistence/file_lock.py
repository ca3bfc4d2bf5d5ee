"""One broker for each data directory: an flock on a file of its own, for the life of the store.

The database file itself is opened by nothing but SQLite: closing any other descriptor of it would drop
SQLite's own POSIX locks.
"""

from __future__ import annotations

import fcntl
import os

from amqp_broker.persistence.errors import StoreInUse


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
