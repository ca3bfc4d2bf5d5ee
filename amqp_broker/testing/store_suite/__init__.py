"""The suite that every implementation of a `Store` passes, as one function::

    from amqp_broker.testing.store_suite import run_store_suite

    run_store_suite(make_store)

`make_store` makes a new, empty store each time that it is called. Each test is a plain function that takes
it, so that a test runner may also take them one by one, from `SUITE`, `KEEPING_SUITE` and
`EVENT_KEEPING_SUITE`.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.testing.store_suite import (
    discharges,
    events,
    forgotten_halves,
    halves,
    queues,
    retention,
    sets,
    streams,
)
from amqp_broker.testing.store_suite.discharges import KEEPING_SUITE
from amqp_broker.testing.store_suite.events import EVENT_KEEPING_SUITE
from amqp_broker.testing.store_suite.helpers import MakeEventStore, MakeKeepingStore, MakeStore, Suite

__all__ = [
    "EVENT_KEEPING_SUITE",
    "KEEPING_SUITE",
    "SUITE",
    "MakeEventStore",
    "MakeKeepingStore",
    "MakeStore",
    "run_store_suite",
]

SUITE: Final[Suite] = (
    *queues.SUITE,
    *discharges.SUITE,
    *halves.SUITE,
    *forgotten_halves.SUITE,
    *streams.SUITE,
    *events.SUITE,
    *retention.SUITE,
    *sets.SUITE,
)


def run_store_suite(
    make_store: MakeStore,
    make_keeping_store: MakeKeepingStore | None = None,
    make_event_store: MakeEventStore | None = None,
) -> None:
    """Run all tests. Raises AssertionError with what was expected.

    `make_keeping_store(keep_ms, keep_count)` makes a store that forgets outcomes of transactions by these
    limits, `make_event_store(event_keep_ms)` one that forgets events. Without them their tests are left out.
    """
    for test in SUITE:
        test(make_store)
    if make_keeping_store is not None:
        for keeping_test in KEEPING_SUITE:
            keeping_test(make_keeping_store)
    if make_event_store is not None:
        for event_test in EVENT_KEEPING_SUITE:
            event_test(make_event_store)
