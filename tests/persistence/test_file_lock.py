"""One broker for each data directory, and who may read it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amqp_broker.persistence import CreateNode, Post
from amqp_broker.persistence.fault_points import arm
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite import StoreInUse, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, offsets
from tests.persistence.stores import backed_up, run_child, small_store

HOLD = """
import sys
from amqp_broker.persistence.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], ballast_bytes=0)
print("open", flush=True)
sys.stdin.read()
"""


def test_second_store_is_refused(tmp_path: Path) -> None:
    """A second store is refused, also in the same process. Closing the first one frees the directory."""
    first = small_store(tmp_path)
    queue_id = new_queue(first)
    with pytest.raises(StoreInUse, match=str(os.getpid())):
        small_store(tmp_path)
    with pytest.raises(StoreInUse):
        verify_directory(tmp_path)
    do(first, Post(queue_id, messages(0, 1)))
    child = run_child(HOLD, tmp_path)
    assert child.returncode != 0 and "StoreInUse" in child.stderr
    assert offsets(first, queue_id) == [0]
    first.close()
    small_store(tmp_path).close()


def test_lock_goes_with_the_process(tmp_path: Path) -> None:
    """However the process ends, even by kill -9, the next broker starts."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse, match=str(child.pid)):
            small_store(tmp_path)
        child.send_signal(signal.SIGKILL)
        child.wait()
    small_store(tmp_path).close()
    assert (tmp_path / LOCK_NAME).exists()


def test_data_directory_is_private(tmp_path: Path) -> None:
    """A directory that the store makes has mode 0700, its files 0600, also after the WAL was made again."""
    directory = tmp_path / "not" / "there" / "yet"
    store = small_store(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    store.close()
    store = small_store(directory)
    new_queue(store)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes == {LOCK_NAME: 0o600, DATABASE_NAME: 0o600, DATABASE_NAME + "-wal": 0o600}


def test_existing_directory_is_left_as_it_is(tmp_path: Path) -> None:
    """The mode of a directory that was there, which may be /tmp, is not changed."""
    directory = tmp_path / "mine"
    directory.mkdir(mode=0o755)
    small_store(directory).close()
    assert directory.stat().st_mode & 0o777 == 0o755


_opened: list[str] | None = None


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


sys.addaudithook(_hook)


def test_nothing_but_sqlite_opens_the_database_file(tmp_path: Path) -> None:
    """Python never opens the database: closing a descriptor of it would drop SQLite's locks."""
    global _opened
    _opened = []
    try:
        store = small_store(tmp_path / "data", ballast_bytes=4096, low_water_bytes=0)
        queue_id = new_queue(store)
        do(store, Post(queue_id, messages(0, 100)))
        backed_up(store, tmp_path / "copy")
        store.idle(0.0)
        offsets(store, queue_id)
        store.close()
        small_store(tmp_path / "data").close()
        verify_directory(tmp_path / "data")
        seen = set(_opened)
    finally:
        _opened = None
    assert any(LOCK_NAME in path for path in seen), "the hook sees nothing"
    files = {path for path in seen if Path(path).name.startswith(DATABASE_NAME) and "copy" not in path}
    assert files <= {str(tmp_path / "data" / DATABASE_NAME) + LOG_SUFFIX}


def test_overlapping_turns_are_our_own_bug(tmp_path: Path) -> None:
    """While a worker commits, the loop's thread must not touch the store."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    errors: list[BaseException] = []
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    store.apply([[Post(queue_id, messages(0, 1))]])
    arm("commit.before", pause)
    worker = threading.Thread(target=store.commit)
    worker.start()
    assert inside.wait(PATIENCE_S)
    for call in (
        lambda: store.apply([[CreateNode("b", "queue")]]),
        lambda: store.ask(PageOf(queue_id, 0, 1, 1)),
        store.recover,
        store.commit,
        store.abandon,
        lambda: store.idle(0.0),
        store.close,
    ):
        try:
            call()
        except AssertionError as error:
            errors.append(error)
    go_on.set()
    worker.join()
    assert len(errors) == 7
    assert offsets(store, queue_id) == [0]
