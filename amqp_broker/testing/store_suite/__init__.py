"""The suite that every implementation of a `Store` passes, as one function::

    from amqp_broker.testing.store_suite import run_store_suite

    run_store_suite(make_store)

`make_store` makes a new, empty store each time that it is called, with the limits that it is given, which are
keywords of `MemoryStore`. Each test is a function of it, so that a test runner may also take them one by one,
from `SUITE`.
"""

from __future__ import annotations

from amqp_broker.testing.store_suite import (  # noqa: F401 - each takes its tests into the suite
    discharges,
    events,
    forgotten_halves,
    halves,
    queues,
    retention,
    sets,
    streams,
    termini,
)
from amqp_broker.testing.store_suite.helpers import SUITE, MakeStore, StoreTest

__all__ = ["SUITE", "MakeStore", "StoreTest", "run_store_suite"]


def run_store_suite(make_store: MakeStore) -> None:
    """Run all tests. Raises AssertionError with what was expected."""
    for test in SUITE:
        test(make_store)
