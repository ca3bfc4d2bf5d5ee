"""The library and the settings that durability depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amqp_broker.persistence import sqlite_library
from amqp_broker.persistence.sqlite import StoreInUse, UnsafeSqlite
from amqp_broker.persistence.sqlite_library import check_library, connect, expect, library_version
from amqp_broker.persistence.store_file import DATABASE_NAME
from tests.persistence.stores import small_store


@pytest.mark.parametrize("version", [(3, 7, 0), (3, 40, 1), (3, 51, 2)])
def test_library_with_the_wal_reset_bug_is_refused(version: tuple[int, ...]) -> None:
    """An old library is refused by its number, and taken when it is allowed explicitly."""
    with pytest.raises(UnsafeSqlite, match=".".join(map(str, version))):
        check_library(version, allow_unsafe=False)
    check_library(version, allow_unsafe=True)


def test_bundled_library_is_safe() -> None:
    """The bundled library is new enough."""
    check_library((3, 51, 3), allow_unsafe=False)
    check_library(library_version(), allow_unsafe=False)


def test_settings_hold(tmp_path: Path) -> None:
    """WAL, FULL, EXCLUSIVE and no checkpoints of SQLite's own, as the connection itself says."""
    store = small_store(tmp_path)
    answers = {
        name: store._connection.execute(f"PRAGMA {name}").fetchall()[0][0]
        for name in ("journal_mode", "synchronous", "locking_mode", "wal_autocheckpoint", "page_size")
    }
    store.close()
    assert answers == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "wal_autocheckpoint": 0,
        "page_size": 8192,
    }


def test_setting_that_is_not_taken_is_noticed() -> None:
    """A database in memory cannot have a WAL, and SQLite says so only to those who read it back."""
    connection = connect(":memory:")
    with pytest.raises(UnsafeSqlite, match="journal_mode=WAL was not taken"):
        expect(connection, "journal_mode", "wal", set_to="WAL")
    connection.close()


def test_octets_are_handed_over_as_they_are() -> None:
    """No error is made of each, on the way to finding that nothing has to be done with it; nor is a copy."""
    adapt: Any = vars(sqlite_library)["sqlite3"].adapt
    octets = b"a body"
    assert adapt(octets) is octets
    assert adapt(None) is None
    connection = connect(":memory:")
    assert connection.execute("SELECT ?, typeof(?1)", (octets,)).fetchall() == [(octets, "blob")]
    connection.close()


def test_page_size_is_configurable(tmp_path: Path) -> None:
    """A new file gets the page size. One that exists keeps its own."""
    small_store(tmp_path, page_size_bytes=32768).close()
    store = small_store(tmp_path)
    assert store._page_size == 32768


def test_no_other_connection_gets_in(tmp_path: Path) -> None:
    """While the store is open nobody else reads the file. While somebody reads it the store does not open."""
    store = small_store(tmp_path)
    foreign = connect(str(tmp_path / DATABASE_NAME))
    with pytest.raises(Exception, match="locked"):
        foreign.execute("SELECT * FROM node").fetchall()
    store.close()
    foreign.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(StoreInUse):
        small_store(tmp_path)
    foreign.close()
    small_store(tmp_path).close()
