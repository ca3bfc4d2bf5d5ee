"""Kills of a driver with its Java, in one life of a pipeline; all places by `crash_points`."""

from __future__ import annotations

import pytest

from tests.pipeline.spark import crash_points


@pytest.mark.timeout(900)  # four drivers start for it
def test_a_pipeline_that_is_killed_writes_each_row_once_and_in_order() -> None:
    """During staging, after the decision and before Spark knows of it, and after Spark's own commit."""
    assert crash_points.main(["--points", "C1,C4,C6"]) == 0
