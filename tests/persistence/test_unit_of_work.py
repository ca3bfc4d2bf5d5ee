"""Units of work: what happens when SQLite fails, for real where it can be brought about."""

from __future__ import annotations

import ast
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import amqp_broker.persistence as room
from amqp_broker.persistence import CreateNode, Post, Retire, StoreFailed, StoreFull, Unit
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, offsets, read_all
from tests.persistence.stores import assert_whole, reopened, small_store


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """The kernel refuses to make any file of this process longer: SQLite sees EFBIG, an I/O error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def unit_on_table() -> UnitOfWork:
    connection = connect(":memory:")
    connection.execute("CREATE TABLE t (a UNIQUE)").fetchall()
    return UnitOfWork(connection)


def test_transaction_that_vanished_is_noticed_before_the_next_statement() -> None:
    """A statement never becomes a transaction of its own. From then on everything is refused."""
    unit = unit_on_table()
    unit.begin()
    unit.execute("INSERT INTO t VALUES (1)")
    unit._connection.execute("ROLLBACK").fetchall()  # as SQLite does by itself after some errors
    with pytest.raises(StoreFailed, match="ended by itself"):
        unit.execute("INSERT INTO t VALUES (2)")
    for refused in (
        unit.begin,
        unit.commit,
        lambda: unit.query("SELECT 1"),
        lambda: unit.execute("SELECT 1"),
    ):
        with pytest.raises(StoreFailed, match="refuses everything"):
            refused()
    assert unit._connection.execute("SELECT * FROM t").fetchall() == []


def test_vanished_transaction_is_noticed_at_many_and_at_commit() -> None:
    """`execute_many` and `commit` notice a vanished transaction, too."""
    for call in ("execute_many", "commit"):
        unit = unit_on_table()
        unit.begin()
        unit._connection.execute("ROLLBACK").fetchall()
        with pytest.raises(StoreFailed, match="ended by itself"):
            if call == "commit":
                unit.commit()
            else:
                unit.execute_many("INSERT INTO t VALUES (?)", [(1,)])


def test_statement_that_fails_undoes_the_unit() -> None:
    """An error that is neither a full disk nor damage is final, and nothing of the unit stays."""
    unit = unit_on_table()
    unit.begin()
    unit.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(StoreFailed, match="UNIQUE"):
        unit.execute("INSERT INTO t VALUES (1)")
    assert not unit._connection.in_transaction
    assert unit._connection.execute("SELECT * FROM t").fetchall() == []


def test_every_statement_is_fetched_to_its_end() -> None:
    """In the source of persistence each `execute` is fetched at once: its error could hide in the rest."""
    for path in Path(room.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        fetched = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr == "fetchall"
        }
        cursors = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "cursor"
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "execute"
            ):
                owner = ast.unparse(node.func.value)
                if owner.endswith("unit"):
                    continue  # UnitOfWork.execute, which fetches
                assert node in fetched or node in cursors, f"{path.name}:{node.lineno} is not fetched"


def test_io_error_at_commit_is_unknown_and_final(tmp_path: Path) -> None:
    """After it the store refuses everything. The next start finds the group wholly there or not at all."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 10)))
    with files_limited_to((tmp_path / "store.sqlite3-wal").stat().st_size + 20_000):
        store.apply([[Post(queue_id, messages(10, 100, size=1000))]])
        with pytest.raises(StoreFailed, match="unknown"):
            store.commit()
    for refused in (
        lambda: store.apply([[]]),
        lambda: store.ask(PageOf(queue_id, 0, 1, 1)),
        store.recover,
        lambda: store.idle(0.0),
        lambda: store.begin_backup(tmp_path / "copy"),
    ):
        with pytest.raises(StoreFailed):
            refused()
    store = reopened(store)
    assert offsets(store, queue_id) in ([*range(10)], [*range(110)])


def test_io_error_in_a_statement_is_final(tmp_path: Path) -> None:
    """When a page has to be written before the commit and cannot be, the store refuses everything."""
    store = small_store(tmp_path, cache_bytes=64 * 1024)
    queue_id = new_queue(store)
    with files_limited_to(200_000), pytest.raises(StoreFailed):
        store.apply([[Post(queue_id, messages(0, 3000, size=1000))]])
        store.commit()
    with pytest.raises(StoreFailed):
        store.apply([[]])
    store.close()
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == []


def test_full_database_undoes_the_group_and_settling_goes_on(tmp_path: Path) -> None:
    """After SQLITE_FULL nothing happened, and the same units again are answered one by one."""
    store = small_store(tmp_path, free_bytes=lambda: 1 << 40)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 100, size=1000)))
    ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
    store._connection.execute(f"PRAGMA max_page_count={pages + 5}").fetchall()
    create = CreateNode("other", "queue")
    units: list[Unit] = [[Retire(queue_id, 0, 9)], [create], [Post(queue_id, messages(100, 900, size=1000))]]
    with pytest.raises(StoreFull):
        store.apply(units)
    assert [record.offset for record in read_all(store, queue_id)] == list(range(100))
    answers = store.apply(units)
    store.commit()
    assert [type(answer) for answer in answers] == [type(None), type(None), StoreFull]
    assert offsets(store, queue_id) == list(range(10, 100))
    assert [node.name for node in store.recover().nodes] == ["orders", "other"]
    store._connection.execute("PRAGMA max_page_count=1000000").fetchall()
    do(store, Post(queue_id, messages(100, 900, size=1000)))
    assert offsets(store, queue_id) == list(range(10, 1000))
    assert_whole(store)
