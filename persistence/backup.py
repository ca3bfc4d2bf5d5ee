"""A copy of a store while it is in use, by SQLite's backup API: copying would drop SQLite's locks.

It is one file: large bodies, which lie beside the database, are in the rows of their segments there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from amqp_broker.persistence.body_files import MOVE_TO_ROW, read_bodies
from amqp_broker.persistence.data_directory import sync_path
from amqp_broker.persistence.errors import StoreFailed
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, connect, raise_translated

_SELECT_PLACE: Final = "SELECT file, at, size FROM segment WHERE id=?"
BACKUP_STEP_PAGES: Final = 256  # 2 MiB of 8 KiB pages between two chances for the writer


def back_up(
    connection: Connection, directory: Path, destination: str, between_steps: Callable[[], None]
) -> None:
    """Copy the database of a data directory to a new file `destination`, which appears complete and synced,
    or not at all.

    `between_steps` runs after each piece; what the connection writes there while tables are copied is in the
    copy too. No file with bodies may go meanwhile. Raises FileExistsError, StoreFull, StoreFailed.
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
        _take_bodies(target, directory, between_steps)
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


def _take_bodies(target: Connection, directory: Path, between_steps: Callable[[], None]) -> None:
    """Bodies that cannot be read are empty in the copy, and do not match their checksums."""
    for (segment_id,) in target.execute("SELECT id FROM segment WHERE file>0").fetchall():
        (place,) = target.execute(_SELECT_PLACE, (segment_id,)).fetchall()
        target.execute(MOVE_TO_ROW, (read_bodies(directory, *place) or b"", segment_id)).fetchall()
        fault_point("backup.step")
        between_steps()


def verify(target: Connection) -> None:
    """Is a copy whole? Raises StoreFailed."""
    rows = target.execute("PRAGMA quick_check").fetchall()
    if rows != [("ok",)]:
        raise StoreFailed(f"the copy is damaged: {rows[:3]!r}")
