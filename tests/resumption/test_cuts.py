"""Exactly once, however the connection is cut, for programs that resume: a small run of
`python -m tests.resumption` (2.6.12, 2.6.13).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resumption.cuts import a_cut_at_each_octet, random_cuts


@pytest.mark.parametrize("seed", range(4))
def test_random_cuts(seed: int, tmp_path: Path) -> None:
    """Nothing is lost and nothing comes twice, wherever the transport breaks."""
    cuts, producer, consumer = random_cuts(seed, tmp_path)
    assert cuts > 20
    assert producer.resumed
    assert consumer.resumed


def test_a_cut_at_each_octet() -> None:
    """A dialogue of four messages, cut after each seventh octet of it in turn, and gone on with."""
    assert a_cut_at_each_octet(7) > 100
