"""What is taken over many lives: each planted violation is found, and what a kill explains is no complaint.
"""

from __future__ import annotations

import pytest

from tests.crash.history import Notes
from tests.crash.taken import Taken
from tests.promises.fates import Fate

LONG_S = 60.0


def taken(story: str) -> Taken:
    """What a queue gave: `came LIFE [FAILURES]`, `leaving`, `confirmed`, `failing`, `failed`, `returned`, all
    of one row.
    """
    queue = Taken("q", Notes())
    for line in story.split(", "):
        what, *numbers = line.split()
        if what == "came":
            queue.came("row", *map(int, numbers))
        elif what == "failing":
            queue.failing("row", LONG_S if numbers else 0.0)
        else:
            getattr(queue, what)("row")
    return queue


@pytest.mark.parametrize(
    "story",
    [
        "came 1, leaving, confirmed",
        "came 1, came 2, leaving, came 3, leaving, confirmed",
        "came 1, returned, came 1, leaving",
        "came 1, failing, failed, came 1 1, failing, came 1 2, leaving, confirmed",
        "came 1, failing, came 2, failing, failed, came 2 1",
        "came 1, failing, came 2 1, leaving",
        "came 1, failing late, failed, came 2 1",
    ],
)
def test_what_may_be_is_no_complaint(story: str) -> None:
    """A row comes again when it was given back, in a later life, or where its outcome was not confirmed."""
    assert taken(story).complaints == []


@pytest.mark.parametrize(
    ("story", "words"),
    [
        ("came 1, leaving, confirmed, came 2", "came back after the broker had confirmed"),
        ("came 1, came 1", "was received twice in one life"),
        ("came 1, leaving, came 1", "was received twice in one life"),
        ("came 1, failing late, failed, came 1 1", "before its delay was over"),
        ("came 1, failing, failed, came 2", "delivery-count 0, expected 1"),
        ("came 1, failing, came 1", "delivery-count 0, expected 1"),
        ("came 1, came 2 1", "delivery-count 1, expected 0"),
        ("came 1, failing, came 2 2", "delivery-count 2, expected 0 to 1"),
        ("came 1, returned, came 1 1", "delivery-count 1, expected 0"),
    ],
)
def test_a_planted_violation_is_found(story: str, words: str) -> None:
    """Twice, back, too early, a try that is forgotten or invented."""
    complaints = taken(story).complaints
    assert len(complaints) == 1 and words in complaints[0], complaints


def test_whether_a_row_is_elsewhere() -> None:
    """Nobody took it: it is; its taking was confirmed: it is not; else nobody knows."""
    assert Taken("q", Notes()).absence_of("row") is Fate.COMMITTED
    assert taken("came 1").absence_of("row") is Fate.COMMITTED
    assert taken("came 1, leaving").absence_of("row") is Fate.UNKNOWN
    assert taken("came 1, leaving, confirmed").absence_of("row") is Fate.ABSENT
    assert taken("came 1, leaving, confirmed").left() == ["row"]
