"""The journal is bounded in bytes: the oldest rows go, in a store on disk and in memory alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    CursorsOf,
    Event,
    EventRange,
    EventsFrom,
    Journal,
    MemoryStore,
    MoveCursor,
    Store,
    event_table,
)
from amqp_broker.persistence.halves import ROW_BYTES, size_of_event
from amqp_broker.persistence.retention import JOURNAL_ID
from amqp_broker.persistence.sqlite import check_directory
from amqp_broker.testing.store_suite.helpers import do, do_idle_work
from tests.persistence.stores import small_store

MakeStore = Callable[[int], Store]
KEPT = 10


def logged(number: int) -> Event:
    """Events of one size."""
    return Event("kind", 1_000, {"number": f"{number:05}", "text": "\u00fc" * 50})


EACH = size_of_event(logged(0))


@pytest.fixture(params=["memory", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A store that keeps so many bytes of events."""
    if request.param == "memory":
        return lambda keep_bytes: MemoryStore(event_keep_bytes=keep_bytes)
    return lambda keep_bytes: small_store(tmp_path, event_keep_bytes=keep_bytes)


def test_the_oldest_go_beyond_the_bound(make_store: MakeStore) -> None:
    """Exactly the oldest events go, though they are young and a cursor has not read them."""
    store = make_store(KEPT * EACH)
    do_idle_work(store, 0.0)
    do(store, *[Journal(logged(number)) for number in range(KEPT)], MoveCursor("c", JOURNAL_ID, 1, 5))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, KEPT + 1), "as many as are allowed"
    for number in range(KEPT, 4 * KEPT):
        do(store, Journal(logged(number)))
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (number + 2 - KEPT, number + 2)
    assert [event.fields["number"] for event in store.ask(EventsFrom(0, 99))][0] == f"{3 * KEPT:05}"
    offsets = [cursor.offset for cursor in store.ask(CursorsOf("c"))]
    assert offsets == [1], "a reader learns where the journal begins"
    store.close()


def test_runs_go_whole_and_the_last_row_stays(make_store: MakeStore) -> None:
    """A run goes as a whole. The last row stays, also where it is larger than the bound."""
    store = make_store(2_000)
    do_idle_work(store, 0.0)
    numbers: list[str | int | None] = [*range(1_000)]
    run = Event("put", 2, {}, 0, len(numbers), {"offset": numbers})
    assert size_of_event(run) > 2_000 + ROW_BYTES
    do(store, Journal(logged(0)), Journal(run))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (2, 1_002)
    do(store, Journal(logged(1)))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1_002, 1_003)
    store.close()


def test_abandoned_events_do_not_count(make_store: MakeStore) -> None:
    """Only committed events count."""
    store = make_store(KEPT * EACH)
    do_idle_work(store, 0.0)
    for _ in range(3):
        store.apply([[Journal(logged(number))] for number in range(KEPT)])
        store.abandon()
    do(store, *[Journal(logged(number)) for number in range(KEPT)])
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, KEPT + 1)
    store.close()


def test_no_bound_is_the_default(make_store: MakeStore) -> None:
    """With the bound 0 events are kept by time only."""
    store = make_store(0)
    do(store, *[Journal(logged(number)) for number in range(50)])
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, 51)
    store.close()


@pytest.mark.parametrize("rows", [3, 7, 20, 1_000])
def test_what_was_there_is_counted_in_steps(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, also with a new bound, the store counts in steps. Then the bound holds."""
    monkeypatch.setattr(event_table, "FORGET_ROWS", rows)
    store = small_store(tmp_path)
    do(store, *[Journal(logged(number)) for number in range(20)])
    store.close()
    for first in (15, 25):
        store = small_store(tmp_path, event_keep_bytes=KEPT * EACH)
        store.idle(0.0)
        do(store, *[Journal(logged(number)) for number in range(5)])
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (first + 1, first + 11)
        do(store, *[Journal(logged(number)) for number in range(5)])
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (first + 6, first + 16)
        store.close()
        assert check_directory(tmp_path) == []
