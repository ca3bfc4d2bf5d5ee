"""A Spark standalone cluster of two workers with speculation."""

from __future__ import annotations

import pytest

from tests.pipeline.spark import cluster


@pytest.mark.timeout(900)  # six processes of Java start for it
def test_a_copy_of_a_task_is_committed_instead_of_it_and_never_with_it() -> None:
    """One task stands still with its set sealed: its copy wins, and every row is there once and in order."""
    assert cluster.main(["--rows", "240"]) == 0
