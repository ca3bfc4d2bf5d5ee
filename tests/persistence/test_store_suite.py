"""The suite of all stores, for the one in memory and the one on disk."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.sqlite import SqliteStore, check_directory
from amqp_broker.testing.store_suite import (
    EVENT_KEEPING_SUITE,
    KEEPING_SUITE,
    SUITE,
    MakeEventStore,
    MakeKeepingStore,
    MakeStore,
    run_store_suite,
)


def keeping_memory_store(keep_ms: int, keep_count: int) -> Store:
    return MemoryStore(discharge_keep_ms=keep_ms, discharge_keep_count=keep_count)


def event_memory_store(event_keep_ms: int) -> Store:
    return MemoryStore(event_keep_ms=event_keep_ms)


@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.__name__)
def test_memory_store(test: Callable[[MakeStore], None]) -> None:
    """The store in memory passes the suite."""
    test(MemoryStore)


@pytest.mark.parametrize("test", KEEPING_SUITE, ids=lambda test: test.__name__)
def test_memory_store_forgets(test: Callable[[MakeKeepingStore], None]) -> None:
    """The store in memory keeps outcomes of transactions as every store does."""
    test(keeping_memory_store)


@pytest.mark.parametrize("cache", [None, 1], ids=["cache", "no cache"])
@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.__name__)
def test_sqlite_store(test: Callable[[MakeStore], None], cache: int | None, tmp_path: Path) -> None:
    """The store on disk passes the suite with and without a cache of runs, and leaves a sound file."""
    numbers = count()

    def make_store() -> Store:
        directory = tmp_path / str(next(numbers))
        if cache is None:
            return SqliteStore(directory, ballast_bytes=0)
        return SqliteStore(directory, ballast_bytes=0, run_cache_messages=cache)

    test(make_store)
    for directory in tmp_path.iterdir():
        assert check_directory(directory) == []


@pytest.mark.parametrize("test", KEEPING_SUITE, ids=lambda test: test.__name__)
def test_sqlite_store_forgets(test: Callable[[MakeKeepingStore], None], tmp_path: Path) -> None:
    """The store on disk keeps outcomes of transactions as every store does, and leaves a sound file."""

    def make_store(keep_ms: int, keep_count: int) -> Store:
        return SqliteStore(
            tmp_path / "data",
            ballast_bytes=0,
            discharge_keep_ms=keep_ms,
            discharge_keep_count=keep_count,
        )

    test(make_store)
    assert check_directory(tmp_path / "data") == []


@pytest.mark.parametrize("test", EVENT_KEEPING_SUITE, ids=lambda test: test.__name__)
def test_events_are_forgotten(test: Callable[[MakeEventStore], None], tmp_path: Path) -> None:
    """Both stores keep events alike, and the one on disk leaves a sound file."""
    test(event_memory_store)
    test(lambda keep_ms: SqliteStore(tmp_path / "data", ballast_bytes=0, event_keep_ms=keep_ms))
    assert check_directory(tmp_path / "data") == []


def test_as_one_function() -> None:
    """The suite runs as the one call that other implementations use."""
    run_store_suite(MemoryStore, keeping_memory_store, event_memory_store)
