"""A broker that is killed at any moment keeps its promises (a quick version of `python -m
tests.crash.kills`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.fault_points import reachable_points, run_point
from tests.crash.half_kills import HalfWorkload
from tests.crash.kills import run_kills
from tests.crash.scenario import TRANSACTIONS
from tests.crash.sequenced_kills import SequencedWorkload
from tests.crash.set_kills import SetWorkload

KILLS: Final = 10
KILLS_WITH_TRANSACTIONS: Final = 4
KILLS_WITH_EVERYTHING: Final = 3
SEED: Final = 4_711


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """What was accepted comes once, what was confirmed as settled never again, order is kept."""
    complaints, line = run_kills(tmp_path, KILLS, SEED, show=False)
    assert complaints == [], line


def test_kills_at_random_moments_leave_no_half_discharge(tmp_path: Path) -> None:
    """Each transaction is wholly there or wholly absent, as its controller was told or can ask."""
    complaints, line = run_kills(tmp_path, KILLS_WITH_TRANSACTIONS, SEED, load=TRANSACTIONS, show=False)
    assert complaints == [], line


@pytest.mark.parametrize("point", reachable_points())
def test_a_kill_at_a_named_point_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    """The broker dies there under load, and the next life finds what was promised."""
    run = run_point(tmp_path, point, 1, SEED, lives=1)
    assert run.complaints == [], run.summary
    assert run.deaths, f"the broker never passed {point}"


def test_kills_with_all_kinds_of_clients_at_once(tmp_path: Path) -> None:
    """Half messages, sets of them and streams in the lives of controllers and plain clients."""
    others = [HalfWorkload(SEED), SetWorkload(SEED), SequencedWorkload(SEED)]
    complaints, line = run_kills(
        tmp_path, KILLS_WITH_EVERYTHING, SEED, load=TRANSACTIONS, others=others, show=False
    )
    assert complaints == [], line
