"""A broker that is killed around the COMMIT of messages and state keeps every stream in order and once (a
quick version of `python -m tests.crash.sequenced_kills`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.evidence import Evidence
from tests.crash.lives import Lives, run_kills
from tests.crash.sequenced_kills import POINTS, SequencedWorkload
from tests.crash.sequenced_traffic import KINDS

KILLS: Final = 6
SEED: Final = 4_711


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_before_and_after_the_commit_with_resend(tmp_path: Path, point: str) -> None:
    """At each point on the way of a commit, while it is passed for the first and for a later time."""
    workload = SequencedWorkload(SEED, len(KINDS))
    lives = Lives(tmp_path, workload)
    with Evidence(tmp_path, {"point": point, "seed": SEED}, workload.records) as evidence:
        for passes in (4, 9):
            lives.live(point, passes, 0)
        evidence.complaints += lives.finish()
    assert lives.deaths, f"the broker never passed {point}"
    assert evidence.complaints == [], evidence.summary()


def test_kills_at_any_moment(tmp_path: Path) -> None:
    """The senders go on in the next life, each in its way."""
    complaints, line = run_kills(tmp_path, SequencedWorkload(SEED, len(KINDS)), KILLS, SEED, points=())
    assert complaints == [], line
