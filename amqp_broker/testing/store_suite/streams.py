"""What every store does with the positions of streams."""

from __future__ import annotations

from amqp_broker.persistence import (
    Advance,
    DeleteNode,
    ForgetStream,
    NoSuchNode,
    Post,
    Purge,
    Store,
    Stream,
    Unit,
)
from amqp_broker.persistence.questions import StreamOf, StreamsOf
from amqp_broker.testing.store_suite.halves import PUT_AT_MS
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    messages,
    new_queue,
    offsets,
    store_test,
)


@store_test()
def streams_keep_what_they_were_given(store: Store) -> None:
    """A stream keeps all fields, up to the limits of their types. It is found by queue and name."""
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


@store_test()
def message_and_position_are_one_unit(store: Store) -> None:
    """A message and the position of its stream are stored both or not at all. The last verb counts."""
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


@store_test()
def streams_are_listed_and_go_with_their_queue(store: Store) -> None:
    """Streams are listed page by page, by name. A purge leaves them, a deletion does not."""
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
    do_idle_work(store, 0.0)
    assert [stream.stream for stream in store.ask(StreamsOf(two, "", 9))] == ["only"]
