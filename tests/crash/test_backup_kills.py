"""A broker that is killed while it is backed up (a quick version of `python -m tests.crash.backups`)."""

from __future__ import annotations

from pathlib import Path

from tests.crash.backups import run


def test_each_restored_store_is_a_committed_moment(tmp_path: Path) -> None:
    """Whatever the kill interrupted: what has the name of a backup is one, wholly."""
    _, restored, complaints = run(tmp_path, restores=6, seed=4_711)
    assert complaints == [] and restored >= 6
