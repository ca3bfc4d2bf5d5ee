"""When every store forgets decided half messages."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import Hold, KeepTime, Store
from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.questions import HalfBodyOf, HalfOf, HalvesOf, OpenHalves
from amqp_broker.testing.store_suite.halves import (
    GROUP,
    KEEP_MS,
    PUT_AT_MS,
    decide,
    half,
    half_id,
    hold,
    numbers,
    stored,
)
from amqp_broker.testing.store_suite.helpers import LATE_S, do, do_idle_work, is_a_mistake, store_test

KEEP_S: Final = KEEP_MS / 1000
BODY_BYTES: Final = 1_000  # of those that policy rolls back


@store_test()
def decided_halves_are_forgotten(store: Store) -> None:
    """Decided half messages go after their time, the oldest first. Open ones stay for ever."""
    day_s, day_ms = 86_400.0, 86_400_000
    do_idle_work(store, 0.0)
    do(store, hold(0), hold(1), decide(1, COMMITTED), hold(2), decide(2, ROLLED_BACK))
    do_idle_work(store, 1.0)
    do_idle_work(store, 1.0 + day_s)
    at_ms = PUT_AT_MS + day_ms
    do(
        store,
        hold(3),
        decide(3, COMMITTED, at_ms=at_ms),
        hold(4),
        decide(4, COMMITTED, at_ms=at_ms, keep_ms=day_ms),
    )
    do_idle_work(store, 2.0 + day_s)
    assert [stored(store, number) for number in range(1, 5)] == [COMMITTED, ROLLED_BACK, COMMITTED, COMMITTED]
    do_idle_work(store, 2 * day_s)
    assert stored(store, 4) == COMMITTED
    do_idle_work(store, 2 * day_s + LATE_S)
    assert [stored(store, number) for number in range(1, 5)] == [COMMITTED, ROLLED_BACK, COMMITTED, None]
    do_idle_work(store, KEEP_S)
    assert [stored(store, number) for number in range(1, 5)] == [COMMITTED, ROLLED_BACK, COMMITTED, None]
    do_idle_work(store, KEEP_S + LATE_S)
    assert [stored(store, number) for number in range(1, 5)] == [None, None, COMMITTED, None]
    assert store.ask(HalfBodyOf(GROUP, half_id(2))) is None
    assert store.ask(HalvesOf(GROUP, ROLLED_BACK, b"", 9)) == []
    do_idle_work(store, KEEP_S + day_s + 2 * LATE_S)
    assert numbers(store.ask(HalvesOf(GROUP, None, b"", 9))) == [0]
    do(store, hold(1), decide(0, COMMITTED))
    assert [stored(store, number) for number in range(2)] == [COMMITTED, PREPARED]


@store_test()
def many_halves_are_forgotten_in_steps(store: Store) -> None:
    """Many half messages take more than one step of `idle`."""
    do_idle_work(store, 0.0)
    do(store, *[verb for number in range(2500) for verb in (hold(number), decide(number, ROLLED_BACK))])
    do_idle_work(store, 1.0)
    assert store.idle(KEEP_S + LATE_S) is True
    left = numbers(store.ask(HalvesOf(GROUP, None, b"", 3000)))
    assert 0 < len(left) < 2500
    do_idle_work(store, KEEP_S + LATE_S)
    assert store.ask(HalvesOf(GROUP, None, b"", 9)) == []


@store_test()
def no_clock_forgets_a_fresh_half(store: Store) -> None:
    """Time passes as `idle` is told. Times in verbs that jump, or are wrong, make no half message older."""
    year_ms = 365 * 86_400_000
    do_idle_work(store, 0.0)
    times = [PUT_AT_MS, PUT_AT_MS + year_ms, PUT_AT_MS + 1, PUT_AT_MS - year_ms, 1, PUT_AT_MS + 2 * year_ms]
    for number, at_ms in enumerate(times):
        do(store, hold(number, at_ms=at_ms), decide(number, COMMITTED, at_ms=at_ms))
        do_idle_work(store, number + 1.0)
    everything = [*range(len(times))]
    assert numbers(store.ask(HalvesOf(GROUP, None, b"", 9))) == everything
    do_idle_work(store, KEEP_S)
    assert numbers(store.ask(HalvesOf(GROUP, None, b"", 9))) == everything
    do_idle_work(store, KEEP_S + 4 * 86_400.0)
    assert store.ask(HalvesOf(GROUP, None, b"", 9)) == []
    # A long pause that a decision ends belongs to those before it only: the time is told with it.
    do(store, hold(0), decide(0, COMMITTED))
    do_idle_work(store, 2 * KEEP_S)
    do(store, KeepTime(round(3_500 * KEEP_S), ""), hold(1), decide(1, COMMITTED))
    do_idle_work(store, 4 * KEEP_S)
    assert stored(store, 1) == COMMITTED


@store_test()
def expired_name_may_be_used_again(store: Store) -> None:
    """A Hold replaces an expired half message of its name, and is not forgotten with it."""
    do_idle_work(store, 0.0)
    do(store, hold(1), decide(1, ROLLED_BACK), hold(2), decide(2, COMMITTED))
    early, late = PUT_AT_MS + KEEP_MS - 1, PUT_AT_MS + KEEP_MS
    assert is_a_mistake(store, [hold(1, at_ms=early)])
    store.apply([[hold(1, at_ms=late)]])
    store.abandon()
    assert [stored(store, number) for number in (1, 2)] == [ROLLED_BACK, COMMITTED]
    new = Hold(half(1, at_ms=late), b"new")
    do(store, new, Hold(half(2, at_ms=late), b"two"), decide(2, ROLLED_BACK, at_ms=late, by=BY_POLICY))
    assert store.ask(HalfOf(GROUP, half_id(1))) == new.half
    assert store.ask(HalfBodyOf(GROUP, half_id(1))) == b"new"
    assert (stored(store, 2), store.ask(HalfBodyOf(GROUP, half_id(2)))) == (ROLLED_BACK, b"two")
    assert numbers(store.ask(OpenHalves())) == [1]
    do_idle_work(store, 1.0)
    do_idle_work(store, 3 * KEEP_S)
    assert [stored(store, number) for number in (1, 2)] == [PREPARED, None]


@store_test()
def time_is_kept(store: Store) -> None:
    """`recover` answers what the last committed `KeepTime` said, with its notes."""
    assert (store.recover().now_ms, store.recover().notes) == (0, "")
    do(store, KeepTime(PUT_AT_MS, ""), KeepTime(PUT_AT_MS + 1, "one ü"))
    assert store.apply([[KeepTime(PUT_AT_MS + 2, "two")]]) == [None]
    store.abandon()
    assert (store.recover().now_ms, store.recover().notes) == (PUT_AT_MS + 1, "one ü")


# Bodies of half messages that policy rolled back are bounded in bytes.


def put(number: int, at_ms: int = PUT_AT_MS) -> Hold:
    """The verb that puts a half message with a body of BODY_BYTES."""
    return Hold(half(number, at_ms=at_ms, size=BODY_BYTES), b"%d" % number * BODY_BYTES)


def given_up(store: Store, *numbers: int) -> None:
    """Put half messages that the policy rolls back."""
    do(store, *[put(number) for number in numbers])
    do(store, *[decide(number, ROLLED_BACK, by=BY_POLICY) for number in numbers])


def kept_bodies(store: Store, count: int) -> list[int]:
    """The numbers of the half messages whose bodies are there."""
    return [number for number in range(count) if store.ask(HalfBodyOf(GROUP, half_id(number))) is not None]


@store_test(half_keep_bytes=3 * BODY_BYTES)
def the_oldest_bodies_go_beyond_the_bound(store: Store) -> None:
    """Exactly the oldest bodies go. Decisions stay, and so do the bodies of open half messages."""
    do_idle_work(store, 0.0)
    do(store, put(0))
    given_up(store, 1, 2, 3)
    do_idle_work(store, 1.0)
    assert kept_bodies(store, 9) == [0, 1, 2, 3]
    given_up(store, 4, 5)
    do_idle_work(store, 2.0)
    assert kept_bodies(store, 9) == [0, 3, 4, 5]
    found = [store.ask(HalfOf(GROUP, half_id(number))) for number in (1, 2)]
    assert [each.state for each in found if each is not None] == [ROLLED_BACK] * 2
    do(store, decide(0, COMMITTED))
    do_idle_work(store, 3.0)
    assert kept_bodies(store, 9) == [3, 4, 5]
    given_up(store, 6)
    do_idle_work(store, 4.0)
    assert kept_bodies(store, 9) == [4, 5, 6]


@store_test(half_keep_bytes=3 * BODY_BYTES)
def what_is_forgotten_makes_room(store: Store) -> None:
    """A body makes room when its time is over, and when a new half message takes its name."""
    do_idle_work(store, 0.0)
    given_up(store, 0, 1, 2)
    late = PUT_AT_MS + KEEP_MS
    do(store, put(1, at_ms=late))
    given_up(store, 3)
    do_idle_work(store, 1.0)
    assert kept_bodies(store, 9) == [0, 1, 2, 3]
    do_idle_work(store, KEEP_MS / 1000 + LATE_S)
    assert kept_bodies(store, 9) == [1]
    given_up(store, 4, 5, 6)
    do_idle_work(store, KEEP_MS / 1000 + LATE_S + 1)
    assert kept_bodies(store, 9) == [1, 4, 5, 6]


@store_test(half_keep_bytes=3 * BODY_BYTES)
def what_is_undone_counts_not(store: Store) -> None:
    """An abandoned group and a failed one count nothing."""
    do_idle_work(store, 0.0)
    given_up(store, 0, 1)
    do(store, put(2), put(3))
    store.apply([[decide(2, ROLLED_BACK, by=BY_POLICY), decide(3, ROLLED_BACK, by=BY_POLICY)]])
    store.abandon()
    given_up(store, 4)
    do_idle_work(store, 1.0)
    assert kept_bodies(store, 9) == [0, 1, 2, 3, 4]


@store_test(half_keep_bytes=0)
def without_a_bound_all_are_kept_bodies(store: Store) -> None:
    """The bound 0 is no bound."""
    do_idle_work(store, 0.0)
    given_up(store, *range(9))
    do_idle_work(store, 1.0)
    assert kept_bodies(store, 9) == [*range(9)]
