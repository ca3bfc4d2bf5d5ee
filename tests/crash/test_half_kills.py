"""Writers of half messages under kill -9, and whether the checker sees what it must."""

from __future__ import annotations

import pytest

from tests.crash.half_history import ACCEPTED, COMMIT, ROLLBACK, HalfHistory, check_halves
from tests.crash.half_kills import POINTS_OF_HALVES, run


def history_of(*events: tuple[str, str, str]) -> HalfHistory:
    """A history from (what, half-id, answer), one second apart."""
    history = HalfHistory()
    for at, (what, half_id, answer) in enumerate(events):
        if what == "put":
            history.put(half_id, answer, float(at))
        else:
            history.resolved(half_id, what, answer, float(at))
    return history


PUT = ("put", "1", ACCEPTED)


@pytest.mark.parametrize(
    ("history", "delivered"),
    [
        (history_of(PUT, (COMMIT, "1", ACCEPTED)), []),
        (history_of(PUT, (COMMIT, "1", ACCEPTED)), ["1", "1"]),
        (history_of(PUT, (ROLLBACK, "1", ACCEPTED)), ["1"]),
        (history_of(PUT, (COMMIT, "1", ACCEPTED), (ROLLBACK, "1", ACCEPTED)), ["1"]),
        (history_of(PUT, (COMMIT, "1", ACCEPTED), (COMMIT, "1", "half:conflict")), ["1"]),
        (history_of(PUT, (COMMIT, "1", "half:unknown-id"), (ROLLBACK, "1", ACCEPTED)), []),
        (history_of(PUT), []),
        (history_of(PUT, (COMMIT, "1", ACCEPTED)), ["1", "2"]),
    ],
)
def test_each_kind_of_contradiction_is_seen(history: HalfHistory, delivered: list[str]) -> None:
    """Lost, doubled, undone, both, refused after accepted, forgotten, undecided, invented."""
    assert check_halves(history, delivered)


def test_a_history_that_holds_has_no_complaints() -> None:
    """Repeats, conflicts and lost answers are no contradictions."""
    history = history_of(
        (COMMIT, "1", "half:unknown-id"), ("put", "1", "unknown"), PUT, (COMMIT, "1", "unknown"),
        (COMMIT, "1", ACCEPTED), (ROLLBACK, "1", "half:conflict"), ("put", "1", "half:conflict"),
    )  # fmt: skip
    assert check_halves(history, ["1"]) == []


def test_a_kill_at_each_point_of_a_put_and_a_decision_contradicts_nothing() -> None:
    """One life for each point, and some that end at random."""
    points = tuple(point for point in POINTS_OF_HALVES if not point.startswith("checkpoint"))
    assert run(len(points) + 3, 7, points, show=False) == []
