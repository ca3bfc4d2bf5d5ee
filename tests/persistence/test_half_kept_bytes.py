"""Bodies of half messages that policy rolled back are bounded in bytes: the oldest go, in a store on disk and
in memory alike. That they were rolled back stays known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import HalfBodyOf, HalfOf, MemoryStore, Store
from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, ROLLED_BACK, Hold
from amqp_broker.persistence.removal import remove
from amqp_broker.persistence.sqlite import check_directory
from amqp_broker.testing.store_suite.halves import GROUP, KEEP_MS, PUT_AT_MS, decide, half, half_id
from amqp_broker.testing.store_suite.helpers import LATE_S, do, do_idle_work
from tests.persistence.stores import edit, small_store

MakeStore = Callable[[int], Store]
EACH = 1_000


@pytest.fixture(params=["memory", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A store that keeps so many bytes of bodies."""
    if request.param == "memory":
        return lambda keep_bytes: MemoryStore(half_keep_bytes=keep_bytes)
    return lambda keep_bytes: small_store(tmp_path, half_keep_bytes=keep_bytes)


def put(number: int, at_ms: int = PUT_AT_MS) -> Hold:
    """The verb that puts a half message with a body of EACH bytes."""
    return Hold(half(number, at_ms=at_ms, size=EACH), b"%d" % number * EACH)


def given_up(store: Store, *numbers: int) -> None:
    """Put half messages that the policy rolls back."""
    do(store, *[put(number) for number in numbers])
    do(store, *[decide(number, ROLLED_BACK, by=BY_POLICY) for number in numbers])


def kept(store: Store, count: int) -> list[int]:
    """The numbers of the half messages whose bodies are there."""
    return [number for number in range(count) if store.ask(HalfBodyOf(GROUP, half_id(number))) is not None]


def test_the_oldest_bodies_go_beyond_the_bound(make_store: MakeStore) -> None:
    """Exactly the oldest bodies go. Decisions stay, and so do the bodies of open half messages."""
    store = make_store(3 * EACH)
    do_idle_work(store, 0.0)
    do(store, put(0))
    given_up(store, 1, 2, 3)
    do_idle_work(store, 1.0)
    assert kept(store, 9) == [0, 1, 2, 3]
    given_up(store, 4, 5)
    do_idle_work(store, 2.0)
    assert kept(store, 9) == [0, 3, 4, 5]
    found = [store.ask(HalfOf(GROUP, half_id(number))) for number in (1, 2)]
    assert [each.state for each in found if each is not None] == [ROLLED_BACK] * 2
    do(store, decide(0, COMMITTED))
    do_idle_work(store, 3.0)
    assert kept(store, 9) == [3, 4, 5]
    given_up(store, 6)
    do_idle_work(store, 4.0)
    assert kept(store, 9) == [4, 5, 6]
    store.close()


def test_what_is_forgotten_makes_room(make_store: MakeStore) -> None:
    """A body makes room when its time is over, and when a new half message takes its name."""
    store = make_store(3 * EACH)
    do_idle_work(store, 0.0)
    given_up(store, 0, 1, 2)
    late = PUT_AT_MS + KEEP_MS
    do(store, put(1, at_ms=late))
    given_up(store, 3)
    do_idle_work(store, 1.0)
    assert kept(store, 9) == [0, 1, 2, 3]
    do_idle_work(store, KEEP_MS / 1000 + LATE_S)
    assert kept(store, 9) == [1]
    given_up(store, 4, 5, 6)
    do_idle_work(store, KEEP_MS / 1000 + LATE_S + 1)
    assert kept(store, 9) == [1, 4, 5, 6]
    store.close()


def test_what_is_undone_counts_not(make_store: MakeStore) -> None:
    """An abandoned group and a failed one count nothing."""
    store = make_store(3 * EACH)
    do_idle_work(store, 0.0)
    given_up(store, 0, 1)
    do(store, put(2), put(3))
    store.apply([[decide(2, ROLLED_BACK, by=BY_POLICY), decide(3, ROLLED_BACK, by=BY_POLICY)]])
    store.abandon()
    given_up(store, 4)
    do_idle_work(store, 1.0)
    assert kept(store, 9) == [0, 1, 2, 3, 4]
    store.close()


def test_without_a_bound_all_are_kept(make_store: MakeStore) -> None:
    """The bound 0 is no bound."""
    store = make_store(0)
    do_idle_work(store, 0.0)
    given_up(store, *range(9))
    do_idle_work(store, 1.0)
    assert kept(store, 9) == [*range(9)]
    store.close()


def test_the_bytes_are_known_after_a_restart(tmp_path: Path) -> None:
    """The bytes are counted also after an older version that did not, and after a removal by hand."""
    store = small_store(tmp_path, half_keep_bytes=4 * EACH)
    given_up(store, 0, 1, 2, 3)
    store.close()
    assert check_directory(tmp_path) == []
    edit(tmp_path, "DELETE FROM meta WHERE key='half_kept_bytes'")
    remove(tmp_path, "half message 1")
    store = small_store(tmp_path, half_keep_bytes=4 * EACH)
    do_idle_work(store, 0.0)
    given_up(store, 4)
    do_idle_work(store, 1.0)
    assert kept(store, 9) == [1, 2, 3, 4]
    store.close()
    remove(tmp_path, "half message 2")
    store = small_store(tmp_path, half_keep_bytes=4 * EACH)
    given_up(store, 5)
    do_idle_work(store, 0.0)
    assert kept(store, 9) == [2, 3, 4, 5]
    store.close()
    store = small_store(tmp_path, half_keep_bytes=EACH)
    do_idle_work(store, 0.0)
    assert kept(store, 9) == [5]
    store.close()
    assert check_directory(tmp_path) == []
