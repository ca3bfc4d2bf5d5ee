"""A query is started again where Spark gave up before anything of it ran, and for nothing else."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.spark.queries import STARTS, run_to_end

SAID = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Committed Offsets: {}
Current Available Offsets: {}

Current State: INITIALIZING
Thread State: RUNNABLE"""  # noqa: E501
"""What Spark 4.3 says."""


class Planned:
    """Stands for a query of Spark; each start ends as it was planned, in words, or well."""

    def __init__(self, *ends: str | None) -> None:
        self.ends = list(ends)
        self.starts = 0
        self.recentProgress: list[str] = []

    def start(self) -> Planned:
        """It runs."""
        self.starts += 1
        return self

    def awaitTermination(self) -> None:
        """Raises what was planned."""
        if (said := self.ends.pop(0)) is not None:
            raise StreamingQueryException(said)


def test_it_is_started_again_before_anything_ran() -> None:
    """Until it runs."""
    query = Planned(SAID, SAID, None)
    assert run_to_end(query.start) is query and query.starts == STARTS


def test_it_is_not_started_for_ever() -> None:
    """What Spark says at last is the failure."""
    query = Planned(*[SAID] * STARTS)
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        run_to_end(query.start)
    assert query.starts == STARTS


@pytest.mark.parametrize(
    "said", [SAID.replace("INITIALIZING", "ACTIVE"), SAID.replace("failed to connect back", "crashed"), "x"]
)
def test_another_failure_is_one(said: str) -> None:
    """Also the same words amid a batch."""
    query = Planned(said)
    with pytest.raises(StreamingQueryException):
        run_to_end(query.start)
    assert query.starts == 1


def test_a_query_that_had_progress_is_not_started_again() -> None:
    """Then something of it ran."""
    query = Planned(SAID)
    query.recentProgress.append("a batch")
    with pytest.raises(StreamingQueryException):
        run_to_end(query.start)
    assert query.starts == 1
