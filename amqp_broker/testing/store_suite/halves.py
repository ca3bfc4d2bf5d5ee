"""What every store does with half messages."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import (
    Decide,
    Event,
    Half,
    Hold,
    Journal,
    NoSuchNode,
    Post,
    Reschedule,
    Store,
    Unit,
    Verb,
)
from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, PARKED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.questions import EventsFrom, HalfBodyOf, HalfOf, HalvesOf, OpenHalves, SomeHalves
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_units,
    is_a_mistake,
    messages,
    new_queue,
    offsets,
    store_test,
)

GROUP: Final = "stock-service"
PUT_AT_MS: Final = 1_700_000_000_000
KEEP_MS: Final = 7 * 86_400_000


def half_id(number: int) -> bytes:
    """A half-id as the broker makes them: a tag for the type, then the value, in the order of the numbers."""
    return b"\xa1%08d" % number


def half(number: int, group: str = GROUP, at_ms: int = PUT_AT_MS, size: int = 10) -> Half:
    """A prepared half message. All its fields depend on its number."""
    return Half(
        group, half_id(number), f"orders/{number}", PREPARED, bytes([number % 251]) * 32, at_ms,
        at_ms + 6000 + number, at_ms + 14_400_000, f"container-{number}", size, number, number % 10,
        2**32 - 1 - number,
    )  # fmt: skip


def hold(number: int, group: str = GROUP, at_ms: int = PUT_AT_MS) -> Hold:
    """The verb that puts a half message, with a body of its own."""
    return Hold(half(number, group, at_ms), body(number))


def body(number: int) -> bytes:
    """The body of a half message."""
    return b"body %d" % number


def decide(
    number: int, state: str, group: str = GROUP, at_ms: int = PUT_AT_MS, keep_ms: int = KEEP_MS,
    by: str = "producer",
) -> Decide:  # fmt: skip
    """A decision that is kept for a week."""
    return Decide(group, half_id(number), state, at_ms, by, "", at_ms + keep_ms)


def stored(store: Store, number: int, group: str = GROUP) -> str | None:
    """The state of a half message."""
    found = store.ask(HalfOf(group, half_id(number)))
    return None if found is None else found.state


def numbers(found: list[Half]) -> list[int]:
    """The numbers of half messages that were found."""
    return [int(one.half_id[1:]) for one in found]


@store_test()
def half_comes_back_as_it_was_put(store: Store) -> None:
    """All fields and the body of a half message are found by its group and every octet of its half-id."""
    assert store.ask(HalfOf(GROUP, half_id(1))) is None
    assert store.ask(HalfBodyOf(GROUP, half_id(1))) is None
    put = Half(
        "g", b"\x00\xff\xa1", "q/ü", PARKED, bytes(range(32)), 1, 2, 3, "cöntainer", 2**33, 2**32 - 1, 9,
        2**32 - 1, 14, 5, "admin", "why ✓", 6, "other", 2**40,
    )  # fmt: skip
    names = [("g", b"\x00\xff\xa1"), ("G", b"\x00\xff\xa1"), ("g", b"\x00\xff\xa1\x00"), ("g", b"\x00\xff")]
    bodies = [b"", b"\x00" * 300, bytes(range(256)) * 40_000, b"x"]
    for (group, name), octets in zip(names, bodies, strict=True):
        assert store.ask(HalfOf(group, name)) is None
        put.group, put.half_id = group, name
        do(store, Hold(put, octets))
    for (group, name), octets in zip(names, bodies, strict=True):
        put.group, put.half_id = group, name
        assert store.ask(HalfOf(group, name)) == put
        assert store.ask(HalfBodyOf(group, name)) == octets
    found = store.ask(HalfOf(*names[0]))
    assert found is not None
    found.state = COMMITTED
    put.attempts = 99
    again = store.ask(HalfOf(*names[0]))
    assert again is not None and (again.state, again.attempts) == (PARKED, 14), "what is read is a copy"


@store_test()
def commit_posts_and_forgets_the_body(store: Store) -> None:
    """The decision and the message are one commit. Only a rollback by the policy keeps the body."""
    queue_id = new_queue(store)
    do(store, hold(1), hold(2), hold(3), hold(4), hold(5), decide(5, ROLLED_BACK))
    verb = Decide(GROUP, half_id(1), COMMITTED, 7, "check", "asked", 7 + KEEP_MS, "orders", 0)
    expected = half(1)
    expected.state, expected.resolved_at_ms, expected.resolver, expected.reason = (
        COMMITTED,
        7,
        "check",
        "asked",
    )
    expected.expires_at_ms, expected.queue, expected.offset = 7 + KEEP_MS, "orders", 0
    assert store.apply([[verb, Post(queue_id, messages(0, 1))]]) == [None]
    store.abandon()
    assert (stored(store, 1), offsets(store, queue_id)) == (PREPARED, [])
    do(store, verb, Post(queue_id, messages(0, 1)))
    do(store, decide(2, ROLLED_BACK, by=BY_POLICY), decide(4, ROLLED_BACK))
    assert store.ask(HalfOf(GROUP, half_id(1))) == expected
    assert [stored(store, number) for number in (1, 2, 3)] == [COMMITTED, ROLLED_BACK, PREPARED]
    assert store.ask(HalfBodyOf(GROUP, half_id(1))) is None
    assert store.ask(HalfBodyOf(GROUP, half_id(2))) == body(2)
    assert store.ask(HalfBodyOf(GROUP, half_id(3))) == body(3)
    assert [store.ask(HalfBodyOf(GROUP, half_id(number))) for number in (4, 5)] == [None, None]
    assert [stored(store, number) for number in (4, 5)] == [ROLLED_BACK, ROLLED_BACK]
    assert offsets(store, queue_id) == [0]


@store_test()
def rescheduling_changes_state_and_times(store: Store) -> None:
    """Rescheduling changes state, attempts and times, and nothing else, as often as is wanted."""
    do(store, hold(1), hold(2))
    expected = half(1)
    for state, attempts, due_at_ms, deadline_ms in (
        (PREPARED, 1, 5, 9),
        (PARKED, 15, 0, 9),
        (PREPARED, 0, 8, 0),
    ):
        do(store, Reschedule(GROUP, half_id(1), state, attempts, due_at_ms, deadline_ms))
        expected.state, expected.attempts = state, attempts
        expected.due_at_ms, expected.deadline_ms = due_at_ms, deadline_ms
        assert store.ask(HalfOf(GROUP, half_id(1))) == expected
    assert store.ask(HalfBodyOf(GROUP, half_id(1))) == body(1)
    assert store.ask(HalfOf(GROUP, half_id(2))) == half(2)
    do(store, decide(1, COMMITTED))
    found = store.ask(HalfOf(GROUP, half_id(1)))
    assert found is not None and (found.attempts, found.due_at_ms) == (0, 8)


@store_test()
def later_verbs_see_the_earlier_ones(store: Store) -> None:
    """A verb finds what an earlier one of its unit, or of its group, has done."""
    do(store, hold(1), decide(1, COMMITTED))
    do_units(store, [[hold(2)], [decide(2, ROLLED_BACK, by=BY_POLICY)]])
    again = Reschedule(GROUP, half_id(3), PARKED, 3, 4, 5)
    do_units(store, [[hold(3), again], [decide(3, COMMITTED)], [hold(4)]])
    do_units(store, [[Reschedule(GROUP, half_id(4), PARKED, 1, 2, 3)], [decide(4, ROLLED_BACK)]])
    assert [stored(store, number) for number in range(1, 5)] == [
        COMMITTED,
        ROLLED_BACK,
        COMMITTED,
        ROLLED_BACK,
    ]
    found = [store.ask(HalfBodyOf(GROUP, half_id(number))) for number in range(1, 5)]
    assert found == [None, body(2), None, None]
    third = store.ask(HalfOf(GROUP, half_id(3)))
    assert third is not None and (third.attempts, third.due_at_ms, third.deadline_ms) == (3, 4, 5)
    assert store.ask(OpenHalves()) == []


@store_test()
def mistakes_of_the_caller_change_nothing(store: Store) -> None:
    """Each mistake is an AssertionError, and nothing of its group happens."""
    queue_id = new_queue(store)
    do(store, hold(1), hold(2), decide(2, COMMITTED), hold(3), decide(3, ROLLED_BACK))
    again = [Reschedule(GROUP, half_id(number), PARKED, 1, 2, 3) for number in range(5)]
    wrong: list[list[Verb]] = [
        [hold(1)],
        [hold(2)],
        [hold(3)],
        [hold(4), hold(4)],
        [decide(0, COMMITTED)],
        [again[0]],
        [decide(1, COMMITTED, group="other")],
        [decide(2, COMMITTED)],
        [decide(3, COMMITTED)],
        [decide(2, ROLLED_BACK)],
        [again[2]],
        [again[3]],
        [decide(1, PREPARED)],
        [Reschedule(GROUP, half_id(1), COMMITTED, 1, 2, 3)],
        [decide(1, COMMITTED), decide(1, COMMITTED)],
        [decide(1, COMMITTED), again[1]],
    ]
    for verbs in wrong:
        unit = [Journal(Event("k", 1, {})), *verbs]
        assert is_a_mistake(store, [Post(queue_id, messages(0, 1))], unit), verbs
        assert is_a_mistake(store, *[[verb] for verb in verbs]), verbs
    assert [stored(store, number) for number in range(5)] == [None, PREPARED, COMMITTED, ROLLED_BACK, None]
    assert (offsets(store, queue_id), store.ask(EventsFrom(0, 9))) == ([], [])
    do(store, decide(1, COMMITTED), hold(4))
    assert stored(store, 1) == COMMITTED


@store_test()
def refused_and_abandoned_units_leave_no_half(store: Store) -> None:
    """What was refused or abandoned can happen later. The other units of a refused one's group happen."""
    queue_id = new_queue(store)
    do(store, hold(1))
    units: list[Unit] = [
        [hold(2), decide(1, COMMITTED), Post(queue_id + 9, messages(0, 1))],
        [hold(3), Journal(Event("three", 3, {}))],
    ]
    errors = do_units(store, units)
    assert [type(error) for error in errors] == [NoSuchNode, type(None)]
    assert [stored(store, number) for number in (1, 2, 3)] == [PREPARED, None, PREPARED]
    store.apply([[hold(2)], [decide(1, ROLLED_BACK)], [decide(3, COMMITTED)]])
    store.abandon()
    assert [stored(store, number) for number in (1, 2, 3)] == [PREPARED, None, PREPARED]
    assert store.ask(HalfBodyOf(GROUP, half_id(3))) == body(3)
    do(store, hold(2), decide(1, COMMITTED))
    assert [stored(store, number) for number in (1, 2, 3)] == [COMMITTED, PREPARED, PREPARED]


@store_test()
def open_halves_are_listed_oldest_first(store: Store) -> None:
    """Open half messages of all groups, prepared or parked, are listed in the order of their putting."""
    order = [5, 3, 9, 1, 7, 2]
    for at, number in enumerate(order):
        do(store, hold(number, "one" if at % 2 else "two"))
    do(store, decide(9, COMMITTED, "two"), decide(1, ROLLED_BACK, "one"))
    do(store, Reschedule("one", half_id(3), PARKED, 15, 0, 9))
    found = store.ask(OpenHalves())
    assert numbers(found) == [5, 3, 7, 2]
    assert [one.state for one in found] == [PREPARED, PARKED, PREPARED, PREPARED]
    assert found[0] == half(5, "two")


@store_test()
def halves_are_listed_by_group_and_state(store: Store) -> None:
    """Half messages of a group, or of one state, are listed page by page in the order of their ids."""
    order = [*range(1, 60, 2), *range(58, 0, -2)]
    do(store, *[hold(number) for number in order], hold(77, "other"), hold(5, "other"))
    do(store, *[decide(number, COMMITTED) for number in range(0, 60, 3) if number])
    do(store, *[decide(number, ROLLED_BACK) for number in range(1, 60, 3)])
    do(store, *[Reschedule(GROUP, half_id(number), PARKED, 1, 0, 1) for number in (2, 5, 59)])
    chosen = {
        None: [*range(1, 60)],
        COMMITTED: [*range(3, 60, 3)],
        ROLLED_BACK: [*range(1, 60, 3)],
        PARKED: [2, 5, 59],
        PREPARED: [*range(8, 59, 3)],
    }
    for state, expected in chosen.items():
        for count in (1, 7, 1000):
            found: list[Half] = []
            while page := store.ask(HalvesOf(GROUP, state, found[-1].half_id if found else b"", count)):
                assert len(page) <= count
                found.extend(page)
            assert numbers(found) == expected, (state, count)
            assert all(one.state == (state or one.state) for one in found)
    assert numbers(store.ask(HalvesOf("other", None, b"", 10))) == [5, 77]
    assert store.ask(HalvesOf("nobody", None, b"", 10)) == []
    assert store.ask(HalvesOf(GROUP, None, half_id(59), 10)) == []


@store_test()
def several_halves_are_looked_up_at_once(store: Store) -> None:
    """Half messages looked up together are found as each one alone, before and after each change."""
    names = [half_id(number) for number in range(150)]
    assert store.ask(SomeHalves(GROUP, [])) == {}
    for change in (
        [hold(number) for number in range(0, 150, 2)],
        [decide(number, COMMITTED if number % 4 else ROLLED_BACK) for number in range(0, 80, 2)],
    ):
        alone = {name: store.ask(HalfOf(GROUP, name)) for name in names}
        assert store.ask(SomeHalves(GROUP, names)) == alone
        do(store, *change)
        together = store.ask(SomeHalves(GROUP, names))
        assert together != alone
        assert together == {name: store.ask(HalfOf(GROUP, name)) for name in names}
    assert set(store.ask(SomeHalves("other", names)).values()) == {None}
