"""A broker that is killed around the COMMIT of messages and state keeps every stream in order and once (a
quick version of `python -m tests.crash.kills --with sequences`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.lives import run_kills
from tests.crash.sequenced_traffic import KINDS
from tests.crash.sequences import Sequences

KILLS: Final = 6
SEED: Final = 4_711


@pytest.mark.parametrize("point", Sequences.points)
def test_a_kill_before_and_after_the_commit_with_resend(tmp_path: Path, point: str) -> None:
    """At each point on the way of a commit, while it is passed for the first and for a later time."""
    ends = [f"{point}:4", f"{point}:9"]
    complaints, line = run_kills(tmp_path, [Sequences(SEED, len(KINDS))], 2, SEED, points=ends)
    assert complaints == [], line
    assert f"2 at {point}" in line


def test_kills_at_any_moment(tmp_path: Path) -> None:
    """The senders go on in the next life, each in its way."""
    complaints, line = run_kills(tmp_path, [Sequences(SEED, len(KINDS))], KILLS, SEED, points=())
    assert complaints == [], line
