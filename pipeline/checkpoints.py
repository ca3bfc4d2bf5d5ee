"""What the checkpoint of a streaming query says, read from outside: no Spark, nothing is written.

<checkpoint>/metadata     {"id": "<uuid of the query>"}, the same for all its runs
<checkpoint>/offsets/N    batch N was planned
<checkpoint>/commits/N    batch N is done: the sink's `commit` returned before this was written
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from amqp_broker.pipeline.folders import Folder, LocalPath


@attrs.frozen
class Checkpoint:
    """One reading. Batch ids are -1 where there is none yet; `changed_at_s` is a Unix time."""

    query_id: str
    planned: int
    done: int
    changed_at_s: float


def read_checkpoint(folder: Path | Folder) -> Checkpoint | None:
    """What is there now; None where no query ever began, or nothing can be read."""
    path = LocalPath(folder) if isinstance(folder, Path) else folder
    try:
        query_id = json.loads((path / "metadata").read_text(encoding="utf-8"))["id"]
        planned, planned_at = _newest(path / "offsets")
        done, done_at = _newest(path / "commits")
        began_at = (path / "metadata").changed_at_s()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(query_id, str):
        return None
    return Checkpoint(query_id, planned, done, max(began_at, planned_at, done_at))


def _newest(folder: Folder) -> tuple[int, float]:
    """The highest batch id of a log, and when the log changed."""
    if not folder.is_dir():
        return -1, 0.0
    ids = [int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()]
    newest = max(ids, default=-1)
    # A folder of an object store has no time of its own.
    of_a_file = bool(ids) and not isinstance(folder, LocalPath)
    return newest, (folder / str(newest) if of_a_file else folder).changed_at_s()
