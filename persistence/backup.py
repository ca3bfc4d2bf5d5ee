"""A copy of a store while it is in use, by SQLite's backup API: copying would drop SQLite's locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from amqp_broker.persistence.data_directory import sync_path
from amqp_broker.persistence.errors import StoreFailed
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, connect, raise_translated

BACKUP_STEP_PAGES: Final = 256  # 2 MiB of 8 KiB pages between two chances for the writer


def back_up(connection: Connection, destination: str, between_steps: Callable[[], None]) -> None:
    """Copy the database to a new file `destination`, which appears complete and synced, or not at all.

    `between_steps` runs after each piece; what the connection writes there is in the copy too. Raises
    FileExistsError, StoreFull, StoreFailed.
    """
    if os.path.exists(destination):
        raise FileExistsError(f"{destination} exists; a backup never overwrites")
    partial = destination + ".partial"
    if os.path.exists(partial):
        os.unlink(partial)  # of a backup that was interrupted
    fault_point("backup.before")

    def progress(status: int, remaining: int, total: int) -> None:
        fault_point("backup.step")
        between_steps()

    target: Connection | None = None
    try:
        target = connect(partial)
        os.chmod(partial, 0o600)
        connection.backup(target, pages=BACKUP_STEP_PAGES, progress=progress, sleep=0)
        verify(target)
    except DATABASE_ERRORS as error:
        raise_translated(error)
    finally:
        if target is not None:
            target.close()
    fault_point("backup.before_rename")
    sync_path(partial)
    os.rename(partial, destination)
    sync_path(os.path.dirname(os.path.abspath(destination)))
    fault_point("backup.after")


def verify(target: Connection) -> None:
    """Is a copy whole? Raises StoreFailed."""
    rows = target.execute("PRAGMA quick_check").fetchall()
    if rows != [("ok",)]:
        raise StoreFailed(f"the copy is damaged: {rows[:3]!r}")
