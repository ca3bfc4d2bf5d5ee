"""The life of a half message: the tables are total, and decided is decided."""

from __future__ import annotations

from itertools import product

import pytest

from amqp_broker.coordinator.half_checks import CHECK_OUTCOMES, CheckEffect, CheckGiven, check_given
from amqp_broker.coordinator.half_states import (
    HALF_TABLE,
    HalfAnswer,
    HalfInput,
    HalfState,
    decide_half,
    is_open,
)
from amqp_broker.frames import Accepted, Modified, Rejected, Released

STATES = [None, *HalfState]


def test_the_table_is_total() -> None:
    """Every state found with every input."""
    assert {(state, what) for state, row in HALF_TABLE.items() for what in row} == set(
        product(STATES, HalfInput)
    )


def test_what_is_decided_stays_decided() -> None:
    """No input leads out of committed or rolled back."""
    for state, what in product((HalfState.COMMITTED, HalfState.ROLLED_BACK), HalfInput):
        answer, after = decide_half(state, what)
        assert after is state and answer is not HalfAnswer.DONE


def test_a_refusal_and_a_repeat_change_nothing() -> None:
    """Only DONE moves."""
    for state, what in product(STATES, HalfInput):
        answer, after = decide_half(state, what)
        assert (after is state) == (answer is not HalfAnswer.DONE), (state, what)


@pytest.mark.parametrize(
    ("found", "commit", "rollback"),
    [
        (HalfState.PREPARED, HalfAnswer.DONE, HalfAnswer.DONE),
        (HalfState.PARKED, HalfAnswer.DONE, HalfAnswer.DONE),
        (HalfState.COMMITTED, HalfAnswer.REPEAT, HalfAnswer.CONFLICT),
        (HalfState.ROLLED_BACK, HalfAnswer.CONFLICT, HalfAnswer.REPEAT),
        (None, HalfAnswer.UNKNOWN, HalfAnswer.UNKNOWN),
    ],
)
def test_resolutions_are_those_of_the_page(
    found: HalfState | None, commit: HalfAnswer, rollback: HalfAnswer
) -> None:
    """The table under "Resolve"."""
    assert decide_half(found, HalfInput.COMMIT)[0] is commit
    assert decide_half(found, HalfInput.ROLLBACK)[0] is rollback


def test_a_repeated_put_is_one_row_and_other_content_is_refused() -> None:
    """The table under "Put"."""
    for state in HalfState:
        same, other = (decide_half(state, what)[0] for what in (HalfInput.PUT_SAME, HalfInput.PUT_OTHER))
        assert same is (HalfAnswer.REPEAT if is_open(state) else HalfAnswer.CONFLICT)
        assert other is HalfAnswer.ID_CONFLICT


def test_the_table_of_checks_is_total_and_only_by_outcome_decides() -> None:
    """An automatic `accepted` on the plain node commits nothing."""
    for by_outcome, given in product((False, True), CheckGiven):
        effect, never_here = CHECK_OUTCOMES[by_outcome][given]
        assert never_here == (given is CheckGiven.UNDELIVERABLE)
        decides = effect in (CheckEffect.COMMIT, CheckEffect.ROLLBACK)
        assert decides == (by_outcome and given in (CheckGiven.ACCEPTED, CheckGiven.REJECTED))
    assert CHECK_OUTCOMES[True][CheckGiven.ACCEPTED][0] is CheckEffect.COMMIT
    assert CHECK_OUTCOMES[True][CheckGiven.REJECTED][0] is CheckEffect.ROLLBACK


@pytest.mark.parametrize("given", [CheckGiven.RELEASED, CheckGiven.LOST, CheckGiven.LATE])
def test_a_cut_connection_never_commits_and_is_no_attempt(given: CheckGiven) -> None:
    """On both nodes."""
    assert all(CHECK_OUTCOMES[each][given][0] is CheckEffect.NOT_ASKED for each in (False, True))


@pytest.mark.parametrize(
    ("outcome", "given"),
    [
        (Accepted(), CheckGiven.ACCEPTED),
        (Rejected(), CheckGiven.REJECTED),
        (Released(), CheckGiven.RELEASED),
        (Modified(), CheckGiven.MODIFIED),
        (Modified(delivery_failed=True), CheckGiven.FAILED),
        (Modified(delivery_failed=True, undeliverable_here=True), CheckGiven.UNDELIVERABLE),
    ],
)
def test_outcomes_are_read(outcome: object, given: CheckGiven) -> None:
    """All four outcomes."""
    assert check_given(outcome) is given
