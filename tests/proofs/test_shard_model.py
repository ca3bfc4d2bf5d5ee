"""Sharded sets in the model: with all of the rules nothing goes wrong, without any one of them something."""

from __future__ import annotations

import attrs
import pytest

from tests.pipeline.shard_model import Rules, run

RUNS = 3_000
RUNS_WITHOUT_THE_VOTE = 300
RUNS_OF_A_VARIANT = 4_000
"""At most: it ends with the first run that goes wrong."""


def test_every_row_once_whatever_happens() -> None:
    """Killed drivers, lost, late and doubled words, checkers and ages at any time."""
    wrong = {seed: found for seed in range(RUNS) if (found := run(seed))}
    assert not wrong, f"{len(wrong)} of {RUNS} went wrong, the first: {next(iter(wrong.items()))}"


def test_without_the_vote_many_runs_lose_rows() -> None:
    """A shard that voids a prepared set at its age, as any other set."""
    wrong = sum(bool(run(seed, Rules(vote=False))) for seed in range(RUNS_WITHOUT_THE_VOTE))
    assert wrong > RUNS_WITHOUT_THE_VOTE // 20


@pytest.mark.parametrize("rule", [each.name for each in attrs.fields(Rules) if each.name != "vote"])
def test_no_rule_can_be_left_out(rule: str) -> None:
    """Each of them is there for a run that would go wrong without it."""
    without = Rules(**{rule: False})
    assert any(run(seed, without) for seed in range(RUNS_OF_A_VARIANT))
