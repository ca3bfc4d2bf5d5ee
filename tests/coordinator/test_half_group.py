"""Who is asked, and when: by a clock that the test moves."""

from __future__ import annotations

import pytest

from amqp_broker.coordinator.half_checks import CheckEffect, CheckGiven
from amqp_broker.coordinator.half_group import STALE_ENTRIES, Checker, HalfGroup, HalfSettings, OpenHalf
from amqp_broker.coordinator.half_states import HalfState

HOUR_MS = 3_600_000


def put(
    group: HalfGroup,
    half_id: bytes = b"s1",
    now_ms: int = 0,
    first_check_ms: int = 6_000,
    container: str = "p",
) -> OpenHalf:
    """A half message that is stored."""
    half = OpenHalf(
        half_id, "q", b"", now_ms, now_ms + first_check_ms, now_ms + group.settings.max_age_ms, container, 1
    )
    group.add(half)
    group.schedule(half)
    return half


def checker(group: HalfGroup, container: str = "c", demand: int = 1, by_outcome: bool = False) -> Checker:
    """A link on which the group asks."""
    found = Checker(None, None, container, by_outcome)
    found.demand = demand
    group.attach(found)
    return found


@pytest.fixture
def group() -> HalfGroup:
    """With the defaults of the page."""
    return HalfGroup("g", HalfSettings())


def test_it_is_asked_when_it_is_due_and_not_before(group: HalfGroup) -> None:
    """At 6 s."""
    half = put(group)
    asked = checker(group)
    assert group.next_deadline_ms() == 6_000
    assert group.assign(5_999) == []
    assert group.assign(6_000) == [(asked, half)]
    assert asked.demand == 0 and group.assign(6_001) == []


def test_nobody_connected_for_an_hour_then_asked_as_attempt_one(group: HalfGroup) -> None:
    """No listener, no attempt; and no timer runs for it."""
    half = put(group)
    assert group.assign(HOUR_MS) == [] and half.attempts == 0
    assert group.next_deadline_ms() == 4 * HOUR_MS  # its end, and nothing before
    assert group.due_unasked(HOUR_MS) == 1
    late = checker(group)
    assert group.assign(HOUR_MS) == [(late, half)]


def test_no_credit_no_check(group: HalfGroup) -> None:
    """A checker without demand is not asked."""
    put(group)
    checker(group, demand=0)
    assert group.assign(10_000) == []


def test_the_container_that_put_it_is_asked_first_then_the_others_in_turn(group: HalfGroup) -> None:
    """And who let it go comes last."""
    own = checker(group, "p", demand=1)
    others = [checker(group, f"other-{number}", demand=2) for number in (1, 2)]
    for number in range(4):
        put(group, b"s%d" % number)
    asked = [each for each, _ in group.assign(6_000)]
    assert asked == [own, others[0], others[1], others[0]]


def test_a_released_check_goes_to_another_link_after_a_second(group: HalfGroup) -> None:
    """It was not asked: no attempt."""
    own, other = checker(group, "p", demand=2), checker(group, "other", demand=1)
    half = put(group)
    assert group.assign(6_000) == [(own, half)]
    assert group.answered(half, CheckGiven.RELEASED, False, 7_000) is CheckEffect.NOT_ASKED
    assert half.attempts == 0 and group.assign(7_999) == []
    assert group.assign(8_000) == [(other, half)]


def test_a_lost_link_is_no_answer(group: HalfGroup) -> None:
    """Its check goes to another one."""
    first = checker(group)
    half = put(group)
    group.assign(6_000)
    group.detach(first, [half], 6_500)
    assert half.attempts == 0 and half.asked_by is None
    second = checker(group)
    assert group.assign(7_500) == [(second, half)]


def test_the_schedule_doubles_from_30_s_to_600_s(group: HalfGroup) -> None:
    """After each unknown answer."""
    asked = checker(group, demand=100)
    half = put(group)
    now_ms, waits = 6_000, []
    for _ in range(8):
        assert group.assign(now_ms) == [(asked, half)]
        group.answered(half, CheckGiven.ACCEPTED, False, now_ms)
        waits.append((half.due_ms - now_ms) // 1_000)
        assert group.assign(half.due_ms - 1) == []
        now_ms = half.due_ms
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_after_15_unknown_answers_the_policy_decides(group: HalfGroup) -> None:
    """Whatever its age."""
    checker(group, demand=100)
    half = put(group)
    now_ms = 6_000
    for attempt in range(1, 16):
        assert len(group.assign(now_ms)) == 1
        group.answered(half, CheckGiven.FAILED, True, now_ms)
        assert half.attempts == attempt
        assert group.expired(now_ms) == ([half] if attempt == 15 else [])
        now_ms = half.due_ms


def test_at_its_maximum_age_the_policy_decides(group: HalfGroup) -> None:
    """Also when nobody was ever asked."""
    half = put(group)
    assert group.expired(4 * HOUR_MS - 1) == []
    assert group.expired(4 * HOUR_MS) == [half]
    assert group.expired(4 * HOUR_MS) == []


def test_a_check_without_an_outcome_for_30_s_is_taken_back(group: HalfGroup) -> None:
    """No attempt; an outcome that comes after the next ask is that one's."""
    asked = checker(group, demand=2)
    half = put(group)
    group.assign(6_000)
    assert group.unlocked(35_999) == []
    assert group.next_deadline_ms() == 36_000
    assert group.unlocked(36_000) == [(asked, half)]
    assert half.attempts == 0
    assert group.assign(37_000) == [(asked, half)]
    assert group.unlocked(66_999) == []


def test_undeliverable_here_is_never_asked_on_this_link_again(group: HalfGroup) -> None:
    """Another link is."""
    first = checker(group, "p", demand=5)
    half = put(group)
    group.assign(6_000)
    group.answered(half, CheckGiven.UNDELIVERABLE, False, 6_000)
    assert half.attempts == 1
    assert group.assign(HOUR_MS) == []
    assert group.unlocked(HOUR_MS) == []
    assert group.next_deadline_ms() == 4 * HOUR_MS  # no timer helps
    second = checker(group, "other")
    assert group.assign(HOUR_MS) == [(second, half)]
    assert first.demand == 4


def test_a_parked_one_waits_and_a_resumed_one_is_asked_again(group: HalfGroup) -> None:
    """With fresh attempts, at once."""
    asked = checker(group)
    half = put(group)
    half.state = HalfState.PARKED
    half.attempts = 15
    assert group.assign(HOUR_MS) == [] and group.expired(5 * HOUR_MS) == []
    assert group.count(HalfState.PARKED) == 1
    group.resume(half, 5 * HOUR_MS)
    half.state = HalfState.PREPARED
    group.schedule(half)
    assert group.assign(5 * HOUR_MS) == [(asked, half)] and half.attempts == 0
    assert group.expired(5 * HOUR_MS) == []


def test_what_was_decided_is_not_asked(group: HalfGroup) -> None:
    """Its entries in the heaps are passed over."""
    checker(group)
    half = put(group)
    group.remove(half)
    assert group.assign(HOUR_MS) == [] and group.expired(5 * HOUR_MS) == []


def test_while_a_change_is_on_its_way_to_the_store_nobody_is_asked(group: HalfGroup) -> None:
    """A resolution that arrived is not asked for."""
    checker(group)
    half = put(group)
    half.changes = 1
    assert group.assign(HOUR_MS) == []


def test_figures_are_read_from_what_is_there(group: HalfGroup) -> None:
    """Pending, the oldest age, and whether there is room."""
    put(group, b"s1", 1_000)
    put(group, b"s2", 5_000)
    assert group.count(HalfState.PREPARED) == 2
    assert group.oldest_age_ms(6_000) == 5_000
    assert not group.full()
    tiny = HalfGroup("tiny", HalfSettings(max_pending=1))
    put(tiny)
    assert tiny.full()


def test_times_of_what_is_decided_are_forgotten(group: HalfGroup) -> None:
    """Before they come: thousands that are decided at once leave no hours of them."""
    kept = [put(group, b"kept%d" % number, number) for number in range(3)]
    for number in range(10 * STALE_ENTRIES):
        group.remove(put(group, b"%d" % number, 5))
    assert len(group._due) + len(group._deadlines) < 3 * STALE_ENTRIES
    asked = checker(group, demand=9)
    assert group.assign(6_002) == [(asked, half) for half in kept]
    assert group.expired(4 * HOUR_MS + 2) == kept
