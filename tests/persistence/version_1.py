"""A store of schema version 1, statement for statement as the broker of that version made it.

Queue "orders" (1) holds offsets 0, 3, 4, 5, of which 4 was returned; node 2 is deleted, but not swept; queue
"empty" (3) has given out offsets 0 to 2. This never changes: files like it are out there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.sqlite_store import DATABASE_NAME

STATEMENTS: Final = (
    """CREATE TABLE "meta" (
   "key" TEXT PRIMARY KEY,
   "value" TEXT
) STRICT""",
    """CREATE TABLE "segment" (
   "id" INTEGER PRIMARY KEY,
   "runs" INTEGER NOT NULL,
   "directory" BLOB NOT NULL,
   "bodies" BLOB NOT NULL
) STRICT""",
    """CREATE TABLE "quarantine" (
   "id" INTEGER PRIMARY KEY,
   "queue_id" INTEGER NOT NULL,
   "offset" INTEGER NOT NULL,
   "segment_id" INTEGER NOT NULL,
   "reason" TEXT NOT NULL,
   "bytes" BLOB
) STRICT""",
    """CREATE TABLE node (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, kind TEXT NOT NULL, settings TEXT NOT NULL,
    next_offset INTEGER NOT NULL, purged_to INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE run (
    queue_id INTEGER NOT NULL, first_offset INTEGER NOT NULL, count INTEGER NOT NULL,
    segment_id INTEGER NOT NULL, first_position INTEGER NOT NULL, gone BLOB,
    live_count INTEGER NOT NULL, live_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL, checksum INTEGER NOT
    NULL, PRIMARY KEY (queue_id, first_offset)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE changed (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
    acquired_before INTEGER NOT NULL, annotations BLOB, checksum INTEGER NOT NULL,
    PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID""",
    "INSERT INTO meta VALUES ('store_id', 'aaa9306f-4a1e-4cbc-a18b-f1d60df8bf2c')",
    "INSERT INTO segment VALUES (1, 1, X'010000000600000000000000000000000A000000140000001E00000028000000"
    "320000003C000000BEBB624A80D0A0A5836B974EBD0055A1C41B8943FA704BAC247FEEAD', X'303A2E2E2E2E2E2E2E2E313A"
    "2E2E2E2E2E2E2E2E323A2E2E2E2E2E2E2E2E333A2E2E2E2E2E2E2E2E343A2E2E2E2E2E2E2E2E353A2E2E2E2E2E2E2E2E')",
    "INSERT INTO segment VALUES (2, 1, X'010000000100000000000000000000000A000000BD0055A1AB9676D9', "
    "X'303A2E2E2E2E2E2E2E2E')",
    """INSERT INTO node VALUES (1, 'orders', 'queue', '{"limit":5}', 0, 0)""",
    "INSERT INTO node VALUES (2, NULL, 'queue', '{}', 0, 4611686018427387904)",
    "INSERT INTO node VALUES (3, 'empty', 'queue', '{}', 3, 0)",
    "INSERT INTO run VALUES (1, 0, 6, 1, 0, X'06', 4, 40, 60, 4067064500)",
    "INSERT INTO run VALUES (2, 0, 1, 2, 0, NULL, 1, 10, 10, 3968414605)",
    "INSERT INTO changed VALUES (1, 4, 2, 1, X'6E6F746573', 2964201876)",
    "PRAGMA application_id=1095586114",
    "PRAGMA user_version=1",
)


def write_version_1(directory: Path) -> None:
    """Make the file in a data directory."""
    write_file(directory, STATEMENTS)


def write_file(directory: Path, statements: Sequence[str]) -> None:
    """A new database file out of statements."""
    directory.mkdir(exist_ok=True)
    connection = connect(str(directory / DATABASE_NAME))
    for statement in ("PRAGMA page_size=8192", *statements):
        connection.execute(statement).fetchall()
    connection.close()
