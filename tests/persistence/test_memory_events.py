"""The journal of a store without a disk has a bound."""

from __future__ import annotations

import pytest

from amqp_broker.persistence import Event, Journal, MemoryStore, memory_ledger
from amqp_broker.persistence.questions import EventRange
from amqp_broker.testing.store_suite.helpers import do, do_idle_work


def test_the_oldest_runs_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest runs go whole, however young. The last one stays, and the numbers go on."""
    monkeypatch.setattr(memory_ledger, "MEMORY_EVENTS", 100)
    store = MemoryStore()
    do_idle_work(store, 0.0)
    do(store, *[Journal(Event("put", 5, {}, 0, 30)) for _ in range(4)])
    assert store.ask(EventRange()) == (1, 121), "before the store has time"
    do_idle_work(store, 1.0)
    assert store.ask(EventRange()) == (31, 121)
    do(store, Journal(Event("put", 5, {}, 0, 200)))
    do_idle_work(store, 2.0)
    assert store.ask(EventRange()) == (121, 321)
