"""The tables of this version, as a new file gets them. An older one is migrated (migrations.py).

`segment`: the bodies of one run of messages in one value, behind a directory (directory.py), or, where
`file` is not 0, in a file beside the database (body_files.py). `runs` counts the rows of `run` that point
into it. `run`: `count` consecutive offsets of one queue, at `first_position` of
a segment; a set bit of `gone` is a retired message (NULL: none is). `spread`: the same of many queues in one
row, for a while (spreads.py), which its segment counts as one of its `runs`. Bodies and index are apart so
that a body can be stored now and get its place in a queue later. `changed`: what was returned with changed
header effects. `node.next_offset` is written only when the highest run goes, since otherwise that run tells
it; everything below `node.purged_to` is gone and is swept later; a deleted node keeps its row, without a
name, until it is swept (node_rows.py). `checksum` columns: table.py. `quarantine`: what did not match its
checksum, for a human to look at. `discharge`: the transactions that were committed, by the generation in
which they are forgotten (outcomes.py). `half` and `half_body`: half messages and their bodies
(half_table.py); `forget_ms` tells when a decided one is forgotten, by the store's own clock (keep_clock.py),
and is 0 before. `stream`: positions of sequenced streams (stream_table.py). `event`: the append-only log
(event_table.py); a row may stand for `count` entries. `retained`: the policy of a node that keeps what is
retired from it, and the watermark below which that was dropped (retained_table.py); `run.at_ms` is when a run
of such a node was published, else 0. `cursor`: durable named cursors (cursor_table.py); `owner` is empty
where an older version made them. `epoch`: what was
decided about sets of half messages. `terminus`: where peers send on links that they may resume after a
restart, and `unsettled`: the states of their deliveries until these are settled; where `sends` is 1 we send
to them, and `held` has the messages that they hold, with their delivery-tags (terminus_table.py).
"""

from __future__ import annotations

import uuid
from typing import Final

from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.unit_of_work import UnitOfWork

APPLICATION_ID: Final = 0x414D5142  # "AMQB", in the header of the file
SCHEMA_VERSION: Final = 10

STORE_ID: Final = "SELECT value FROM meta WHERE key='store_id'"
META: Final = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) STRICT"

SEGMENT: Final = """
CREATE TABLE segment (
    id INTEGER PRIMARY KEY, runs INTEGER NOT NULL, directory BLOB NOT NULL, bodies BLOB NOT NULL,
    file INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0
) STRICT
"""

SEGMENT_INDEX: Final = "CREATE INDEX segment_file ON segment (file, size) WHERE file>0"

QUARANTINE: Final = """
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, offset INTEGER NOT NULL,
    segment_id INTEGER NOT NULL, reason TEXT NOT NULL, bytes BLOB
) STRICT
"""

# AUTOINCREMENT: the id of a deleted node is never used again.
NODE: Final = """
CREATE TABLE node (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, kind TEXT NOT NULL, settings TEXT NOT NULL,
    next_offset INTEGER NOT NULL, purged_to INTEGER NOT NULL, checksum INTEGER NOT NULL DEFAULT 0
) STRICT
"""

RUN: Final = """
CREATE TABLE run (
    queue_id INTEGER NOT NULL, first_offset INTEGER NOT NULL, count INTEGER NOT NULL,
    segment_id INTEGER NOT NULL, first_position INTEGER NOT NULL, gone BLOB,
    live_count INTEGER NOT NULL, live_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL, at_ms INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (queue_id, first_offset)
) STRICT, WITHOUT ROWID
"""

SPREAD: Final = """
CREATE TABLE spread (
    segment_id INTEGER PRIMARY KEY, count INTEGER NOT NULL, gone BLOB NOT NULL, places BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""

CHANGED: Final = """
CREATE TABLE changed (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
    acquired_before INTEGER NOT NULL, annotations BLOB, checksum INTEGER NOT NULL,
    PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID
"""

DISCHARGE_GENERATION: Final = """
CREATE TABLE discharge_generation (
    first_number INTEGER PRIMARY KEY, opened_at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID
"""

DISCHARGE: Final = """
CREATE TABLE discharge (
    generation INTEGER NOT NULL, txn_id BLOB NOT NULL, at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (generation, txn_id)
) STRICT, WITHOUT ROWID
"""

# A number for each half message: what is put and decided about the same time shares pages (half_table.py).
HALF: Final = """
CREATE TABLE half (
    id INTEGER PRIMARY KEY, group_name TEXT NOT NULL, half_id BLOB NOT NULL, destination TEXT NOT NULL,
    container_id TEXT NOT NULL, digest BLOB NOT NULL, put_at_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, message_format INTEGER NOT NULL, priority INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, due_at_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL, resolved_at_ms INTEGER NOT NULL, resolver TEXT NOT NULL,
    reason TEXT NOT NULL, expires_at_ms INTEGER NOT NULL, queue TEXT NOT NULL, offset INTEGER NOT NULL,
    forget_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT
"""

HALF_INDEXES: Final = (
    "CREATE UNIQUE INDEX half_key ON half (group_name, half_id)",
    "CREATE INDEX half_open ON half (group_name, half_id) WHERE forget_ms=0",
    "CREATE INDEX half_rolled_back ON half (group_name, half_id) WHERE state='rolled-back'",
    "CREATE INDEX half_forget ON half (forget_ms) WHERE forget_ms>0",
)

HALF_BODY: Final = """
CREATE TABLE half_body (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT
"""

STREAM: Final = """
CREATE TABLE stream (
    queue_id INTEGER NOT NULL, stream TEXT NOT NULL, owner TEXT NOT NULL, seq_id INTEGER NOT NULL,
    seq_no INTEGER NOT NULL, former BLOB NOT NULL, reject_count INTEGER NOT NULL,
    last_access_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, stream)
) STRICT, WITHOUT ROWID
"""

EVENT: Final = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, checksum INTEGER NOT NULL,
    count INTEGER NOT NULL DEFAULT 1
) STRICT
"""

RETAINED: Final = """
CREATE TABLE retained (
    queue_id INTEGER PRIMARY KEY, keep_ms INTEGER NOT NULL, keep_bytes INTEGER NOT NULL,
    first_offset INTEGER NOT NULL, swept_to INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""

CURSOR: Final = """
CREATE TABLE cursor (
    name TEXT NOT NULL, queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, moved_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL, owner TEXT NOT NULL DEFAULT '', PRIMARY KEY (name, queue_id)
) STRICT, WITHOUT ROWID
"""

EPOCH: Final = """
CREATE TABLE epoch (
    group_name TEXT NOT NULL, producer TEXT NOT NULL, epoch INTEGER NOT NULL,
    decided_at_ms INTEGER NOT NULL, winners TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (group_name, producer, epoch)
) STRICT, WITHOUT ROWID
"""

TERMINUS: Final = """
CREATE TABLE terminus (
    number INTEGER PRIMARY KEY, user TEXT NOT NULL, container TEXT NOT NULL, name TEXT NOT NULL,
    expiry_policy TEXT NOT NULL, timeout_s INTEGER NOT NULL, ends_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL, sends INTEGER NOT NULL DEFAULT 0, attachments INTEGER NOT NULL DEFAULT 0
) STRICT
"""

UNSETTLED: Final = """
CREATE TABLE unsettled (
    number INTEGER NOT NULL, delivery_tag BLOB NOT NULL, state BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (number, delivery_tag)
) STRICT, WITHOUT ROWID
"""

HELD: Final = """
CREATE TABLE held (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL, delivery_tag BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID
"""

HELD_INDEX: Final = "CREATE INDEX held_number ON held (number)"

TABLES: Final = (
    *(META, SEGMENT, SEGMENT_INDEX, QUARANTINE, NODE, RUN, SPREAD, CHANGED),
    *(DISCHARGE_GENERATION, DISCHARGE),
    *(HALF, *HALF_INDEXES, HALF_BODY, STREAM, EVENT),
    *(RETAINED, CURSOR, EPOCH),
    *(TERMINUS, UNSETTLED, HELD, HELD_INDEX),
)


def make_tables(unit: UnitOfWork) -> None:
    """All tables, in a new file, inside the caller's transaction. Raises as `UnitOfWork.execute`."""
    for statement in TABLES:
        unit.execute(statement)
    unit.execute("INSERT INTO meta VALUES ('store_id', ?)", (str(uuid.uuid4()),))


def schema_version(unit: UnitOfWork) -> int:
    """0 for an empty file. Raises StoreCorrupt if the file is another program's."""
    ((version,),) = unit.query("PRAGMA user_version")
    ((application_id,),) = unit.query("PRAGMA application_id")
    ((tables,),) = unit.query("SELECT count(*) FROM sqlite_schema")
    if application_id == APPLICATION_ID or (application_id == version == tables == 0):
        return int(version)
    raise StoreCorrupt(
        f"the file is no store of this broker: application id {application_id:#x}, version {version}, "
        f"{tables} tables"
    )
