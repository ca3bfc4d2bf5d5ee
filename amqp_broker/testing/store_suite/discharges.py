"""What every store does with discharged transactions."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import (
    CreateNode,
    Discharged,
    NodeExists,
    NoSuchNode,
    Post,
    Retire,
    Return,
    Store,
    Unit,
)
from amqp_broker.persistence.questions import DischargedAt, PageOf
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    is_a_mistake,
    messages,
    new_queue,
    offsets,
    read_all,
    store_test,
)

TXN_ID_BYTES: Final = 16
FORGETTING_PARTS: Final = 16  # of the limits: a store may forget so much more than it must, or later


def txn_id(number: int) -> bytes:
    """A transaction's id as the broker makes them: later ones are not greater."""
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(TXN_ID_BYTES, "big")


@store_test()
def recorded_outcomes_are_answered(store: Store) -> None:
    """A recorded outcome is answered with its own time, an unknown one with None. Ids have any length."""
    assert store.ask(DischargedAt(txn_id(1))) is None
    names = [txn_id(1), txn_id(2), b"", b"\x00", b"\x00\x00", bytes(300)]
    assert do_units(store, [[Discharged(name, 1000 + at)] for at, name in enumerate(names)]) == [None] * 6
    assert [store.ask(DischargedAt(name)) for name in names] == [1000, 1001, 1002, 1003, 1004, 1005]
    for unknown in (txn_id(3), txn_id(1)[:-1], txn_id(1) + b"\x00", bytes(3)):
        assert store.ask(DischargedAt(unknown)) is None, unknown


@store_test()
def discharge_is_one_unit(store: Store) -> None:
    """Posts, retires and returns of several queues and the outcome happen in one commit."""
    one, two, three = (new_queue(store, name) for name in ("one", "two", "three"))
    do(store, Post(one, messages(0, 10)), Post(two, messages(0, 10)))
    unit: Unit = [
        Post(two, messages(10, 5)),
        Retire(one, 2, 4),
        Post(three, messages(0, 1)),
        Retire(two, 0, 0),
        Return(one, 5, 3),
        Discharged(txn_id(1), 7),
    ]
    assert store.apply([unit]) == [None]
    store.abandon()
    assert (offsets(store, one), offsets(store, three)) == ([*range(10)], [])
    assert store.ask(DischargedAt(txn_id(1))) is None, "the group was abandoned"
    do(store, *unit)
    assert offsets(store, one) == [0, 1, *range(5, 10)]
    assert read_all(store, one)[2].delivery_count == 3
    assert (offsets(store, two), offsets(store, three)) == ([*range(1, 15)], [0])
    assert store.ask(DischargedAt(txn_id(1))) == 7


@store_test()
def refused_discharge_leaves_no_outcome(store: Store) -> None:
    """A refused discharge leaves no outcome, and the others of its group happen."""
    queue_id = new_queue(store)
    errors = do_units(
        store,
        [
            [Post(queue_id, messages(0, 1)), Discharged(txn_id(1), 1)],
            [Post(queue_id, messages(1, 1)), Post(queue_id + 9, messages(0, 1)), Discharged(txn_id(2), 2)],
            [Retire(queue_id, 0, 0), CreateNode("orders", "queue"), Discharged(txn_id(3), 3)],
            [Post(queue_id, messages(1, 1)), Discharged(txn_id(4), 4)],
        ],
    )
    assert [type(error) for error in errors] == [type(None), NoSuchNode, NodeExists, type(None)], errors
    assert [store.ask(DischargedAt(txn_id(number))) for number in range(1, 5)] == [1, None, None, 4]
    assert offsets(store, queue_id) == [0, 1]


@store_test()
def discharge_is_last_of_its_unit(store: Store) -> None:
    """`Discharged` before another verb of its unit is a mistake of the caller, and nothing happens."""
    queue_id = new_queue(store)
    assert is_a_mistake(store, [Discharged(txn_id(1), 1), Post(queue_id, messages(0, 1))])
    assert offsets(store, queue_id) == []
    assert store.ask(DischargedAt(txn_id(1))) is None
    do(store, Post(queue_id, messages(0, 1)), Discharged(txn_id(1), 1))


@store_test()
def large_discharge_is_one_unit(store: Store) -> None:
    """Ten thousand posts over twenty queues and ten thousand retires, one message each, are one unit."""
    queues = [new_queue(store, f"q{number}") for number in range(20)]
    do(store, *[Post(queue_id, messages(0, 500)) for queue_id in queues])
    unit: Unit = [Post(queue_id, messages(offset, 1)) for offset in range(500, 1000) for queue_id in queues]
    unit += [Retire(queue_id, offset, offset) for offset in range(500) for queue_id in queues]
    assert len(unit) == 20_000
    unit[15_000:15_000] = [Return(queues[0], offset, 9) for offset in range(400, 500)]
    refused: Unit = [*unit, Post(max(queues) + 1, messages(0, 1)), Discharged(txn_id(1), 1)]
    small: Unit = [Return(queues[0], 499, 5), Discharged(txn_id(2), 2)]
    errors = do_units(store, [refused, small])
    assert [type(error) for error in errors] == [NoSuchNode, type(None)], errors
    assert [store.ask(DischargedAt(txn_id(1))), store.ask(DischargedAt(txn_id(2)))] == [None, 2]
    for queue_id in queues:
        assert offsets(store, queue_id) == [*range(500)]
    assert store.ask(PageOf(queues[0], 499, 1, 1)).records[0].delivery_count == 5
    assert do_units(store, [[*unit, Discharged(txn_id(1), 1)], [Discharged(txn_id(3), 3)]]) == [None, None]
    for queue_id in queues:
        assert offsets(store, queue_id) == [*range(500, 1000)]
    assert [store.ask(DischargedAt(txn_id(number))) for number in (1, 2, 3)] == [1, 2, 3]


@store_test(discharge_keep_ms=1_000_000_000, discharge_keep_count=320)
def only_the_newest_outcomes_are_kept(store: Store) -> None:
    """`idle` leaves at most `keep_count` outcomes, and not much fewer. The oldest ones go first."""
    for first in range(0, 1000, 100):
        do_units(store, [[Discharged(txn_id(number), 5)] for number in range(first, first + 100)])
    do_idle_work(store, 0.0)
    kept = [number for number in range(1000) if store.ask(DischargedAt(txn_id(number))) is not None]
    assert kept == [*range(kept[0], 1000)], "not the newest"
    assert 320 - 320 // FORGETTING_PARTS <= len(kept) <= 320, len(kept)
    do(store, Discharged(txn_id(1000), 5))
    assert store.ask(DischargedAt(txn_id(1000))) == 5


@store_test(discharge_keep_ms=16_000, discharge_keep_count=1000)
def outcomes_are_kept_for_their_time(store: Store) -> None:
    """An outcome goes when `idle` has seen it for `keep_ms`, not before, whatever came after it."""
    do(store, Discharged(txn_id(1), 1_000_000))
    store.idle(100.0)
    store.idle(115.0)
    do(store, Discharged(txn_id(2), 1_015_000))
    store.idle(115.5)
    assert [store.ask(DischargedAt(txn_id(1))), store.ask(DischargedAt(txn_id(2)))] == [1_000_000, 1_015_000]
    do_idle_work(store, 117.0)
    assert [store.ask(DischargedAt(txn_id(1))), store.ask(DischargedAt(txn_id(2)))] == [None, 1_015_000]
    do_idle_work(store, 131.6)
    assert store.ask(DischargedAt(txn_id(2))) is None
    do(store, Discharged(txn_id(3), 1_032_000))
    assert store.ask(DischargedAt(txn_id(3))) == 1_032_000


@store_test(discharge_keep_ms=16_000, discharge_keep_count=1000)
def wrong_clocks_forget_nothing_fresh(store: Store) -> None:
    """The clock on the wall goes back by a year and forth by two: time passes only as `idle` is told."""
    year_ms = 365 * 86_400_000
    times = [2 * year_ms, year_ms, year_ms + 1, 3 * year_ms, 3, 2 * year_ms]
    for number, at_ms in enumerate(times):
        do(store, Discharged(txn_id(number), at_ms))
        while store.idle(100.0 + number):
            pass
    assert [store.ask(DischargedAt(txn_id(number))) for number in range(6)] == times
    do_idle_work(store, 117.5)
    found = [store.ask(DischargedAt(txn_id(number))) for number in range(6)]
    assert (found[0], found[3:]) == (None, times[3:]), found
    do_idle_work(store, 121.5)
    assert [store.ask(DischargedAt(txn_id(number))) for number in range(6)] == [None] * 6
