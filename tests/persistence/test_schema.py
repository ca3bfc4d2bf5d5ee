"""Versions of the schema, and who wrote the file."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.persistence import (
    Advance,
    Cursor,
    DecideEpoch,
    Decision,
    Discharged,
    Event,
    Journal,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
    MoveCursor,
    Post,
    Retain,
    Retained,
    Retire,
    StoredTerminus,
    Stream,
)
from amqp_broker.persistence.migrations import STEPS, bring_up_to_date
from amqp_broker.persistence.questions import (
    CursorsOf,
    DecisionOf,
    DischargedAt,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    HeldBy,
    RetainedBy,
    StoreId,
    StreamOf,
    Termini,
    UnsettledOf,
)
from amqp_broker.persistence.schema import SCHEMA_VERSION, schema_version
from amqp_broker.persistence.sqlite import (
    SqliteStore,
    StoreCorrupt,
    StoreTooNew,
    verify_directory,
    verify_file,
)
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.testing.store_suite.halves import GROUP, body, half, half_id, hold
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    messages,
    new_queue,
    offsets,
    read_all,
    read_all_retained,
)
from tests.persistence.stores import assert_whole, edit, run_child, small_store
from tests.persistence.versions import STATEMENTS, write_version


def migrated(version: int, directory: Path) -> SqliteStore:
    """A store of an older version, opened. Verification knew it before, and left it as it was."""
    write_version(version, directory)
    assert verify_directory(directory) == []
    assert edit(directory, "PRAGMA user_version") == [(version,)]
    return small_store(directory)


def reopened(store: SqliteStore, directory: Path) -> SqliteStore:
    """The same store, of this version and whole."""
    assert_whole(store)
    assert edit(directory, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    return small_store(directory)


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """A newer file is refused, also by verification, and left as it is for the broker that knows it."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 3)))
    store.close()
    edit(tmp_path, f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    for refused in (small_store, verify_directory):
        with pytest.raises(StoreTooNew, match=str(SCHEMA_VERSION + 1)):
            refused(tmp_path)
    edit(tmp_path, f"PRAGMA user_version={SCHEMA_VERSION}")
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == [0, 1, 2]


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    """A database of another program is refused, and so is a file that is no database."""
    connection = connect(str(tmp_path / DATABASE_NAME))
    connection.execute("CREATE TABLE theirs (a)").fetchall()
    connection.close()
    for refused in (small_store, verify_directory):
        with pytest.raises(StoreCorrupt, match="no store of this broker"):
            refused(tmp_path)
    (tmp_path / DATABASE_NAME).write_bytes(b"this is no database, whatever its name says" * 100)
    for refused in (small_store, verify_directory):
        with pytest.raises(StoreCorrupt, match="not a database"):
            refused(tmp_path)
    for missing in (tmp_path / "none", tmp_path / "none" / "at all"):
        with pytest.raises(FileNotFoundError):
            verify_directory(missing)
        with pytest.raises(FileNotFoundError):
            verify_file(missing)
    assert [path.name for path in tmp_path.iterdir() if path.name == "none"] == []


def _add_column(database: Any) -> None:
    database.execute("ALTER TABLE meta ADD COLUMN note TEXT").fetchall()


def _fill_column(database: Any) -> None:
    database.execute("UPDATE meta SET note='new'").fetchall()


def _fail(database: Any) -> None:
    database.execute("INSERT INTO no_such_table VALUES (1)").fetchall()


def _migrate(path: Path, *steps: Callable[[Any], None]) -> tuple[int, list[Any]]:
    connection = connect(str(path / DATABASE_NAME))
    unit = UnitOfWork(connection)
    try:
        bring_up_to_date(connection, unit, steps)
    finally:
        version = schema_version(unit)
        columns = connection.execute("SELECT name FROM pragma_table_info('meta')").fetchall()
        connection.close()
    return version, columns


def test_steps_run_in_order_and_together(tmp_path: Path) -> None:
    """An older file gets all steps in one transaction. A step that fails leaves the old version."""
    small_store(tmp_path).close()
    with pytest.raises(Exception, match="no_such_table"):
        _migrate(tmp_path, _add_column, _fail)
    assert edit(tmp_path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert edit(tmp_path, "SELECT name FROM pragma_table_info('meta')") == [("key",), ("value",)]
    assert _migrate(tmp_path, _add_column, _fill_column) == (
        SCHEMA_VERSION + 2,
        [("key",), ("value",), ("note",)],
    )
    assert edit(tmp_path, "SELECT DISTINCT note FROM meta") == [("new",)]


def test_version_1_is_migrated(tmp_path: Path) -> None:
    """A store that an older broker has left keeps its nodes, messages and marks, and takes discharges."""
    store = migrated(1, tmp_path)
    assert [(n.queue_id, n.name, n.settings, n.next_offset) for n in store.recover().nodes] == [
        (1, "orders", {"limit": 5}, 6),
        (3, "empty", {}, 3),
    ]
    found = read_all(store, 1)
    assert [(record.offset, record.body) for record in found] == [
        (offset, b"%d:........" % offset) for offset in (0, 3, 4, 5)
    ]
    assert [(r.delivery_count, r.annotations) for r in found] == [
        (0, None),
        (0, None),
        (2, b"notes"),
        (0, None),
    ]
    assert store.ask(DischargedAt(b"id")) is None
    do(store, Retire(1, 0, 3), Post(3, messages(3, 1)), Discharged(b"id", 5))
    do_idle_work(store, 0.0)
    store = reopened(store, tmp_path)
    assert [row[0] for row in store._unit.query("SELECT id FROM node ORDER BY id")] == [1, 3], "2 was swept"
    assert (offsets(store, 1), offsets(store, 3), store.ask(DischargedAt(b"id"))) == ([4, 5], [3], 5)


def test_version_2_is_migrated(tmp_path: Path) -> None:
    """A store with outcomes keeps them, and takes half messages, streams and events."""
    store = migrated(2, tmp_path)
    assert [store.ask(DischargedAt(name)) for name in (b"\x01" * 16, b"two", b"id")] == [1000, 2000, None]
    assert offsets(store, 1) == [0, 3, 4, 5]
    event = Event("half.put", 5, {"half_id": "1"})
    do(store, hold(1), Advance(Stream(1, "s", "me", 1, 2)), Journal(event), Discharged(b"id", 5))
    store = reopened(store, tmp_path)
    assert [store.ask(DischargedAt(name)) for name in (b"\x01" * 16, b"two", b"id")] == [1000, 2000, 5]
    assert store.ask(HalfOf(GROUP, half_id(1))) == half(1)
    assert store.ask(HalfBodyOf(GROUP, half_id(1))) == body(1)
    assert (store.ask(StreamOf(1, "s")), store.ask(EventsFrom(0, 9))) == (Stream(1, "s", "me", 1, 2), [event])


def test_version_3_is_migrated(tmp_path: Path) -> None:
    """A store with half messages, streams and events keeps them. Retention, cursors and decisions begin."""
    store = migrated(3, tmp_path)
    decision = Decision("group", "producer", 1, 5, (("set", 1, 2),))
    found = store.ask(HalfOf("group", b"\x01"))
    assert found is not None and (found.deadline_ms, found.size_bytes) == (3000, 5)
    assert store.ask(HalfBodyOf("group", b"\x01")) == b"body1"
    assert [one.fields for one in store.ask(EventsFrom(0, 9))] == [{"half_id": "1"}, {"half_id": "2"}]
    assert offsets(store, 1) == [0, 3, 4, 5]
    do(store, Retain(1, 1000, 0), Post(1, messages(6, 3)), Retire(1, 4, 7), MoveCursor("c", 1, 7, 5))
    do(store, DecideEpoch(decision))
    store = reopened(store, tmp_path)
    assert store.ask(StoreId()) == "aaa9306f-4a1e-4cbc-a18b-f1d60df8bf2c"
    assert offsets(store, 1) == [0, 3, 8]
    assert [offset for _, offset, *_ in read_all_retained(store, 1)[0]] == [6, 7, 8]
    assert store.ask(RetainedBy(1)) == Retained(1000, 0, 6, 9, 30)
    assert store.ask(CursorsOf("c")) == [Cursor("c", 1, 7, 5)]
    assert store.ask(DecisionOf("group", "producer", 1)) == decision


def test_version_4_is_migrated(tmp_path: Path) -> None:
    """A store with retention, cursors and sets keeps them; rows of nodes get their checksums."""
    store = reopened(migrated(4, tmp_path), tmp_path)
    write_version(4, tmp_path / "before")
    rows = "SELECT * FROM node ORDER BY id"
    assert [row[:-1] for row in store._unit.query(rows)] == edit(tmp_path / "before", rows)
    recovered = store.recover()
    assert recovered.quarantined == []
    (sealed,) = [node for node in recovered.nodes if node.kind == "set"]
    assert (sealed.name, sealed.next_offset) == ("$half-set/g/p/7/s/t\u00fcr", 2)
    assert (sealed.settings["destination"], sealed.settings["sealed_checksum"]) == ("t\u00fcr", 9)
    assert store.ask(CursorsOf("c")) == [Cursor("c", 1, 4, 5)]
    assert offsets(store, 1) == [0, 3, 4, 5]
    store.close()
    edit(tmp_path, "UPDATE node SET settings='{}' WHERE id=4")
    assert verify_directory(tmp_path) != []


def test_version_5_is_migrated(tmp_path: Path) -> None:
    """A store whose cursors have no owners keeps them, and they are nobody's until somebody moves them."""
    store = migrated(5, tmp_path)
    store.recover()
    assert store.ask(CursorsOf("c")) == [Cursor("c", 1, 4, 5, "")]
    do(store, MoveCursor("c", 1, 6, 7, "owner"))
    store = reopened(store, tmp_path)
    assert store.ask(CursorsOf("c")) == [Cursor("c", 1, 6, 7, "owner")]
    store.close()
    edit(tmp_path, "UPDATE cursor SET owner='other'")
    assert verify_directory(tmp_path) != []


def test_version_6_is_migrated(tmp_path: Path) -> None:
    """A store of before has no termini, and keeps some from now on."""
    store = migrated(6, tmp_path)
    store.recover()
    assert store.ask(CursorsOf("d")) == [Cursor("d", 1, 4, 5, "me")]
    assert store.ask(Termini()) == []
    terminus = StoredTerminus(1, "user", "container", "link", "never", 5)
    do(store, KeepTerminus(terminus), KeepUnsettled(1, {b"tag": b"state"}))
    store = reopened(store, tmp_path)
    assert (store.ask(Termini()), store.ask(UnsettledOf(1))) == ([terminus], {b"tag": b"state"})


def test_version_7_is_migrated(tmp_path: Path) -> None:
    """Its termini are those of peers that send; from now on those to which we send hold messages."""
    store = migrated(7, tmp_path)
    store.recover()
    former = StoredTerminus(1, "u", "c", "l", "never", 5, 6)
    assert store.ask(Termini()) == [former]
    terminus = StoredTerminus(2, "u", "c", "l", "never", 5, sends=True, attachments=3)
    do(store, KeepTerminus(terminus), KeepHeld(2, 1, {3: b"tag"}))
    store = reopened(store, tmp_path)
    assert (store.ask(Termini()), store.ask(UnsettledOf(1))) == ([former, terminus], {b"tag": b"state"})
    assert (store.ask(HeldBy(1)), store.ask(HeldBy(2))) == ({}, {b"tag": (1, 3)})


@pytest.mark.parametrize(
    ("sql", "finding", "left"),
    [
        ("UPDATE held SET delivery_tag=X'00' WHERE offset=3", "queue 1, offset 3, held by terminus 2: ", 1),
        ("DELETE FROM terminus", "terminus 2: it holds 2 messages, but there is no such terminus", 2),
        ("UPDATE held SET queue_id=9", "queue 9: 2 of its messages are held, but there is no such node", 0),
        ("UPDATE terminus SET attachments=4", "terminus 2: the row does not match its checksum", 2),
    ],
)
def test_damage_of_what_is_held_is_found(sql: str, finding: str, left: int, tmp_path: Path) -> None:
    """And not believed."""
    store = small_store(tmp_path)
    do(store, KeepTerminus(StoredTerminus(2, "u", "c", "l", "never", 5, sends=True, attachments=3)))
    queue_id = new_queue(store)
    assert queue_id == 1
    do(store, Post(queue_id, messages(0, 4)), KeepHeld(2, queue_id, {0: b"a", 3: b"b"}))
    assert_whole(store)
    edit(tmp_path, sql)
    assert any(finding in found for found in verify_directory(tmp_path))
    assert len(small_store(tmp_path).ask(HeldBy(2))) == left


@pytest.mark.parametrize(
    ("sql", "finding", "left"),
    [
        ("UPDATE terminus SET ends_at_ms=1", "terminus 1: the row does not match its checksum", (0, 2)),
        ("UPDATE unsettled SET state=X'00' WHERE delivery_tag=X'61'", "terminus 1, delivery b'a': ", (1, 1)),
        ("DELETE FROM terminus", "terminus 1: 2 deliveries, but there is no such terminus", (0, 2)),
    ],
)
def test_damage_of_termini_is_found(sql: str, finding: str, left: tuple[int, int], tmp_path: Path) -> None:
    """And not believed."""
    store = small_store(tmp_path)
    do(store, KeepTerminus(StoredTerminus(1, "u", "c", "l", "never", 5)))
    do(store, KeepUnsettled(1, {b"a": b"", b"b": b""}))
    assert_whole(store)
    edit(tmp_path, sql)
    assert any(finding in found for found in verify_directory(tmp_path))
    store = small_store(tmp_path)
    assert (len(store.ask(Termini())), len(store.ask(UnsettledOf(1)))) == left


def test_there_is_a_step_from_each_older_version() -> None:
    """And a store of it, to try the steps with."""
    assert [*STATEMENTS] == [*range(1, SCHEMA_VERSION)]
    assert len(STEPS) == SCHEMA_VERSION - 1


@pytest.mark.parametrize("version", [*STATEMENTS])
def test_migrated_and_new_stores_have_the_same_tables(version: int, tmp_path: Path) -> None:
    """A migrated store and a new one have one schema, indexes and their conditions included."""
    write_version(version, tmp_path / "old")
    sql = "SELECT name, type FROM sqlite_schema ORDER BY name"
    columns = "SELECT m.name, i.* FROM sqlite_schema m, pragma_table_xinfo(m.name) i ORDER BY m.name, i.cid"
    for name in ("old", "new"):
        small_store(tmp_path / name).close()
    indexes = "SELECT name, sql FROM sqlite_schema WHERE type='index' ORDER BY name"
    for question in (sql, columns, indexes):
        assert edit(tmp_path / "old", question) == edit(tmp_path / "new", question)
    assert len(edit(tmp_path / "new", indexes)) > 4


MIGRATED_TO = {
    "migration.before": 0,
    "migration.step": 0,
    "migration.before_commit": 0,
    "migration.after": SCHEMA_VERSION,
}
"""The version of a file whose migration is killed there; 0: that which it had."""

OPENS_AND_IS_KILLED = """
import os, sys
import sqlite_utils
from amqp_broker.persistence.fault_points import arm
from amqp_broker.persistence.sqlite import SqliteStore
for point in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        arm(point)
        SqliteStore(f"{sys.argv[1]}/{point}", ballast_bytes=0)
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""One process for each point, of one that has loaded the store and what migrates it: that takes longer than
all else here.
"""


@pytest.mark.parametrize("old", [*STATEMENTS])
def test_migration_is_killed(old: int, tmp_path: Path) -> None:
    """The file has the old version or the new one, and the next start makes it the new one."""
    for point in MIGRATED_TO:
        write_version(old, tmp_path / point)
    child = run_child(OPENS_AND_IS_KILLED, tmp_path, *MIGRATED_TO)
    assert child.stdout.splitlines() == [f"{point} {-signal.SIGKILL}" for point in MIGRATED_TO], child.stderr
    for point, version in MIGRATED_TO.items():
        assert verify_directory(tmp_path / point) == [], point
        assert edit(tmp_path / point, "PRAGMA user_version") == [(version or old,)], point
        store = small_store(tmp_path / point)
        do(store, Discharged(b"id", 5))
        assert offsets(store, 1) == [0, 3, 4, 5], point
        assert_whole(store)


def test_plugins_of_sqlite_utils_are_not_run(tmp_path: Path) -> None:
    """Installed plugins of sqlite-utils are kept out of the store, also where it migrates one."""
    write_version(1, tmp_path / "data")
    code = """
import sys, sqlite_utils
from sqlite_utils.plugins import pm
class Plugin:
    @sqlite_utils.hookimpl
    def prepare_connection(self, conn):
        print("plugin ran")
pm.register(Plugin(), name="intruder")
sqlite_utils.Database(memory=True).close()
print("--")
from amqp_broker.persistence.sqlite import SqliteStore
SqliteStore(sys.argv[1], ballast_bytes=0).close()
"""
    child = run_child(code, tmp_path / "data")
    assert child.stderr == ""
    assert child.stdout == "plugin ran\n--\n"


@pytest.mark.parametrize("new", [True, False])
def test_opening_a_store_of_this_version_loads_no_sqlite_utils(new: bool, tmp_path: Path) -> None:
    """A start does not import what only an older schema needs."""
    if not new:
        small_store(tmp_path).close()
    code = """
import sys
import amqp_broker.persistence
assert "pysqlite3" not in sys.modules
from amqp_broker.persistence.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], ballast_bytes=0)
store.recover()
store.close()
print([name for name in ("sqlite_utils", "click", "trio", "structlog") if name in sys.modules])
"""
    child = run_child(code, tmp_path)
    assert (child.stdout, child.stderr) == ("[]\n", "")
