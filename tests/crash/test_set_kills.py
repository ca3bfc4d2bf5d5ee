"""Producers of half-message sets under kill -9, and whether the checker sees what it must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.deaths import Death, check_deaths
from tests.crash.lives import run_kills
from tests.crash.set_history import SetHistory, Winners
from tests.crash.sets import WAYS, Sets

ONE: Winners = (("a", 2, 7), ("b", 1, 8))
ROWS = ["p/0/a/q/0", "p/0/a/q/1", "p/0/b/q/0"]
OTHER = ["o/0/x/q/0"]


def history_of(accepted: bool = True, decided: Winners | None = ONE) -> SetHistory:
    """Two producers with a commit each: that of `o` is accepted, and that of `p` is decided as told."""
    history = SetHistory(("p", "o"))
    history.rows |= {"a": {"q": ROWS[:2]}, "b": {"q": ROWS[2:]}, "c": {"q": ["p/0/c/q/0"]}, "x": {"q": OTHER}}
    for name, winners in (("p", ONE), ("o", (("x", 1, 5),))):
        story = history.current(name)
        history.committing(story, winners, 1)
        if name == "o" or accepted:
            history.committed(story)
        history.told(story, winners if name == "o" else decided)
    return history


@pytest.mark.parametrize(
    "delivered",
    [
        [*OTHER],
        [*ROWS, *OTHER, *ROWS],
        [*ROWS[:2], *OTHER],
        [ROWS[1], ROWS[0], ROWS[2], *OTHER],
        [ROWS[2], *ROWS[:2], *OTHER],
        [*ROWS[:2], *OTHER, ROWS[2]],
        [*ROWS, *OTHER, "p/1/c/q/0"],
        [*ROWS, "p/0/c/q/0", *OTHER],
        [*ROWS],
    ],
)
def test_each_kind_of_contradiction_is_seen(delivered: list[str]) -> None:
    """Lost, doubled, in part, in a wrong order, not at once, invented, and those of a set that lost."""
    assert history_of().check({"q": delivered})


def test_what_holds_has_no_complaints() -> None:
    """Both epochs wholly, in either order; and none where none is decided."""
    assert history_of().check({"q": [*OTHER, *ROWS]}) == []
    assert history_of().check({"q": [*ROWS, *OTHER]}) == []
    assert history_of(accepted=False, decided=None).check({"q": OTHER}) == []
    assert history_of(accepted=False).check({"q": [*ROWS, *OTHER]}) == []


@pytest.mark.parametrize(
    "later",
    [
        lambda: history_of(decided=None),
        lambda: history_of(decided=(("c", 1, 1),)),
        lambda: history_of(accepted=False, decided=(("c", 1, 1),)),
        lambda: told_again(None),
        lambda: told_again((("c", 1, 1),)),
    ],
)
def test_a_decision_that_changes_is_seen(later: Callable[[], SetHistory]) -> None:
    """Accepted and not there, another one than the commit's, forgotten, and changed later."""
    assert later().complaints


def told_again(decided: Winners | None) -> SetHistory:
    """`status` says something else later."""
    history = history_of()
    history.told(history.current("p"), decided)
    return history


def test_a_death_at_a_point_tells_the_fate_of_its_commit() -> None:
    """After the COMMIT one is decided, before it one is not."""
    lost, kept = history_of(accepted=False, decided=None).fates(), history_of(accepted=False).fates()
    before, moved = Death(1, "epoch.before_commit"), Death(1, "move.after_rows")
    after = Death(1, "epoch.after_commit")
    assert check_deaths([before, Death(2, "apply.done")], WAYS, lost) == []
    assert check_deaths([after], WAYS, kept) == []
    assert check_deaths([after], WAYS, lost)
    assert check_deaths([moved], WAYS, kept)
    assert check_deaths([moved], WAYS, history_of().fates())
    assert check_deaths([Death(1, "move.after_rows", starting=True)], WAYS, {}) == []


def test_a_kill_at_each_point_of_an_epoch_contradicts_nothing(tmp_path: Path) -> None:
    """One life for each point, and some that end at random."""
    points = [point for point in Sets.points if not point.startswith(("apply", "commit"))]
    complaints, line = run_kills(tmp_path, [Sets(7)], len(points) + 5, 7, points=points)
    assert complaints == [], line
