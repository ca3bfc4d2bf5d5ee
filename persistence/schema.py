"""The tables, and how a file of an older version becomes one of this version.

`segment`: the bodies of one run of messages in one value, behind a directory (directory.py). `runs` counts
the rows of `run` that point into it. `run`: `count` consecutive offsets of one queue, at `first_position` of
a segment; a set bit of `gone` is a retired message (NULL: none is). Bodies and index are apart so that a body
can be stored now and get its place in a queue later. `changed`: what was returned with changed header
effects. `node.next_offset` is written only when the highest run goes, since otherwise that run tells it;
everything below `node.purged_to` is gone and is swept later; a deleted node keeps its row, without a name,
until it is swept (node_rows.py). `checksum` columns: table.py. `quarantine`: what did not match its
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
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amqp_broker.persistence.errors import StoreCorrupt, StoreTooNew
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.node_rows import node_checksum
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, raise_translated
from amqp_broker.persistence.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID: Final = 0x414D5142  # "AMQB", in the header of the file

_RUN_TABLE: Final = """
CREATE TABLE run (
    queue_id INTEGER NOT NULL, first_offset INTEGER NOT NULL, count INTEGER NOT NULL,
    segment_id INTEGER NOT NULL, first_position INTEGER NOT NULL, gone BLOB,
    live_count INTEGER NOT NULL, live_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL, checksum INTEGER NOT
    NULL, PRIMARY KEY (queue_id, first_offset)
) STRICT, WITHOUT ROWID
"""

_CHANGED_TABLE: Final = """
CREATE TABLE changed (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
    acquired_before INTEGER NOT NULL, annotations BLOB, checksum INTEGER NOT NULL,
    PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID
"""

# AUTOINCREMENT, which sqlite-utils does not write: the id of a deleted node is never used again.
_NODE_TABLE: Final = """
CREATE TABLE node (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, kind TEXT NOT NULL, settings TEXT NOT NULL,
    next_offset INTEGER NOT NULL, purged_to INTEGER NOT NULL
) STRICT
"""


def _running(*statements: str) -> Callable[[Database], None]:
    """The step of a version that runs these statements."""

    def step(database: Database) -> None:
        for statement in statements:
            database.execute(statement).fetchall()

    return step


def _first_version(database: Database) -> None:
    database.table("meta").create({"key": str, "value": str}, pk="key", strict=True)
    database.table("segment").create(
        {"id": int, "runs": int, "directory": bytes, "bodies": bytes},
        pk="id",
        not_null={"runs", "directory", "bodies"},
        strict=True,
    )
    database.table("quarantine").create(
        {
            "id": int,
            "queue_id": int,
            "offset": int,
            "segment_id": int,
            "reason": str,
            "bytes": bytes,
        },
        pk="id",
        not_null={"queue_id", "offset", "segment_id", "reason"},
        strict=True,
    )
    _running(_NODE_TABLE, _RUN_TABLE, _CHANGED_TABLE)(database)
    database.execute("INSERT INTO meta VALUES ('store_id', ?)", [str(uuid.uuid4())]).fetchall()


_GENERATION_TABLE: Final = """
CREATE TABLE discharge_generation (
    first_number INTEGER PRIMARY KEY, opened_at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID
"""

_DISCHARGE_TABLE: Final = """
CREATE TABLE discharge (
    generation INTEGER NOT NULL, txn_id BLOB NOT NULL, at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (generation, txn_id)
) STRICT, WITHOUT ROWID
"""


# A number for each half message: what is put and decided about the same time shares pages (half_table.py).
_HALF_TABLE: Final = """
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

_HALF_INDEXES: Final = (
    "CREATE UNIQUE INDEX half_key ON half (group_name, half_id)",
    "CREATE INDEX half_open ON half (group_name, half_id) WHERE forget_ms=0",
    "CREATE INDEX half_rolled_back ON half (group_name, half_id) WHERE state='rolled-back'",
    "CREATE INDEX half_forget ON half (forget_ms) WHERE forget_ms>0",
)

_HALF_BODY_TABLE: Final = """
CREATE TABLE half_body (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT
"""

_STREAM_TABLE: Final = """
CREATE TABLE stream (
    queue_id INTEGER NOT NULL, stream TEXT NOT NULL, owner TEXT NOT NULL, seq_id INTEGER NOT NULL,
    seq_no INTEGER NOT NULL, former BLOB NOT NULL, reject_count INTEGER NOT NULL,
    last_access_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, stream)
) STRICT, WITHOUT ROWID
"""

_EVENT_TABLE: Final = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, checksum INTEGER NOT NULL
) STRICT
"""


_ADD_AT_MS: Final = "ALTER TABLE run ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0"
_ADD_COUNT: Final = "ALTER TABLE event ADD COLUMN count INTEGER NOT NULL DEFAULT 1"

_RETAINED_TABLE: Final = """
CREATE TABLE retained (
    queue_id INTEGER PRIMARY KEY, keep_ms INTEGER NOT NULL, keep_bytes INTEGER NOT NULL,
    first_offset INTEGER NOT NULL, swept_to INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""

_CURSOR_TABLE: Final = """
CREATE TABLE cursor (
    name TEXT NOT NULL, queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, moved_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (name, queue_id)
) STRICT, WITHOUT ROWID
"""

_EPOCH_TABLE: Final = """
CREATE TABLE epoch (
    group_name TEXT NOT NULL, producer TEXT NOT NULL, epoch INTEGER NOT NULL,
    decided_at_ms INTEGER NOT NULL, winners TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (group_name, producer, epoch)
) STRICT, WITHOUT ROWID
"""


_ADD_CHECKSUM: Final = "ALTER TABLE node ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0"
_NODE_ROWS: Final = (
    "SELECT id, CAST(name AS BLOB), CAST(kind AS BLOB), CAST(settings AS BLOB), next_offset, purged_to "
    "FROM node"
)


def _fifth_version(database: Database) -> None:
    database.execute(_ADD_CHECKSUM).fetchall()
    for row in database.execute(_NODE_ROWS).fetchall():
        checksum = node_checksum(*row)
        database.execute("UPDATE node SET checksum=? WHERE id=?", [checksum, row[0]]).fetchall()


_ADD_OWNER: Final = "ALTER TABLE cursor ADD COLUMN owner TEXT NOT NULL DEFAULT ''"

_TERMINUS_TABLE: Final = """
CREATE TABLE terminus (
    number INTEGER PRIMARY KEY, user TEXT NOT NULL, container TEXT NOT NULL, name TEXT NOT NULL,
    expiry_policy TEXT NOT NULL, timeout_s INTEGER NOT NULL, ends_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""

_UNSETTLED_TABLE: Final = """
CREATE TABLE unsettled (
    number INTEGER NOT NULL, delivery_tag BLOB NOT NULL, state BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (number, delivery_tag)
) STRICT, WITHOUT ROWID
"""

_ADD_SENDS: Final = "ALTER TABLE terminus ADD COLUMN sends INTEGER NOT NULL DEFAULT 0"
_ADD_ATTACHMENTS: Final = "ALTER TABLE terminus ADD COLUMN attachments INTEGER NOT NULL DEFAULT 0"

_HELD_TABLE: Final = """
CREATE TABLE held (
    queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL, delivery_tag BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (queue_id, offset)
) STRICT, WITHOUT ROWID
"""

_HELD_INDEX: Final = "CREATE INDEX held_number ON held (number)"

# Step n makes version n out of version n-1. A step is never changed once it was released.
MIGRATIONS: Final[tuple[Callable[[Database], None], ...]] = (
    _first_version,
    _running(_GENERATION_TABLE, _DISCHARGE_TABLE),
    _running(_HALF_TABLE, *_HALF_INDEXES, _HALF_BODY_TABLE, _STREAM_TABLE, _EVENT_TABLE),
    _running(_ADD_AT_MS, _ADD_COUNT, _RETAINED_TABLE, _CURSOR_TABLE, _EPOCH_TABLE),
    _fifth_version,
    _running(_ADD_OWNER),
    _running(_TERMINUS_TABLE, _UNSETTLED_TABLE),
    _running(_ADD_SENDS, _ADD_ATTACHMENTS, _HELD_TABLE, _HELD_INDEX),
)
SCHEMA_VERSION: Final = len(MIGRATIONS)


def bring_up_to_date(
    connection: Connection,
    unit: UnitOfWork,
    migrations: tuple[Callable[[Database], None], ...] = MIGRATIONS,
) -> bool:
    """Make the tables in a new file, or migrate an older one, in one transaction; True if the file was new.

    Raises StoreTooNew, StoreCorrupt (it belongs to another program), StoreFull, StoreFailed.
    """
    version = schema_version(unit)
    if version > len(migrations):
        raise StoreTooNew(
            f"the store has schema version {version}, this broker knows versions up to {len(migrations)}: "
            "use the newer broker"
        )
    if version == len(migrations):
        return False
    from sqlite_utils import Database  # only here: it costs 80 ms, and a start seldom needs it

    fault_point("migration.before")
    unit.begin()
    database = Database(connection, execute_plugins=False, recursive_triggers=False)
    try:
        for step in migrations[version:]:
            step(database)
            fault_point("migration.step")
            assert connection.in_transaction, "a migration step ended the transaction"
    except DATABASE_ERRORS as error:
        unit.rollback()
        raise_translated(error)
    unit.execute(f"PRAGMA application_id={APPLICATION_ID}")
    unit.execute(f"PRAGMA user_version={len(migrations)}")
    fault_point("migration.before_commit")
    unit.commit()
    fault_point("migration.after")
    return version == 0


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
