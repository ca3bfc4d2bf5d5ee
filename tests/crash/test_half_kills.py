"""Writers of half messages under kill -9, and whether the checker sees what it must."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.crash.half_history import ACCEPTED, COMMIT, PUT, ROLLBACK, UNKNOWN, HalfHistory, check_halves
from tests.crash.halves import Halves
from tests.crash.lives import run_kills


def history_of(*events: tuple[str, str, str]) -> HalfHistory:
    """A history from (what, half-id, answer), one second apart."""
    history = HalfHistory()
    for at, (what, half_id, answer) in enumerate(events):
        history.told(half_id, what, answer, float(at), float(at))
    return history


STORED = (PUT, "1", ACCEPTED)


@pytest.mark.parametrize(
    ("history", "delivered"),
    [
        (history_of(STORED, (COMMIT, "1", ACCEPTED)), []),
        (history_of(STORED, (COMMIT, "1", ACCEPTED)), ["1", "1"]),
        (history_of(STORED, (ROLLBACK, "1", ACCEPTED)), ["1"]),
        (history_of(STORED, (COMMIT, "1", ACCEPTED), (ROLLBACK, "1", ACCEPTED)), ["1"]),
        (history_of(STORED, (COMMIT, "1", ACCEPTED), (COMMIT, "1", "half:conflict")), ["1"]),
        (history_of(STORED, (COMMIT, "1", "half:unknown-id"), (ROLLBACK, "1", ACCEPTED)), []),
        (history_of(STORED), []),
        (history_of(STORED, (COMMIT, "1", ACCEPTED)), ["1", "2"]),
    ],
)
def test_each_kind_of_contradiction_is_seen(history: HalfHistory, delivered: list[str]) -> None:
    """Lost, doubled, undone, both, refused after accepted, forgotten, undecided, invented."""
    assert check_halves(history, delivered)


def test_a_history_that_holds_has_no_complaints() -> None:
    """Repeats, conflicts and lost answers are no contradictions."""
    history = history_of(
        (COMMIT, "1", "half:unknown-id"), (PUT, "1", UNKNOWN), STORED, (COMMIT, "1", UNKNOWN),
        (COMMIT, "1", ACCEPTED), (ROLLBACK, "1", "half:conflict"), ("put", "1", "half:conflict"),
    )  # fmt: skip
    assert check_halves(history, ["1"]) == []


def test_what_is_undecided_can_be_asked_for_while_others_tell() -> None:
    """Writers add stories meanwhile: one of them must not end because of that."""
    history = HalfHistory()

    def tell() -> None:
        for number in range(20_000):
            history.told(f"{number}", PUT, ACCEPTED, 0.0, 0.0)

    told = threading.Thread(target=tell)
    told.start()
    while told.is_alive():
        history.undecided()
    assert len(history.undecided()) == 20_000


def test_a_kill_at_each_point_of_a_put_and_a_decision_contradicts_nothing(tmp_path: Path) -> None:
    """One life for each point, and some that end at random."""
    points = [point for point in Halves.points if not point.startswith("checkpoint")]
    complaints, line = run_kills(tmp_path, [Halves(7)], len(points) + 5, 7, points=points)
    assert complaints == [], line
