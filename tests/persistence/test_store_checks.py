"""One behaviour suite for both stores, shipped as a function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.sqlite import SqliteStore, check_directory
from amqp_broker.persistence.store_checks import CHECKS, MakeStore, check_store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_memory_store(check: Callable[[MakeStore], None]) -> None:
    """The reference does what every store does."""
    check(MemoryStore)


@pytest.mark.parametrize("cache", [None, 1], ids=["cache", "no cache"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_sqlite_store(check: Callable[[MakeStore], None], cache: int | None, tmp_path: Path) -> None:
    """The store on disk does the same, with and without its runs in memory, and leaves a sound file."""
    numbers = count()

    def make_store() -> Store:
        directory = tmp_path / str(next(numbers))
        if cache is None:
            return SqliteStore(directory, ballast_bytes=0)
        return SqliteStore(directory, ballast_bytes=0, run_cache_messages=cache)

    check(make_store)
    for directory in tmp_path.iterdir():
        assert check_directory(directory) == []


def test_as_one_function() -> None:
    """The suite runs as the one call that other implementations use."""
    check_store(MemoryStore)
