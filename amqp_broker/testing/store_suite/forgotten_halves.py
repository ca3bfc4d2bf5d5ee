"""When every store forgets decided half messages."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import (
    BY_POLICY,
    COMMITTED,
    PREPARED,
    ROLLED_BACK,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    Hold,
    KeepTime,
    OpenHalves,
)
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
from amqp_broker.testing.store_suite.helpers import LATE_S, MakeStore, Suite, do, do_idle_work, is_a_mistake

KEEP_S: Final = KEEP_MS / 1000


def decided_halves_are_forgotten(make_store: MakeStore) -> None:
    """Decided half messages go after their time, the oldest first. Open ones stay for ever."""
    store = make_store()
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
    store.close()


def many_halves_are_forgotten_in_steps(make_store: MakeStore) -> None:
    """Many half messages take more than one step of `idle`."""
    store = make_store()
    do_idle_work(store, 0.0)
    do(store, *[verb for number in range(2500) for verb in (hold(number), decide(number, ROLLED_BACK))])
    do_idle_work(store, 1.0)
    assert store.idle(KEEP_S + LATE_S) is True
    left = numbers(store.ask(HalvesOf(GROUP, None, b"", 3000)))
    assert 0 < len(left) < 2500
    do_idle_work(store, KEEP_S + LATE_S)
    assert store.ask(HalvesOf(GROUP, None, b"", 9)) == []
    store.close()


def no_clock_forgets_a_fresh_half(make_store: MakeStore) -> None:
    """Time passes as `idle` is told. Times in verbs that jump, or are wrong, make no half message older."""
    store = make_store()
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
    store.close()


def expired_name_may_be_used_again(make_store: MakeStore) -> None:
    """A Hold replaces an expired half message of its name, and is not forgotten with it."""
    store = make_store()
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
    store.close()


def time_is_kept(make_store: MakeStore) -> None:
    """`recover` answers what the last committed `KeepTime` said, with its notes."""
    store = make_store()
    assert (store.recover().now_ms, store.recover().notes) == (0, "")
    do(store, KeepTime(PUT_AT_MS, ""), KeepTime(PUT_AT_MS + 1, "one ü"))
    assert store.apply([[KeepTime(PUT_AT_MS + 2, "two")]]) == [None]
    store.abandon()
    assert (store.recover().now_ms, store.recover().notes) == (PUT_AT_MS + 1, "one ü")
    store.close()


SUITE: Final[Suite] = (
    decided_halves_are_forgotten,
    many_halves_are_forgotten_in_steps,
    no_clock_forgets_a_fresh_half,
    expired_name_may_be_used_again,
    time_is_kept,
)
