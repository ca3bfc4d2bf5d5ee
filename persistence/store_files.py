"""Which files a store consists of: the one place where whatever copies a store asks (backup, restore).

The database is copied by SQLite's backup API, since nothing else may open it. Everything that rows of it
point to and that lies in a file of its own is named by `files_beside`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HELD_NAME: Final = "backup.held"
"""The directory in which a backup under way keeps a second name of each such file."""


def files_beside(directory: Path) -> list[str]:
    """The names, relative to the data directory, of the files that hold what the database points to now.

    Such a file has to be complete when its row is committed, and never changes after that. There are none:
    all bodies lie in the database. Where bodies get files of their own, they are named here, and nowhere
    else.
    """
    return []


def hold(directory: Path) -> list[str]:
    """Give each file of now a second name, so that it stays until `let_go`; their names. Between two groups
    only.
    """
    let_go(directory)
    names = files_beside(directory)
    for name in names:
        held = directory / HELD_NAME / name
        held.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.link(directory / name, held)
    return names


def let_go(directory: Path) -> None:
    """Remove the second names; harmless without any."""
    held = directory / HELD_NAME
    if held.is_dir():
        import shutil

        shutil.rmtree(held)
