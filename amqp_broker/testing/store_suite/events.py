"""What every store does with events."""

from __future__ import annotations

import attrs

from amqp_broker.persistence import JOURNAL_ID, Event, Journal, MoveCursor, NoSuchNode, Post, Store, Unit
from amqp_broker.persistence.halves import EVENT_RUN_MAX, ROW_BYTES, size_of_event
from amqp_broker.persistence.questions import CursorsOf, EventRange, EventsFrom
from amqp_broker.testing.store_suite.halves import PUT_AT_MS
from amqp_broker.testing.store_suite.helpers import (
    LATE_S,
    do,
    do_idle_work,
    do_units,
    is_a_mistake,
    messages,
    new_queue,
    store_test,
)


def event(number: int, at_ms: int = PUT_AT_MS) -> Journal:
    """An event whose kind and fields hold its number."""
    return Journal(Event(f"half.{number}", at_ms, {"number": number, "text": f'"{number} ü\n'}))


@store_test()
def events_are_numbered_without_gaps(store: Store) -> None:
    """Events are numbered in the order of the units that happened, and each event learns its number."""
    queue_id = new_queue(store)
    assert store.ask(EventsFrom(0, 10)) == []
    first = event(1)
    do(store, first)
    assert first.event.seq == 1
    store.apply([[event(0)]])
    store.abandon()
    gone: Unit = [event(0), Post(queue_id + 5, messages(0, 1))]
    units: list[Unit] = [[event(2), event(3)], gone, [event(4), Post(queue_id, messages(0, 1))]]
    do_units(store, units)
    found = store.ask(EventsFrom(0, 10))
    assert [one.seq for one in found] == [1, 2, 3, 4]
    assert [one.kind for one in found] == ["half.1", "half.2", "half.3", "half.4"]
    expected = attrs.evolve(event(3).event, seq=3)
    assert found[2] == expected
    assert [one.seq for one in store.ask(EventsFrom(2, 2))] == [2, 3]
    assert store.ask(EventsFrom(5, 10)) == []
    found[0].fields["number"] = 99
    assert store.ask(EventsFrom(1, 1)) == [attrs.evolve(event(1).event, seq=1)], "what is read is a copy"


def run(count: int, at_ms: int = PUT_AT_MS) -> Journal:
    """A run of events. Each has its own number, and every third one has no text."""
    numbers: list[str | int | None] = list(range(count))
    texts: list[str | int | None] = [None if n % 3 == 2 else f'"{n} ü' for n in range(count)]
    return Journal(Event("put", at_ms, {"queue": "q"}, 0, count, {"number": numbers, "text": texts}))


def entries(journal: Journal) -> list[Event]:
    """The single events that a store answers for a run."""
    event = journal.event
    found = []
    for at in range(event.count):
        own = {name: values[at] for name, values in event.columns.items()}
        fields = {**event.fields, **{name: value for name, value in own.items() if value is not None}}
        found.append(Event(event.kind, event.at_ms, fields, event.seq + at))
    return found


@store_test()
def runs_of_events_are_read_one_by_one(store: Store) -> None:
    """Each entry has its number and its own fields, wherever a page begins and ends."""
    assert store.ask(EventRange()) == (1, 1)
    runs = [event(0), run(1), run(7), Journal(Event("plain", 1, {"a": 1}, 0, 3)), event(1), run(300), run(2)]
    do(store, *runs[:3])
    assert store.ask(EventRange()) == (1, 10)
    do_units(store, [[each] for each in runs[3:]])
    expected = [entry for each in runs for entry in entries(each)]
    assert [entry.seq for entry in expected] == [*range(1, 316)]
    assert store.ask(EventRange()) == (1, 316)
    assert store.ask(EventsFrom(0, 1000)) == expected
    for first in (-5, 0, 1, 2, 3, 5, 9, 10, 12, 13, 14, 150, 313, 314, 315, 316, 400):
        for count in (0, 1, 2, 8, 200):
            found = store.ask(EventsFrom(first, count))
            assert found == expected[max(first, 1) - 1 :][:count], (first, count)
    found = store.ask(EventsFrom(3, 2))
    found[0].fields["number"] = 99
    assert store.ask(EventsFrom(3, 2)) == expected[2:4], "what is read is a copy"


@store_test()
def run_belongs_to_its_unit(store: Store) -> None:
    """A refused unit and an abandoned group take no numbers. What is stored is a copy."""
    queue_id = new_queue(store)
    store.apply([[run(5)]])
    store.abandon()
    gone: Unit = [run(5), Post(queue_id + 5, messages(0, 1))]
    kept = run(4)
    kept_unit: Unit = [kept, Post(queue_id, messages(0, 1))]
    errors = do_units(store, [gone, kept_unit])
    assert [type(error) for error in errors] == [NoSuchNode, type(None)]
    assert (kept.event.seq, store.ask(EventRange())) == (1, (1, 5))
    expected = entries(kept)
    kept.event.columns["number"][0] = 77
    assert store.ask(EventsFrom(0, 9)) == expected


@store_test()
def runs_have_as_many_values_as_entries(store: Store) -> None:
    """Too few values, no event, and more events than a run may have are mistakes of the caller."""
    wrong = [
        Event("k", 1, {}, 0, 2, {"n": [1]}),
        Event("k", 1, {}, 0, 0),
        Event("k", 1, {}, 0, EVENT_RUN_MAX + 1),
    ]
    for each in wrong:
        assert is_a_mistake(store, [Journal(each)]), each
    do(store, Journal(Event("k", 1, {}, 0, EVENT_RUN_MAX)))
    assert store.ask(EventRange()) == (1, 1 + EVENT_RUN_MAX)


@store_test(event_keep_ms=1_000_000)
def runs_are_forgotten_as_a_whole(store: Store) -> None:
    """The oldest runs go first, each as a whole. The last one stays, with all its numbers."""
    do_idle_work(store, 0.0)
    do(store, run(10), event(1))
    do_idle_work(store, 1.0)
    do_idle_work(store, 500.0)
    do(store, run(20, PUT_AT_MS + 500_000))
    do_idle_work(store, 500.1)
    do_idle_work(store, 1000.0 + LATE_S)
    assert (store.ask(EventRange()), store.ask(EventsFrom(0, 99))[0].seq) == ((12, 32), 12)
    assert [one.seq for one in store.ask(EventsFrom(3, 2))] == [12, 13], "what is kept, from there on"
    do_idle_work(store, 3 * 86_400.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 99))] == [*range(12, 32)]
    do(store, event(2))
    assert store.ask(EventRange()) == (12, 33)


@store_test(event_keep_ms=1_000_000)
def events_are_kept_for_their_time(store: Store) -> None:
    """The oldest events go first, whatever the clock did. The last one stays, and no number is used twice."""
    do_idle_work(store, 0.0)
    do(store, *[event(number) for number in range(1, 1501)])
    do_idle_work(store, 1.0)
    do_idle_work(store, 500.0)
    for number, at_ms in enumerate((PUT_AT_MS + 500_000, 5, 2 * PUT_AT_MS), 1501):
        do(store, event(number, at_ms))
        do_idle_work(store, 500.0 + number / 1000)
    do_idle_work(store, 1000.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [*range(1, 1504)]
    do_idle_work(store, 1000.0 + LATE_S)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1501, 1502, 1503]
    do_idle_work(store, 3 * 86_400.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1503]
    do(store, event(1504))
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1503, 1504]


# Events are bounded in bytes, too.

KEPT_EVENTS = 10


def logged(number: int) -> Event:
    """Events of one size."""
    return Event("kind", 1_000, {"number": f"{number:05}", "text": "\u00fc" * 50})


EVENT_BYTES = size_of_event(logged(0))


@store_test(event_keep_bytes=KEPT_EVENTS * EVENT_BYTES)
def the_oldest_events_go_beyond_the_bound(store: Store) -> None:
    """Exactly the oldest events go, though they are young and a cursor has not read them."""
    do_idle_work(store, 0.0)
    do(store, *[Journal(logged(number)) for number in range(KEPT_EVENTS)], MoveCursor("c", JOURNAL_ID, 1, 5))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, KEPT_EVENTS + 1), "as many as are allowed"
    for number in range(KEPT_EVENTS, 4 * KEPT_EVENTS):
        do(store, Journal(logged(number)))
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (number + 2 - KEPT_EVENTS, number + 2)
    assert [event.fields["number"] for event in store.ask(EventsFrom(0, 99))][0] == f"{3 * KEPT_EVENTS:05}"
    offsets = [cursor.offset for cursor in store.ask(CursorsOf("c"))]
    assert offsets == [1], "a reader learns where the journal begins"


@store_test(event_keep_bytes=2_000)
def runs_go_whole_and_the_last_one_stays(store: Store) -> None:
    """A run goes as a whole. The last row stays, also where it is larger than the bound."""
    do_idle_work(store, 0.0)
    numbers: list[str | int | None] = [*range(1_000)]
    whole = Event("put", 2, {}, 0, len(numbers), {"offset": numbers})
    assert size_of_event(whole) > 2_000 + ROW_BYTES
    do(store, Journal(logged(0)), Journal(whole))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (2, 1_002)
    do(store, Journal(logged(1)))
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1_002, 1_003)


@store_test(event_keep_bytes=KEPT_EVENTS * EVENT_BYTES)
def abandoned_events_do_not_count(store: Store) -> None:
    """Only committed events count."""
    do_idle_work(store, 0.0)
    for _ in range(3):
        store.apply([[Journal(logged(number))] for number in range(KEPT_EVENTS)])
        store.abandon()
    do(store, *[Journal(logged(number)) for number in range(KEPT_EVENTS)])
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, KEPT_EVENTS + 1)


@store_test(event_keep_bytes=0)
def events_without_a_bound_are_kept(store: Store) -> None:
    """With the bound 0 events are kept by time only."""
    do(store, *[Journal(logged(number)) for number in range(50)])
    do_idle_work(store, 0.0)
    assert store.ask(EventRange()) == (1, 51)
