"""What every store does with streams and events; a part of store_checks.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from amqp_broker.persistence.errors import NoSuchNode
from amqp_broker.persistence.half_checks import PUT_AT_MS
from amqp_broker.persistence.half_keeping_checks import LATE_S, forget_all
from amqp_broker.persistence.halves import EVENT_RUN_MAX, Advance, Event, ForgetStream, Journal, Stream
from amqp_broker.persistence.questions import EventRange, EventsFrom, StreamOf, StreamsOf
from amqp_broker.persistence.store import Store
from amqp_broker.persistence.store_check_helpers import do, do_units, messages, new_queue, offsets
from amqp_broker.persistence.verbs import DeleteNode, Post, Purge, Unit

MakeStore = Callable[[], Store]
MakeEventStore = Callable[[int], Store]  # (event_keep_ms)


def event(number: int, at_ms: int = PUT_AT_MS) -> Journal:
    """One that differs from the others."""
    return Journal(Event(f"half.{number}", at_ms, {"number": number, "text": f'"{number} ü\n'}))


def check_streams_keep_what_they_were_given(make_store: MakeStore) -> None:
    """All fields, the limits of their types included; by queue and name."""
    store = make_store()
    one, two = new_queue(store, "one"), new_queue(store, "two")
    former = tuple((2**64 - 9 + number, 2**32 - 1 - number) for number in range(8))
    streams = [
        Stream(one, "s", "owner", 1, 2),
        Stream(two, "s", "öwner", 2**64 - 1, 2**32 - 1, former, 7, PUT_AT_MS),
        Stream(one, "S", "", 2**63, 0, ((1, 2),)),
        Stream(one, "s\x00", "o", 2**63 - 1, 5),
        Stream(one, "ü" * 64, "o", 0, 0),
    ]
    for stream in streams:
        assert store.ask(StreamOf(stream.queue_id, stream.stream)) is None
        do(store, Advance(stream))
    for stream in streams:
        assert store.ask(StreamOf(stream.queue_id, stream.stream)) == stream
    streams[0].seq_no = 3
    found = store.ask(StreamOf(one, "s"))
    assert found is not None and found.seq_no == 2, "what is stored is a copy"
    found.seq_no = 4
    do(store, Advance(streams[0]))
    found = store.ask(StreamOf(one, "s"))
    assert found is not None and found.seq_no == 3
    assert store.ask(StreamOf(one, "x")) is None
    store.close()


def check_message_and_position_are_one_unit(make_store: MakeStore) -> None:
    """Both or neither; the last Advance of a group counts, and a reset after it."""
    store = make_store()
    queue_id = new_queue(store)
    units: list[Unit] = [
        [Post(queue_id, messages(number, 1)), Advance(Stream(queue_id, "s", "o", 1, number + 1))]
        for number in range(3)
    ]
    store.apply(units)
    store.abandon()
    assert (offsets(store, queue_id), store.ask(StreamOf(queue_id, "s"))) == ([], None)
    refused: Unit = [Advance(Stream(queue_id, "s", "o", 1, 9)), Post(queue_id + 5, messages(0, 1))]
    errors = do_units(store, [*units, refused, [Advance(Stream(queue_id + 5, "s", "o", 1, 1))]])
    assert [type(error) for error in errors] == [type(None)] * 3 + [NoSuchNode] * 2
    assert (offsets(store, queue_id), store.ask(StreamOf(queue_id, "s"))) == (
        [0, 1, 2],
        Stream(queue_id, "s", "o", 1, 3),
    )
    do_units(store, [[Advance(Stream(queue_id, "s", "o", 1, 4))], [ForgetStream(queue_id, "s")]])
    assert store.ask(StreamOf(queue_id, "s")) is None
    do(store, ForgetStream(queue_id, "s"), Advance(Stream(queue_id, "s", "you", 5, 1)), ForgetStream(99, "s"))
    assert store.ask(StreamOf(queue_id, "s")) == Stream(queue_id, "s", "you", 5, 1)
    store.close()


def check_streams_are_listed_and_go_with_their_queue(make_store: MakeStore) -> None:
    """In the order of their names, page by page; a purge leaves them, a deletion does not."""
    store = make_store()
    one, two = new_queue(store, "one"), new_queue(store, "two")
    names = [f"s{number:04}" for number in range(3000)]
    do(store, *[Advance(Stream(one, name, "o", 1, 1)) for name in reversed(names)])
    do(store, Advance(Stream(two, "only", "o", 1, 1)), Purge(one))
    found: list[str] = []
    while page := store.ask(StreamsOf(one, found[-1] if found else "", 700)):
        found.extend([stream.stream for stream in page])
    assert found == names
    do(store, DeleteNode(one))
    assert (store.ask(StreamOf(one, names[0])), store.ask(StreamsOf(one, "", 9))) == (None, [])
    forget_all(store, 0.0)
    assert [stream.stream for stream in store.ask(StreamsOf(two, "", 9))] == ["only"]
    store.close()


def check_events_are_numbered_without_gaps(make_store: MakeStore) -> None:
    """In the order of the units that happened; each event learns its number."""
    store = make_store()
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
    store.close()


def run(count: int, at_ms: int = PUT_AT_MS) -> Journal:
    """A run of entries of which each has its own number, and every third one no text."""
    numbers: list[str | int | None] = list(range(count))
    texts: list[str | int | None] = [None if n % 3 == 2 else f'"{n} ü' for n in range(count)]
    return Journal(Event("put", at_ms, {"queue": "q"}, 0, count, {"number": numbers, "text": texts}))


def entries(log: Journal) -> list[Event]:
    """What a store tells of a run."""
    event = log.event
    found = []
    for at in range(event.count):
        own = {name: values[at] for name, values in event.columns.items()}
        fields = {**event.fields, **{name: value for name, value in own.items() if value is not None}}
        found.append(Event(event.kind, event.at_ms, fields, event.seq + at))
    return found


def check_runs_of_events_are_told_one_by_one(make_store: MakeStore) -> None:
    """Each entry has its number and its own fields, wherever a page begins and ends."""
    store = make_store()
    assert store.ask(EventRange()) == (1, 1)
    logs = [event(0), run(1), run(7), Journal(Event("plain", 1, {"a": 1}, 0, 3)), event(1), run(300), run(2)]
    do(store, *logs[:3])
    assert store.ask(EventRange()) == (1, 10)
    do_units(store, [[each] for each in logs[3:]])
    expected = [entry for each in logs for entry in entries(each)]
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
    store.close()


def check_run_belongs_to_its_unit(make_store: MakeStore) -> None:
    """A refused unit takes no numbers, an abandoned group neither; what is stored is a copy."""
    store = make_store()
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
    store.close()


def check_runs_have_as_many_values_as_entries(make_store: MakeStore) -> None:
    """Anything else is the caller's mistake: too few values, no entry, more than a run may have."""
    store = make_store()
    wrong = [
        Event("k", 1, {}, 0, 2, {"n": [1]}),
        Event("k", 1, {}, 0, 0),
        Event("k", 1, {}, 0, EVENT_RUN_MAX + 1),
    ]
    for each in wrong:
        try:
            store.apply([[Journal(each)]])
        except AssertionError:
            pass
        else:
            raise AssertionError(f"taken: {each}")
    do(store, Journal(Event("k", 1, {}, 0, EVENT_RUN_MAX)))
    assert store.ask(EventRange()) == (1, 1 + EVENT_RUN_MAX)
    store.close()


def check_runs_are_forgotten_as_a_whole(make_store: MakeEventStore) -> None:
    """The oldest first; the last one stays, with all its numbers."""
    store = make_store(1_000_000)
    forget_all(store, 0.0)
    do(store, run(10), event(1))
    forget_all(store, 1.0)
    forget_all(store, 500.0)
    do(store, run(20, PUT_AT_MS + 500_000))
    forget_all(store, 500.1)
    forget_all(store, 1000.0 + LATE_S)
    assert (store.ask(EventRange()), store.ask(EventsFrom(0, 99))[0].seq) == ((12, 32), 12)
    assert [one.seq for one in store.ask(EventsFrom(3, 2))] == [12, 13], "what is kept, from there on"
    forget_all(store, 3 * 86_400.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 99))] == [*range(12, 32)]
    do(store, event(2))
    assert store.ask(EventRange()) == (12, 33)
    store.close()


def check_events_are_kept_for_their_time(make_store: MakeEventStore) -> None:
    """The oldest go first, whatever the wall clock did; the last one stays, and no number comes twice."""
    store = make_store(1_000_000)
    forget_all(store, 0.0)
    do(store, *[event(number) for number in range(1, 1501)])
    forget_all(store, 1.0)
    forget_all(store, 500.0)
    for number, at_ms in enumerate((PUT_AT_MS + 500_000, 5, 2 * PUT_AT_MS), 1501):
        do(store, event(number, at_ms))
        forget_all(store, 500.0 + number / 1000)
    forget_all(store, 1000.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [*range(1, 1504)]
    forget_all(store, 1000.0 + LATE_S)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1501, 1502, 1503]
    forget_all(store, 3 * 86_400.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1503]
    do(store, event(1504))
    assert [one.seq for one in store.ask(EventsFrom(0, 5000))] == [1503, 1504]
    store.close()


STREAM_AND_EVENT_CHECKS: Final[tuple[Callable[[MakeStore], None], ...]] = (
    check_streams_keep_what_they_were_given,
    check_message_and_position_are_one_unit,
    check_streams_are_listed_and_go_with_their_queue,
    check_events_are_numbered_without_gaps,
    check_runs_of_events_are_told_one_by_one,
    check_run_belongs_to_its_unit,
    check_runs_have_as_many_values_as_entries,
)

EVENT_KEEPING_CHECKS: Final[tuple[Callable[[MakeEventStore], None], ...]] = (
    check_events_are_kept_for_their_time,
    check_runs_are_forgotten_as_a_whole,
)
