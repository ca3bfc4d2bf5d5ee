"""A soak of a minute and a half: whatever it does works, nothing grows fast, and nothing is left."""

from __future__ import annotations

from pathlib import Path

from tests.soak.acts import ACTS
from tests.soak.ground import ground_of
from tests.soak.run import Soak


def test_nothing_grows_and_nothing_is_left(tmp_path: Path) -> None:
    """Latency is not judged closely: other tests run beside it."""
    with ground_of(tmp_path) as ground:
        soak = Soak(ground, minutes=1.5, seed=5, rate=8)
        soak.run(beside_others=True)
    assert soak.complaints == []
    assert [str(finding) for finding in soak.findings if not finding.flat] == []
    assert set(soak.done) >= {act.__name__ for act, weight in ACTS if weight > 2}, soak.told()
