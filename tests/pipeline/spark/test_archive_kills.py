"""A real kill of the process that archives, in a batch and in a compaction; all places by `archive_kills`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipeline.spark.archive_kills import differences, life, twice


@pytest.mark.timeout(900)
def test_an_archive_that_was_killed_is_the_log(tmp_path: Path) -> None:
    """Once while a batch was half written, once when the manifest was replaced and nothing removed."""
    assert life(tmp_path, ["A1", "K2"], 60) == []


@pytest.mark.parametrize(
    ("archived", "said"),
    [
        ([(1, "a"), (2, "b"), (2, "b")], "1 events are there twice, such as [2]"),
        ([(1, "a")], "1 of 2 events are missing, such as [2]"),
        ([(1, "a"), (2, "c")], "the column type is not that of the log"),
    ],
)
def test_what_is_wrong_with_an_archive_is_found(archived: list[tuple[int, str]], said: str) -> None:
    """Twice, missing, another."""
    log = pa.table({"lsn": [1, 2], "type": ["a", "b"]})
    found = pa.table({"lsn": [lsn for lsn, _ in archived], "type": [kind for _, kind in archived]})
    assert differences(found, log) == [said]
    assert differences(log, log) == [] and twice(log) == []
