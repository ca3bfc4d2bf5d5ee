"""A store of schema version 3, statement for statement as the broker of that version made it.

It holds what the store of version 2 holds, a half message, a stream's position and two events. This never
changes: files like it are out there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.persistence.version_1 import write_file
from tests.persistence.version_2 import STATEMENTS as FORMER_STATEMENTS

STATEMENTS: Final = (
    *FORMER_STATEMENTS,
    """CREATE TABLE half (
    id INTEGER PRIMARY KEY, group_name TEXT NOT NULL, half_id BLOB NOT NULL, destination TEXT NOT NULL,
    container_id TEXT NOT NULL, digest BLOB NOT NULL, put_at_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, message_format INTEGER NOT NULL, priority INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, due_at_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL, resolved_at_ms INTEGER NOT NULL, resolver TEXT NOT NULL,
    reason TEXT NOT NULL, expires_at_ms INTEGER NOT NULL, queue TEXT NOT NULL, offset INTEGER NOT NULL,
    forget_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT""",
    "CREATE UNIQUE INDEX half_key ON half (group_name, half_id)",
    "CREATE INDEX half_open ON half (group_name, half_id) WHERE forget_ms=0",
    "CREATE INDEX half_rolled_back ON half (group_name, half_id) WHERE state='rolled-back'",
    "CREATE INDEX half_forget ON half (forget_ms) WHERE forget_ms>0",
    "CREATE TABLE half_body (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT",
    """CREATE TABLE stream (
    queue_id INTEGER NOT NULL, stream TEXT NOT NULL, owner TEXT NOT NULL, seq_id INTEGER NOT NULL,
    seq_no INTEGER NOT NULL, former BLOB NOT NULL, reject_count INTEGER NOT NULL,
    last_access_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, stream)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE event (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, checksum INTEGER NOT NULL
) STRICT""",
    "INSERT INTO half VALUES (1, 'group', X'01', 'orders', 'container', X'646967657374', 1000, 5, 0, 4, 0, "
    "'prepared', 0, 2000, 3000, 0, '', '', 0, '', -1, 0, 982776202)",
    "INSERT INTO half_body VALUES (1, X'626F647931', 2601041068)",
    "INSERT INTO stream VALUES (1, 's', 'me', 1, 2, X'', 0, 0, 142331126)",
    """INSERT INTO event VALUES (1, 5, 60000, 'half.put', '{"half_id":"1"}', 3911359571)""",
    """INSERT INTO event VALUES (2, 6, 60000, 'half.put', '{"half_id":"2"}', 921430677)""",
    "PRAGMA user_version=3",
)


def write_version_3(directory: Path) -> None:
    """Make the file in a data directory."""
    write_file(directory, STATEMENTS)
