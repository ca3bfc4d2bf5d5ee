"""Versions of the schema, and who wrote the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.persistence import Post, StoreCorrupt, StoreTooNew
from amqp_broker.persistence.schema import MIGRATIONS, SCHEMA_VERSION, bring_up_to_date, schema_version
from amqp_broker.persistence.sqlite import check_directory, check_store_file
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from amqp_broker.persistence.store_checks import do, messages, new_queue, offsets
from amqp_broker.persistence.unit_of_work import UnitOfWork
from tests.persistence.stores import edit, run_child, small_store


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """And left as it is, for the broker that knows it; by the checker too."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 3)))
    store.close()
    edit(tmp_path, f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    for refused in (small_store, check_directory):
        with pytest.raises(StoreTooNew, match=str(SCHEMA_VERSION + 1)):
            refused(tmp_path)
    edit(tmp_path, f"PRAGMA user_version={SCHEMA_VERSION}")
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == [0, 1, 2]
    store.close()


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    """A database of another program, and a file that is none."""
    connection = connect(str(tmp_path / DATABASE_NAME))
    connection.execute("CREATE TABLE theirs (a)").fetchall()
    connection.close()
    for refused in (small_store, check_directory):
        with pytest.raises(StoreCorrupt, match="no store of this broker"):
            refused(tmp_path)
    (tmp_path / DATABASE_NAME).write_bytes(b"this is no database, whatever its name says" * 100)
    for refused in (small_store, check_directory):
        with pytest.raises(StoreCorrupt, match="not a database"):
            refused(tmp_path)
    for missing in (tmp_path / "none", tmp_path / "none" / "at all"):
        with pytest.raises(FileNotFoundError):
            check_directory(missing)
        with pytest.raises(FileNotFoundError):
            check_store_file(missing)
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
        bring_up_to_date(connection, unit, (*MIGRATIONS, *steps))
    finally:
        version = schema_version(unit)
        columns = connection.execute("SELECT name FROM pragma_table_info('meta')").fetchall()
        connection.close()
    return version, columns


def test_steps_run_in_order_and_together(tmp_path: Path) -> None:
    """An older file gets all steps that it lacks in one transaction; a step that fails leaves the old
    version.
    """
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


def test_plugins_of_sqlite_utils_are_not_run(tmp_path: Path) -> None:
    """What somebody installed beside us has no business in the store."""
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


def test_opening_an_existing_store_loads_no_sqlite_utils(tmp_path: Path) -> None:
    """A start stays short: what only a new or old schema needs is not imported."""
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
