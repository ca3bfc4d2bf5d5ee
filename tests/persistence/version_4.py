"""A store of schema version 4, statement for statement as the broker of that version made it.

It holds what the store of version 3 holds, the hidden node of a sealed set and a cursor. This never changes:
files like it are out there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.persistence.version_1 import write_file
from tests.persistence.version_3 import STATEMENTS as FORMER_STATEMENTS

STATEMENTS: Final = (
    *FORMER_STATEMENTS,
    "ALTER TABLE run ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE event ADD COLUMN count INTEGER NOT NULL DEFAULT 1",
    """CREATE TABLE retained (
    queue_id INTEGER PRIMARY KEY, keep_ms INTEGER NOT NULL, keep_bytes INTEGER NOT NULL,
    first_offset INTEGER NOT NULL, swept_to INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE cursor (
    name TEXT NOT NULL, queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, moved_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (name, queue_id)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE epoch (
    group_name TEXT NOT NULL, producer TEXT NOT NULL, epoch INTEGER NOT NULL,
    decided_at_ms INTEGER NOT NULL, winners TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (group_name, producer, epoch)
) STRICT, WITHOUT ROWID""",
    "INSERT INTO node VALUES (4, '$half-set/g/p/7/s/t\u00fcr', 'set', "
    """'{"group":"g","producer":"p","epoch":7,"set":"s","destination":"t\\u00fcr","begun_at_ms":5,"""
    """"container_id":"c","sealed_count":2,"sealed_checksum":9}', 2, 0)""",
    "INSERT INTO cursor VALUES ('c', 1, 4, 5, 2707475683)",
    "PRAGMA user_version=4",
)


def write_version_4(directory: Path) -> None:
    """Make the file in a data directory."""
    write_file(directory, STATEMENTS)
