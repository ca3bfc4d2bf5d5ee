"""What the tests of this room share: stores in temporary directories, damage, and children to kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from amqp_broker.persistence import StoreError
from amqp_broker.persistence.backup import Manifest
from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE, arm, disarm
from amqp_broker.persistence.node_rows import NODE
from amqp_broker.persistence.spreads import SpreadSizes
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.blocking_peer import PATIENCE_S

MIB = 1024 * 1024
IN_ROWS = BodyFileSizes(large_body=0)
"""All bodies are in SQLite."""
SPREAD_ALL = SpreadSizes(runs=1, run_messages=1_000, run_bytes=MIB, messages=8, most=40, gathered=20)
"""Whatever can be spread is."""


_opened: list[SqliteStore] = []


def small_store(directory: Path, **changes: Any) -> SqliteStore:
    """A store without ballast."""
    store = SqliteStore(directory, **{"ballast_bytes": 0, **changes})
    _opened.append(store)
    return store


def close_stores() -> None:
    """Close those of `small_store` that are open still."""
    while _opened:
        _opened.pop().close()


def assert_whole(store: SqliteStore) -> None:
    """Close a store. Verification finds nothing."""
    store.close()
    assert verify_directory(store.directory) == []


def reopened(store: SqliteStore, **changes: Any) -> SqliteStore:
    """The same store, closed, found whole, and opened again."""
    assert_whole(store)
    return small_store(store.directory, **changes)


def backed_up(
    store: SqliteStore, destination: Path, between_steps: Callable[[], object] = lambda: None
) -> Manifest:
    """A backup of a store in use; `between_steps` is called where the store has its turn back."""
    backup = store.begin_backup(destination)
    while store.backup_step():
        between_steps()
    return backup.finish(1)


def edit(directory: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run one statement on the closed store's file, as a vandal would."""
    connection = connect(str(directory / DATABASE_NAME))
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()


def edit_nodes(directory: Path, sql: str) -> None:
    """Run one statement on the rows of nodes, and give each a right checksum, as the store would."""
    edit(directory, sql)
    for row in edit(directory, f"SELECT {', '.join(NODE.names)} FROM node"):
        edit(directory, "UPDATE node SET checksum=? WHERE id=?", NODE.row(*row)[-1], row[0])


def run_child(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def killed_at(point: str, nth: int, code: str, directory: Path) -> list[str]:
    """Run code in a process that dies at the n-th pass of a fault point. Gives the lines it printed."""
    child = run_child(code, directory, **{ENVIRONMENT_VARIABLE: f"{point}:{nth}"})
    assert child.returncode == -signal.SIGKILL, child.stderr
    return child.stdout.splitlines()


@contextmanager
def passed_points(points: Iterable[str]) -> Iterator[list[str]]:
    """The list of those of the fault points that are passed from here on."""
    passed: list[str] = []
    for point in points:
        arm(point, partial(passed.append, point))
    try:
        yield passed
    finally:
        disarm()


def assert_findings(directory: Path, expected: Sequence[str]) -> None:
    """Verification finds as much as is expected, and each finding has its expected words."""
    found = verify_directory(directory)
    assert len(found) == len(expected), found
    for finding, words in zip(found, expected, strict=True):
        assert words in finding


def flipped_files(directory: Path, trials: int, seed: int, near: int | None = None) -> Iterator[Path]:
    """A directory that has, in each trial, the closed store's file with one flipped bit.

    Every second trial flips one within 60 octets of `near`, where that is given.
    """
    sound = (directory / DATABASE_NAME).read_bytes()
    damaged = directory.with_name("damaged")
    damaged.mkdir()
    randomness = random.Random(seed)
    for trial in range(trials):
        data = bytearray(sound)
        if near is not None and trial % 2:
            at = near - 60 + randomness.randrange(120)
        else:
            at = randomness.randrange(len(data))
        data[at] ^= 1 << randomness.randrange(8)
        (damaged / DATABASE_NAME).write_bytes(data)
        yield damaged


def flipped_stores(
    directory: Path, trials: int, seed: int, near: int | None = None
) -> Iterator[SqliteStore | None]:
    """The stores that open on `flipped_files`, and None for each that refuses to."""
    for damaged in flipped_files(directory, trials, seed, near):
        try:
            store = small_store(damaged, synchronous="OFF")
        except StoreError:
            yield None
            continue
        try:
            yield store
        finally:
            store.close()
