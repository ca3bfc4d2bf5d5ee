"""The suite of all stores, for the one in memory and the one on disk."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing.store_suite import SUITE, StoreTest, run_store_suite
from tests.persistence.stores import small_store


@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.name)
def test_memory_store(test: StoreTest) -> None:
    """The store in memory passes the suite."""
    test(MemoryStore)


@pytest.mark.parametrize("cache", [{}, {"run_cache_messages": 1}], ids=["cache", "no cache"])
@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.name)
def test_sqlite_store(test: StoreTest, cache: dict[str, int], tmp_path: Path) -> None:
    """The store on disk passes the suite with and without a cache of runs, and leaves a sound file."""
    numbers = count()

    def make_store(**limits: int) -> Store:
        return small_store(tmp_path / str(next(numbers)), **limits, **cache)

    test(make_store)
    for directory in tmp_path.iterdir():
        assert verify_directory(directory) == []


def test_as_one_function() -> None:
    """The suite runs as the one call that other implementations use."""
    run_store_suite(MemoryStore)
