"""The decision table at the end of a transaction (4.4.4), against the standard's sentences."""

from __future__ import annotations

import itertools

import pytest

from amqp_broker.coordinator import Effect
from amqp_broker.coordinator.effects import DECISIONS, Given, Kind, decide, given_by
from amqp_broker.frames import Accepted, Declared, Modified, Received, Rejected, Released

OUTCOMES = [Given.REMOVES, Given.RETURNS]


def test_the_table_is_total() -> None:
    """Each kind, outcome, way of settling and result has its decision."""
    assert set(DECISIONS) == set(Kind)
    for kind, given, settled, committed in itertools.product(Kind, Given, (False, True), (False, True)):
        effect, settles = decide(kind, given, settled, committed)
        assert isinstance(effect, Effect)
        assert not (settles and settled), "what the controller settled has no disposition any more"


@pytest.mark.parametrize(
    ("outcome", "given"),
    [
        (Accepted(), Given.REMOVES),
        (Rejected(), Given.REMOVES),
        (Released(), Given.RETURNS),
        (Modified(delivery_failed=True), Given.RETURNS),
        (None, Given.NOTHING),
        (Received(section_number=0, section_offset=0), Given.NOTHING),
        (Declared(txn_id=b"x"), Given.NOTHING),
    ],
)
def test_each_outcome_has_its_class(outcome: object, given: Given) -> None:
    """Terminal outcomes of 3.4 remove or return; received and what is no outcome do nothing."""
    assert given_by(outcome) is given


def test_commit_applies_the_outcome_and_settles_what_the_controller_did_not() -> None:
    """A committed retirement is applied, and settled by us where it is unsettled (4.4.2)."""
    for kind in (Kind.RETIREMENT, Kind.ACQUISITION):
        assert decide(kind, Given.REMOVES, False, True) == (Effect.RETIRE, True)
        assert decide(kind, Given.RETURNS, False, True) == (Effect.RETURN, True)
        assert decide(kind, Given.REMOVES, True, True) == (Effect.RETIRE, False)
        assert decide(kind, Given.RETURNS, True, True) == (Effect.RETURN, False)


@pytest.mark.parametrize("given", list(Given))
def test_rule_9_rollback_of_an_unsettled_retirement_leaves_it_acquired(given: Given) -> None:
    """Rule 9: the delivery stays live and acquired by the link (4.4.2, 4.4.4.2)."""
    assert decide(Kind.RETIREMENT, given, False, False) == (Effect.KEEP_HELD, False)


@pytest.mark.parametrize("given", list(Given))
def test_rule_9_rollback_of_a_settled_retirement_applies_the_default(given: Given) -> None:
    """Rule 9: the resource MUST apply the default outcome (4.4.4.2)."""
    assert decide(Kind.RETIREMENT, given, True, False) == (Effect.APPLY_DEFAULT, False)


@pytest.mark.parametrize("given", list(Given))
@pytest.mark.parametrize("settled", [False, True])
def test_rule_10_rollback_of_an_acquisition_undoes_both(given: Given, settled: bool) -> None:
    """Rule 10: acquisition and outcome are rolled back; settled as released if it is not yet (4.4.4.3)."""
    assert decide(Kind.ACQUISITION, given, settled, False) == (Effect.RELEASE, not settled)
    assert decide(Kind.ACQUISITION_SETTLED, given, settled, False) == (Effect.RELEASE, False)


def test_acquired_without_an_outcome_at_commit_stays_acquired() -> None:
    """The acquisition holds, unsettled on its link; without the link its default outcome applies (4.4.3)."""
    assert decide(Kind.ACQUISITION, Given.NOTHING, False, True) == (Effect.KEEP_HELD, False)
    assert decide(Kind.ACQUISITION, Given.NOTHING, True, True) == (Effect.APPLY_DEFAULT, False)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("given", list(Given))
@pytest.mark.parametrize("kind", list(Kind))
def test_a_link_that_left_says_nothing(kind: Kind, given: Given, committed: bool) -> None:
    """What was settled by the end of its link alone has no default outcome; all else is as if settled."""
    effect, settles = decide(kind, given, True, committed)
    if effect is Effect.APPLY_DEFAULT:
        effect = Effect.LEFT
    assert decide(kind, given, True, committed, left=True) == (effect, settles)


def test_commit_of_a_settled_acquisition_retires() -> None:
    """What we sent settled leaves its queue with the commit (4.4.4.3, first case)."""
    assert decide(Kind.ACQUISITION_SETTLED, Given.NOTHING, True, True) == (Effect.RETIRE, False)
