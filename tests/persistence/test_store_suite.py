"""The suite of all stores, for the one in memory and the one on disk."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing.store_suite import SUITE, StoreTest, run_store_suite
from tests.persistence.stores import SPREAD_ALL, small_store

SETTINGS: list[dict[str, Any]] = [
    {},
    {"run_cache_messages": 1},
    {"body_files": BodyFileSizes(large_body=1, commit=1, file=64 * 1024)},
    {"spread": SPREAD_ALL},
]


@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.name)
def test_memory_store(test: StoreTest) -> None:
    """The store in memory passes the suite."""
    test(MemoryStore)


@pytest.mark.parametrize("settings", SETTINGS, ids=["cache", "no cache", "in files", "spread"])
@pytest.mark.parametrize("test", SUITE, ids=lambda test: test.name)
def test_sqlite_store(test: StoreTest, settings: dict[str, Any], tmp_path: Path) -> None:
    """The store on disk passes the suite with and without a cache of runs, also where all bodies are large
    ones, or all runs share rows, and leaves sound files.
    """
    numbers = count()

    def make_store(**limits: int) -> Store:
        return small_store(tmp_path / str(next(numbers)), **limits, **settings)

    test(make_store)
    for directory in tmp_path.iterdir():
        assert verify_directory(directory) == []


def test_as_one_function() -> None:
    """The suite runs as the one call that other implementations use."""
    run_store_suite(MemoryStore)
