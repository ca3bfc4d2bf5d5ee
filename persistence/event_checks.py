"""What every store does with streams and events; a part of store_checks.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from amqp_broker.persistence.errors import NoSuchNode
from amqp_broker.persistence.half_checks import PUT_AT_MS
from amqp_broker.persistence.half_keeping_checks import LATE_S, forget_all
from amqp_broker.persistence.halves import Advance, Event, ForgetStream, Log, Stream
from amqp_broker.persistence.store import Store
from amqp_broker.persistence.store_check_helpers import do, do_units, messages, new_queue, offsets
from amqp_broker.persistence.verbs import DeleteNode, Post, Purge, Unit

MakeStore = Callable[[], Store]
MakeEventStore = Callable[[int], Store]  # (event_keep_ms)


def event(number: int, at_ms: int = PUT_AT_MS) -> Log:
    """One that differs from the others."""
    return Log(Event(f"half.{number}", at_ms, {"number": number, "text": f'"{number} ü\n'}))


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
        assert store.stream(stream.queue_id, stream.stream) is None
        do(store, Advance(stream))
    for stream in streams:
        assert store.stream(stream.queue_id, stream.stream) == stream
    streams[0].seq_no = 3
    found = store.stream(one, "s")
    assert found is not None and found.seq_no == 2, "what is stored is a copy"
    found.seq_no = 4
    do(store, Advance(streams[0]))
    found = store.stream(one, "s")
    assert found is not None and found.seq_no == 3
    assert store.stream(one, "x") is None
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
    assert (offsets(store, queue_id), store.stream(queue_id, "s")) == ([], None)
    refused: Unit = [Advance(Stream(queue_id, "s", "o", 1, 9)), Post(queue_id + 5, messages(0, 1))]
    errors = do_units(store, [*units, refused, [Advance(Stream(queue_id + 5, "s", "o", 1, 1))]])
    assert [type(error) for error in errors] == [type(None)] * 3 + [NoSuchNode] * 2
    assert (offsets(store, queue_id), store.stream(queue_id, "s")) == (
        [0, 1, 2],
        Stream(queue_id, "s", "o", 1, 3),
    )
    do_units(store, [[Advance(Stream(queue_id, "s", "o", 1, 4))], [ForgetStream(queue_id, "s")]])
    assert store.stream(queue_id, "s") is None
    do(store, ForgetStream(queue_id, "s"), Advance(Stream(queue_id, "s", "you", 5, 1)), ForgetStream(99, "s"))
    assert store.stream(queue_id, "s") == Stream(queue_id, "s", "you", 5, 1)
    store.close()


def check_streams_are_listed_and_go_with_their_queue(make_store: MakeStore) -> None:
    """In the order of their names, page by page; a purge leaves them, a deletion does not."""
    store = make_store()
    one, two = new_queue(store, "one"), new_queue(store, "two")
    names = [f"s{number:04}" for number in range(3000)]
    do(store, *[Advance(Stream(one, name, "o", 1, 1)) for name in reversed(names)])
    do(store, Advance(Stream(two, "only", "o", 1, 1)), Purge(one))
    found: list[str] = []
    while page := store.streams(one, found[-1] if found else "", 700):
        found.extend([stream.stream for stream in page])
    assert found == names
    do(store, DeleteNode(one))
    assert (store.stream(one, names[0]), store.streams(one, "", 9)) == (None, [])
    forget_all(store, 0.0)
    assert [stream.stream for stream in store.streams(two, "", 9)] == ["only"]
    store.close()


def check_events_are_numbered_without_gaps(make_store: MakeStore) -> None:
    """In the order of the units that happened; each event learns its number."""
    store = make_store()
    queue_id = new_queue(store)
    assert store.events(0, 10) == []
    first = event(1)
    do(store, first)
    assert first.event.seq == 1
    store.apply([[event(0)]])
    store.abandon()
    gone: Unit = [event(0), Post(queue_id + 5, messages(0, 1))]
    units: list[Unit] = [[event(2), event(3)], gone, [event(4), Post(queue_id, messages(0, 1))]]
    do_units(store, units)
    found = store.events(0, 10)
    assert [one.seq for one in found] == [1, 2, 3, 4]
    assert [one.kind for one in found] == ["half.1", "half.2", "half.3", "half.4"]
    expected = attrs.evolve(event(3).event, seq=3)
    assert found[2] == expected
    assert [one.seq for one in store.events(2, 2)] == [2, 3]
    assert store.events(5, 10) == []
    found[0].fields["number"] = 99
    assert store.events(1, 1) == [attrs.evolve(event(1).event, seq=1)], "what is read is a copy"
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
    assert [one.seq for one in store.events(0, 5000)] == [*range(1, 1504)]
    forget_all(store, 1000.0 + LATE_S)
    assert [one.seq for one in store.events(0, 5000)] == [1501, 1502, 1503]
    forget_all(store, 3 * 86_400.0)
    assert [one.seq for one in store.events(0, 5000)] == [1503]
    do(store, event(1504))
    assert [one.seq for one in store.events(0, 5000)] == [1503, 1504]
    store.close()


STREAM_AND_EVENT_CHECKS: Final[tuple[Callable[[MakeStore], None], ...]] = (
    check_streams_keep_what_they_were_given,
    check_message_and_position_are_one_unit,
    check_streams_are_listed_and_go_with_their_queue,
    check_events_are_numbered_without_gaps,
)

EVENT_KEEPING_CHECKS: Final[tuple[Callable[[MakeEventStore], None], ...]] = (
    check_events_are_kept_for_their_time,
)
