"""The life of a set of half messages: the tables are total, and decided is decided."""

from __future__ import annotations

from itertools import product

import pytest

from amqp_broker.coordinator.half_checks import SET_CHECK_OUTCOMES, CheckEffect, CheckGiven
from amqp_broker.coordinator.half_set_table import (
    EPOCH_TABLE,
    SET_TABLE,
    EpochInput,
    EpochState,
    SetAnswer,
    SetInput,
    SetState,
    decide_epoch,
    decide_set,
    epoch_state,
)

STATES = [None, *SetState]


def test_the_tables_are_total() -> None:
    """Every state found with every input."""
    assert {(state, what) for state, row in SET_TABLE.items() for what in row} == {*product(STATES, SetInput)}
    told = {(state, what) for state, row in EPOCH_TABLE.items() for what in row}
    assert told == {*product(EpochState, EpochInput)}


def test_a_refusal_and_a_repeat_change_nothing() -> None:
    """Only DONE moves."""
    for state, what in product(STATES, SetInput):
        answer, after = decide_set(state, what)
        assert (after is state) == (answer is not SetAnswer.DONE), (state, what)


def test_what_is_committed_stays_committed() -> None:
    """No input leads out of it."""
    for what in SetInput:
        answer, after = decide_set(SetState.COMMITTED, what)
        assert after is SetState.COMMITTED and answer is not SetAnswer.DONE


def test_the_only_ways_to_the_queues() -> None:
    """Sealed and named as it is; prepared, and named so by its coordinator. Nothing else commits a set."""
    pairs = product([state for state in STATES if state is not SetState.COMMITTED], SetInput)
    ways = [(state, what) for state, what in pairs if decide_set(state, what)[1] is SetState.COMMITTED]
    assert ways == [(SetState.SEALED, SetInput.WIN_SAME), (SetState.PREPARED, SetInput.APPLY_SAME)]


def test_only_its_coordinator_ends_what_is_prepared() -> None:
    """The coordinator's decision, or its word; no age, no other commit, no plain void."""
    ends = {what for what in SetInput if decide_set(SetState.PREPARED, what)[1] is not SetState.PREPARED}
    assert ends == {SetInput.APPLY_SAME, SetInput.LOSE_AT_COORDINATOR, SetInput.VOID_AT_COORDINATOR}


def test_what_the_coordinator_gave_its_word_about_never_comes_back() -> None:
    """Neither by a late message nor by a commit; the trace ends with its epoch, its age, or by force."""
    ends = {what for what in SetInput if decide_set(SetState.VOIDED, what)[1] is not SetState.VOIDED}
    assert ends == {SetInput.LOSE, SetInput.LOSE_AT_COORDINATOR, SetInput.AGE, SetInput.VOID_AT_COORDINATOR}
    assert {decide_set(SetState.VOIDED, what)[1] for what in ends} == {None}


def test_messages_are_staged_in_an_open_set_only() -> None:
    """A link is had for one that is not there yet, or is open."""
    had = [state for state in STATES if decide_set(state, SetInput.STAGE)[1] is SetState.OPEN]
    assert had == [None, SetState.OPEN]


@pytest.mark.parametrize("what", [SetInput.LOSE, SetInput.VOID, SetInput.AGE])
def test_voiding_leaves_no_trace_and_may_be_repeated(what: SetInput) -> None:
    """Open or sealed: gone; never seen: accepted."""
    for state in (SetState.OPEN, SetState.SEALED):
        assert decide_set(state, what) == (SetAnswer.DONE, None)
    assert decide_set(None, what) == (SetAnswer.REPEAT, None)


def test_a_set_that_won_is_no_loser() -> None:
    """To void it is a conflict; the commit of a later epoch leaves it alone."""
    assert decide_set(SetState.COMMITTED, SetInput.VOID)[0] is SetAnswer.CONFLICT
    assert decide_set(SetState.COMMITTED, SetInput.LOSE)[0] is SetAnswer.REPEAT


@pytest.mark.parametrize(
    ("epoch", "decided", "latest", "state"),
    [
        (0, False, None, EpochState.AHEAD),
        (5, False, 4, EpochState.AHEAD),
        (4, False, 4, EpochState.PASSED),
        (3, False, 4, EpochState.PASSED),
        (4, True, 4, EpochState.DECIDED),
        (3, True, 4, EpochState.DECIDED),
    ],
)
def test_where_an_epoch_stands(epoch: int, decided: bool, latest: int | None, state: EpochState) -> None:
    """A decision tells, else the latest one."""
    assert epoch_state(epoch, decided, latest) is state


def test_an_epoch_that_is_not_ahead_takes_nothing() -> None:
    """Only the commit of a decided one is accepted, as a repeat."""
    for state, what in product((EpochState.DECIDED, EpochState.PASSED), EpochInput):
        answer = decide_epoch(state, what)
        repeat = state is EpochState.DECIDED and what is EpochInput.COMMIT
        assert answer is not SetAnswer.DONE and (answer is SetAnswer.REPEAT) == repeat
    assert {decide_epoch(EpochState.AHEAD, what) for what in EpochInput} == {SetAnswer.DONE}


def test_no_outcome_of_a_check_commits_a_set() -> None:
    """All else is as for half messages; only rejected ends it, and only where outcomes decide."""
    assert {key: {*row} for key, row in SET_CHECK_OUTCOMES.items()} == {
        False: {*CheckGiven},
        True: {*CheckGiven},
    }
    effects = {effect for row in SET_CHECK_OUTCOMES.values() for effect, _ in row.values()}
    assert CheckEffect.COMMIT not in effects
    ends = [
        (by_outcome, given)
        for by_outcome, row in SET_CHECK_OUTCOMES.items()
        for given, (effect, _) in row.items()
        if effect is CheckEffect.ROLLBACK
    ]
    assert ends == [(True, CheckGiven.REJECTED)]
