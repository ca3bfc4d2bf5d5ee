"""A Spark standalone cluster of two workers with speculation."""

from __future__ import annotations

import pytest

from tests.pipeline.spark import cluster


@pytest.mark.timeout(900)  # six processes of Java start for it
def test_copies_of_tasks_and_executors_that_are_killed() -> None:
    """One task stands still with its set sealed and its copy wins; two executors are killed; every row is
    there once and in order.
    """
    assert cluster.main(["--rows", "240"]) == 0
