"""A broker that is killed at any moment keeps its promises (a quick version of `python -m
tests.crash.kills`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from amqp_broker.persistence.fault_points import POINTS
from tests.crash.deaths import points_of
from tests.crash.kills import EVERYTHING, FEATURES, all_points, workloads_of
from tests.crash.lives import ALWAYS, OUT_OF_REACH, STARTING, run_kills
from tests.crash.messages import WAY

KILLS: Final = 10
KILLS_WITH_TRANSACTIONS: Final = 4
KILLS_WITH_EVERYTHING: Final = 3
SEED: Final = 4_711


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """What was accepted comes once, what was confirmed as settled never again, order is kept."""
    complaints, line = run_kills(tmp_path, workloads_of(["messages"], SEED), KILLS, SEED)
    assert complaints == [], line


def test_kills_at_random_moments_leave_no_half_discharge(tmp_path: Path) -> None:
    """Each transaction is wholly there or wholly absent, as its controller was told or can ask."""
    workloads = workloads_of(["transactions"], SEED)
    complaints, line = run_kills(tmp_path, workloads, KILLS_WITH_TRANSACTIONS, SEED, points=())
    assert complaints == [], line


@pytest.mark.parametrize("point", points_of(*ALWAYS, *STARTING, WAY))
def test_a_kill_at_a_named_point_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    """The broker dies there under load, and the next life finds what was promised."""
    workloads = workloads_of(["transactions" if point.startswith(WAY) else "messages"], SEED)
    complaints, line = run_kills(tmp_path, workloads, 1, SEED, points=[f"{point}:1"])
    assert complaints == [], line
    assert f"1 at {point}" in line, f"the broker never passed {point}"


def test_kills_with_all_kinds_of_clients_at_once(tmp_path: Path) -> None:
    """Half messages, sets of them and streams in the lives of controllers and plain clients."""
    workloads = workloads_of([EVERYTHING], SEED)
    complaints, line = run_kills(tmp_path, workloads, KILLS_WITH_EVERYTHING, SEED, points=())
    assert complaints == [], line


def test_each_feature_plugs_in() -> None:
    """Alone and with all others; who has the journal has messages to hold it against."""
    assert all(workloads_of([name], SEED) for name in FEATURES)
    alone = {each.name for name in FEATURES for each in workloads_of([name], SEED)}
    assert alone - {each.name for each in workloads_of([EVERYTHING], SEED)} == {"messages"}
    assert [each.name for each in workloads_of(["events"], SEED)] == ["messages", "events"]


def test_each_point_has_its_death_or_a_reason() -> None:
    """Whatever the store can die at is passed under some workload, or somebody else kills there."""
    found = {point.partition(":")[0] for point in all_points(workloads_of([EVERYTHING], SEED))}
    assert POINTS - found == {*points_of(*OUT_OF_REACH)}
    assert found - POINTS == {"sealed"}, "a state of clients"
