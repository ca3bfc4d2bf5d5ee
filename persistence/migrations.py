"""How a file gets the tables of this version: a new one all at once, an older one by a step for each version.

A step is never changed once it was released, and neither is what it makes: where a table changes, the step
that made it keeps the old statement here, and schema.py has the new one. A test brings a store of each
version up to date and compares its tables with those of a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amqp_broker.persistence import schema
from amqp_broker.persistence.errors import StoreTooNew
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.node_rows import node_checksum
from amqp_broker.persistence.schema import APPLICATION_ID, SCHEMA_VERSION, make_tables, schema_version
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, raise_translated
from amqp_broker.persistence.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from sqlite_utils import Database

Step = Callable[["Database"], None]

_EVENT_OF_3: Final = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, checksum INTEGER NOT NULL
) STRICT
"""

_CURSOR_OF_4: Final = """
CREATE TABLE cursor (
    name TEXT NOT NULL, queue_id INTEGER NOT NULL, offset INTEGER NOT NULL, moved_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (name, queue_id)
) STRICT, WITHOUT ROWID
"""

_TERMINUS_OF_7: Final = """
CREATE TABLE terminus (
    number INTEGER PRIMARY KEY, user TEXT NOT NULL, container TEXT NOT NULL, name TEXT NOT NULL,
    expiry_policy TEXT NOT NULL, timeout_s INTEGER NOT NULL, ends_at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""


def _running(*statements: str) -> Step:
    """The step of a version that runs these statements."""

    def step(database: Database) -> None:
        for statement in statements:
            database.execute(statement).fetchall()

    return step


def _to_4(database: Database) -> None:
    database.table("run").add_column("at_ms", int, not_null_default=0)
    database.table("event").add_column("count", int, not_null_default=1)
    _running(schema.RETAINED, _CURSOR_OF_4, schema.EPOCH)(database)


_NODE_ROWS: Final = (
    "SELECT id, CAST(name AS BLOB), CAST(kind AS BLOB), CAST(settings AS BLOB), next_offset, purged_to "
    "FROM node"
)


def _to_5(database: Database) -> None:
    database.table("node").add_column("checksum", int, not_null_default=0)
    for row in database.execute(_NODE_ROWS).fetchall():
        checksum = node_checksum(*row)
        database.execute("UPDATE node SET checksum=? WHERE id=?", [checksum, row[0]]).fetchall()


def _to_6(database: Database) -> None:
    database.table("cursor").add_column("owner", str, not_null_default="")


def _to_8(database: Database) -> None:
    terminus = database.table("terminus")
    terminus.add_column("sends", int, not_null_default=0)
    terminus.add_column("attachments", int, not_null_default=0)
    _running(schema.HELD, schema.HELD_INDEX)(database)


def _to_9(database: Database) -> None:
    for name in ("file", "at", "size"):
        database.table("segment").add_column(name, int, not_null_default=0)
    _running(schema.SEGMENT_INDEX)(database)


# The first makes version 2 out of version 1.
STEPS: Final[tuple[Step, ...]] = (
    _running(schema.DISCHARGE_GENERATION, schema.DISCHARGE),
    _running(schema.HALF, *schema.HALF_INDEXES, schema.HALF_BODY, schema.STREAM, _EVENT_OF_3),
    _to_4,
    _to_5,
    _to_6,
    _running(_TERMINUS_OF_7, schema.UNSETTLED),
    _to_8,
    _to_9,
    _running(schema.SPREAD),
)


def bring_up_to_date(
    connection: Connection,
    unit: UnitOfWork,
    added: tuple[Step, ...] = (),
) -> bool:
    """Make the tables in a new file, or migrate an older one, in one transaction; True if the file was new.

    `added` are steps of later versions, for tests. Raises StoreTooNew, StoreCorrupt (it belongs to another
    program), StoreFull, StoreFailed.
    """
    version, newest = schema_version(unit), SCHEMA_VERSION + len(added)
    if version > newest:
        raise StoreTooNew(
            f"the store has schema version {version}, this broker knows versions up to {newest}: "
            "use the newer broker"
        )
    if version == newest:
        return False
    fault_point("migration.before")
    unit.begin()
    try:
        if version == 0:
            make_tables(unit)
            fault_point("migration.step")
        else:
            _run((*STEPS, *added)[version - 1 :], connection)
    except DATABASE_ERRORS as error:
        unit.rollback()
        raise_translated(error)
    unit.execute(f"PRAGMA application_id={APPLICATION_ID}")
    unit.execute(f"PRAGMA user_version={newest}")
    fault_point("migration.before_commit")
    unit.commit()
    fault_point("migration.after")
    return version == 0


def _run(steps: tuple[Step, ...], connection: Connection) -> None:
    from sqlite_utils import Database  # only here: it costs 80 ms and 4 MiB, and a start seldom needs it

    database = Database(connection, execute_plugins=False, recursive_triggers=False)
    for step in steps:
        step(database)
        fault_point("migration.step")
        assert connection.in_transaction, "a migration step ended the transaction"
