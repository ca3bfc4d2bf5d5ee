"""The one way in which the store writes: BEGIN IMMEDIATE, statements, COMMIT.

Why so narrow: after SQLITE_FULL and some other errors SQLite has rolled back by itself, and the next
statement would be a transaction of its own; hence `in_transaction` is looked at before each statement. A
statement that was not fetched to its end hides the error of its commit; hence all are fetched. A COMMIT that
failed with an I/O error may be there after the restart; hence its failure is "unknown", and this connection
does nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from amqp_broker.persistence.errors import StoreCorrupt, StoreError, StoreFailed, StoreFull
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, Parameters, translate

Row = tuple[Any, ...]
_NO_PARAMETERS: Final[Parameters] = ()


class UnitOfWork:
    """Transactions of one connection, one after the other. `failure` is set once and for all."""

    __slots__ = ("_connection", "failure")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.failure: StoreFailed | None = None

    def check(self) -> None:
        """Raises StoreFailed if anything failed before."""
        if self.failure is not None:
            raise StoreFailed(f"the store failed before and refuses everything: {self.failure}")

    def begin(self) -> None:
        """Raises StoreFull or StoreFailed; then no transaction is open."""
        self.check()
        assert not self._connection.in_transaction, "begin inside a transaction"
        try:
            self._connection.execute("BEGIN IMMEDIATE").fetchall()
        except DATABASE_ERRORS as error:
            raise self._ended(error) from error

    def execute(self, sql: str, parameters: Parameters = _NO_PARAMETERS) -> int:
        """Run one statement inside the transaction; the number of rows it changed.

        Raises StoreFull or StoreCorrupt (rolled back, the caller may begin again) or StoreFailed.
        """
        if not self._connection.in_transaction:
            raise self._vanished()
        try:
            cursor = self._connection.execute(sql, parameters)
            cursor.fetchall()
            return cursor.rowcount
        except DATABASE_ERRORS as error:
            raise self._ended(error) from error

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run one statement for each row; the first error ends it. Raises as `execute`."""
        if not self._connection.in_transaction:
            raise self._vanished()
        try:
            return self._connection.executemany(sql, rows).rowcount
        except DATABASE_ERRORS as error:
            raise self._ended(error) from error

    def query(self, sql: str, parameters: Parameters = _NO_PARAMETERS) -> list[Row]:
        """All rows. A read that fails ends an open transaction like a write. Raises as `execute`."""
        self.check()
        inside = self._connection.in_transaction
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except DATABASE_ERRORS as error:
            if inside:
                raise self._ended(error) from error
            raise self._classified(error) from error

    def commit(self) -> None:
        """Durable when it returns. Raises StoreFull (rolled back) or StoreFailed (unknown, and final)."""
        if not self._connection.in_transaction:
            raise self._vanished()
        fault_point("commit.before")
        try:
            self._connection.execute("COMMIT").fetchall()
        except DATABASE_ERRORS as error:
            # A full disk stops the commit before its last frame: SQLite keeps the transaction open, and says
            # so.
            if isinstance(translate(error), StoreFull) and self._connection.in_transaction:
                raise self._ended(error) from error
            raise self._fail(f"COMMIT failed, its outcome is unknown: {error}") from error
        fault_point("commit.after")

    def rollback(self) -> None:
        """Undo what the open transaction did; harmless without one. Raises StoreFailed."""
        if not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK").fetchall()
        except DATABASE_ERRORS as error:
            raise self._fail(f"ROLLBACK failed: {error}") from error

    def _ended(self, error: Exception) -> StoreError:
        """The transaction is over. After a full disk or a damaged page the store is usable, else not."""
        self.rollback()
        return self._classified(error)

    def _classified(self, error: Exception) -> StoreError:
        meaning = translate(error)
        if isinstance(meaning, StoreFull | StoreCorrupt):
            return meaning
        return self._fail(str(meaning))

    def give_up(self, error: StoreFailed) -> None:
        """What was found leaves no way to go on: everything is refused from now on."""
        self._fail(str(error))

    def _vanished(self) -> StoreFailed:
        self.check()
        return self._fail("the transaction ended by itself before the unit was complete")

    def _fail(self, why: str) -> StoreFailed:
        if self.failure is None:
            self.failure = StoreFailed(why)
        return self.failure
