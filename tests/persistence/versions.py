"""Stores of the schema versions before, statement for statement as the brokers of then made them.

They never change: files like them are out there. Version 1: queue "orders" (1) holds offsets 0, 3, 4, 5,
of which 4 was returned; node 2 is deleted, but not swept; queue "empty" (3) has given out offsets 0 to 2.
Each later one holds what the one before it holds: 2 the outcomes of two transactions besides, 3 a half
message, a stream's position and two events, 4 the hidden node of a sealed set and a cursor. In 5, rows of
nodes have checksums, in 6 a cursor has an owner, in 7 there is a terminus with a delivery, in 8 it holds a
message; from 9 on bodies may be in files, and none is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME

STATEMENTS: Final = {
    1: (
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
        "320000003C000000BEBB624A80D0A0A5836B974EBD0055A1C41B8943FA704BAC247FEEAD', X'303A2E2E2E2E2E2E2E2E"
        "313A2E2E2E2E2E2E2E2E323A2E2E2E2E2E2E2E2E333A2E2E2E2E2E2E2E2E343A2E2E2E2E2E2E2E2E353A2E2E2E2E2E2E2E2E')",
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
    ),
    2: (
        """CREATE TABLE discharge_generation (
    first_number INTEGER PRIMARY KEY, opened_at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID""",
        """CREATE TABLE discharge (
    generation INTEGER NOT NULL, txn_id BLOB NOT NULL, at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (generation, txn_id)
) STRICT, WITHOUT ROWID""",
        "INSERT INTO discharge_generation VALUES (0, 1000, 2372300572)",
        "INSERT INTO discharge VALUES (0, X'01010101010101010101010101010101', 1000, 2521481833)",
        "INSERT INTO discharge VALUES (0, X'74776F', 2000, 3640682969)",
        "PRAGMA user_version=2",
    ),
    3: (
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
        "CREATE TABLE half_body (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL) "
        "STRICT",
        """CREATE TABLE stream (
    queue_id INTEGER NOT NULL, stream TEXT NOT NULL, owner TEXT NOT NULL, seq_id INTEGER NOT NULL,
    seq_no INTEGER NOT NULL, former BLOB NOT NULL, reject_count INTEGER NOT NULL,
    last_access_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, stream)
) STRICT, WITHOUT ROWID""",
        """CREATE TABLE event (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, checksum INTEGER NOT NULL
) STRICT""",
        "INSERT INTO half VALUES (1, 'group', X'01', 'orders', 'container', X'646967657374', 1000, 5, 0, 4, "
        "0, 'prepared', 0, 2000, 3000, 0, '', '', 0, '', -1, 0, 982776202)",
        "INSERT INTO half_body VALUES (1, X'626F647931', 2601041068)",
        "INSERT INTO stream VALUES (1, 's', 'me', 1, 2, X'', 0, 0, 142331126)",
        """INSERT INTO event VALUES (1, 5, 60000, 'half.put', '{"half_id":"1"}', 3911359571)""",
        """INSERT INTO event VALUES (2, 6, 60000, 'half.put', '{"half_id":"2"}', 921430677)""",
        "PRAGMA user_version=3",
    ),
    4: (
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
    ),
    5: (
        "ALTER TABLE node ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
        "UPDATE node SET checksum=2148757665 WHERE id=1",
        "UPDATE node SET checksum=2899548932 WHERE id=2",
        "UPDATE node SET checksum=3710121989 WHERE id=3",
        "UPDATE node SET checksum=1688273547 WHERE id=4",
        "PRAGMA user_version=5",
    ),
    6: (
        "ALTER TABLE cursor ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "INSERT INTO cursor VALUES ('d', 1, 4, 5, 239400660, 'me')",
        "PRAGMA user_version=6",
    ),
    7: (
        """CREATE TABLE terminus (
    number INTEGER PRIMARY KEY, user TEXT NOT NULL, container TEXT NOT NULL, name TEXT NOT NULL,
    expiry_policy TEXT NOT NULL, timeout_s INTEGER NOT NULL, ends_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT""",
        """CREATE TABLE unsettled (
    number INTEGER NOT NULL, delivery_tag BLOB NOT NULL, state BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (number, delivery_tag)
) STRICT, WITHOUT ROWID""",
        "INSERT INTO terminus VALUES (1, 'u', 'c', 'l', 'never', 5, 6, 1931094686)",
        "INSERT INTO unsettled VALUES (1, X'746167', X'7374617465', 2125978058)",
        "PRAGMA user_version=7",
    ),
    8: (
        "ALTER TABLE terminus ADD COLUMN sends INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE terminus ADD COLUMN attachments INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE held (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL, delivery_tag BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID""",
        "CREATE INDEX held_number ON held (number)",
        "INSERT INTO held VALUES (1, 3, 1, X'746167', 3342525940)",
        "PRAGMA user_version=8",
    ),
    9: (
        "ALTER TABLE segment ADD COLUMN file INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE segment ADD COLUMN at INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE segment ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX segment_file ON segment (file, size) WHERE file>0",
        "PRAGMA user_version=9",
    ),
}


def write_version(version: int, directory: Path) -> None:
    """Make the file of a version in a data directory."""
    directory.mkdir(exist_ok=True)
    connection = connect(str(directory / DATABASE_NAME))
    connection.execute("PRAGMA page_size=8192").fetchall()
    for number in range(1, version + 1):
        for statement in STATEMENTS[number]:
            connection.execute(statement).fetchall()
    connection.close()
