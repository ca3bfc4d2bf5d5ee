"""The SQLite library and a connection with the settings that durability depends on, each read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from amqp_broker.persistence.errors import (
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreInUse,
    UnsafeSqlite,
)

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:  # no wheel for this platform: the version check decides about the system's library
        import sqlite3

# 3.7.0 to 3.51.2 have the WAL-reset bug: two connections that write or checkpoint at once can corrupt the
# file.
OLDEST_SAFE_SQLITE: Final = (3, 51, 3)

# Primary result codes, https://sqlite.org/rescode.html
SQLITE_BUSY: Final = 5
SQLITE_CORRUPT: Final = 11
SQLITE_FULL: Final = 13
SQLITE_NOTADB: Final = 26

SYNCHRONOUS_LEVELS: Final = {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}

Connection = sqlite3.Connection
# The second one: the text of an error may quote a damaged schema.
DATABASE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
Parameters = tuple[object, ...]


def _nothing(_none: None) -> None:
    """NULL."""


# pysqlite3 asks each value but an int, float, str and bytearray how it is to be stored. Octets and None have
# no answer, and the errors of looking for one cost as much as half a statement. These return what they get.
_AS_THEY_ARE: Final[dict[type[Any], Any]] = {bytes: bytes, type(None): _nothing}
for _kind, _as_it_is in _AS_THEY_ARE.items():
    if (_kind, sqlite3.PrepareProtocol) not in sqlite3.adapters:
        sqlite3.register_adapter(_kind, _as_it_is)


@attrs.frozen
class Pragmas:
    """What a connection runs with; sizes in bytes."""

    page_size: int
    cache_bytes: int
    wal_limit_bytes: int
    synchronous: str = "FULL"  # anything else is for the proof that the power-loss tests can fail


def check_library(version: tuple[int, ...], allow_unsafe: bool) -> None:
    """Raises UnsafeSqlite for a library with the WAL-reset bug, unless it is allowed explicitly."""
    if version < OLDEST_SAFE_SQLITE and not allow_unsafe:
        found = ".".join(map(str, version))
        raise UnsafeSqlite(
            f"SQLite {found} can corrupt a WAL database (fixed in 3.51.3); install pysqlite3, which brings "
            "its own library, or allow the unsafe one explicitly"
        )


def library_version() -> tuple[int, ...]:
    """The version of the SQLite library that would be used."""
    return tuple(map(int, sqlite3.sqlite_version.split(".")))


def connect(path: str, *, uri: bool = False) -> Connection:
    """A connection in autocommit mode: transactions begin and end only where we say so."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, uri=uri)


def open_connection(path: str, pragmas: Pragmas) -> Connection:
    """The one connection of a store. Raises StoreInUse, StoreCorrupt, StoreFailed, UnsafeSqlite."""
    try:
        connection = connect(path)
    except DATABASE_ERRORS as error:
        raise translate(error) from error
    try:
        configure(connection, pragmas)
    except BaseException:
        connection.close()
        raise
    return connection


def configure(connection: Connection, pragmas: Pragmas) -> None:
    """Make the settings, and read them back: SQLite answers a PRAGMA that it did not take with silence."""
    try:
        # EXCLUSIVE comes first: before the first access it keeps the WAL index in this process's memory.
        expect(connection, "locking_mode", "exclusive", set_to="EXCLUSIVE")
        if connection.execute("PRAGMA page_count").fetchall() == [(0,)]:
            # In a file that is not new, the second one would be a commit of its own.
            connection.execute(f"PRAGMA page_size={pragmas.page_size}").fetchall()
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL").fetchall()
        expect(connection, "journal_mode", "wal", set_to="WAL")
        level = SYNCHRONOUS_LEVELS[pragmas.synchronous]
        expect(connection, "synchronous", level, set_to=pragmas.synchronous)
        expect(connection, "fullfsync", 1, set_to="ON")
        expect(connection, "checkpoint_fullfsync", 1, set_to="ON")
        expect(connection, "wal_autocheckpoint", 0, set_to="0")
        expect(connection, "journal_size_limit", pragmas.wal_limit_bytes, set_to=str(pragmas.wal_limit_bytes))
        expect(
            connection, "cache_size", -(pragmas.cache_bytes // 1024), set_to=f"-{pragmas.cache_bytes // 1024}"
        )
        expect(connection, "cell_size_check", 1, set_to="ON")
        expect(connection, "trusted_schema", 0, set_to="OFF")
        # The first write takes the exclusive lock, and a foreign connection shows here and not in a commit.
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.execute("ROLLBACK").fetchall()
    except DATABASE_ERRORS as error:
        raise translate(error) from error


def expect(connection: Connection, name: str, value: object, set_to: str) -> None:
    """Set a PRAGMA and compare what it reads back. Raises UnsafeSqlite."""
    connection.execute(f"PRAGMA {name}={set_to}").fetchall()
    rows = connection.execute(f"PRAGMA {name}").fetchall()
    if rows != [(value,)]:
        raise UnsafeSqlite(
            f"PRAGMA {name}={set_to} was not taken: expected {value!r}, SQLite answers {rows!r}"
        )


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code of an error, 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translate(error: BaseException) -> StoreError:
    """What an error of SQLite means for the store."""
    code = primary_code(error)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    text = f"{name}: {error}"
    if code == SQLITE_FULL:
        return StoreFull(f"the disk is full ({text})")
    if code in (SQLITE_CORRUPT, SQLITE_NOTADB) or isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(f"the database file is damaged ({text})")
    if code == SQLITE_BUSY:
        return StoreInUse(f"another connection has the database file ({text})")
    return StoreFailed(f"the database failed ({text})")


def raise_translated(error: BaseException) -> NoReturn:
    """Raise what `error` means for the store."""
    raise translate(error) from error


def verify(copy: Connection) -> None:
    """Is a copy whole, as SQLite sees it? Raises StoreFailed."""
    rows = copy.execute("PRAGMA quick_check").fetchall()
    if rows != [("ok",)]:
        raise StoreFailed(f"the copy is damaged: {rows[:3]!r}")
