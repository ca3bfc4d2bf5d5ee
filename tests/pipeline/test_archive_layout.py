"""Which folders of an archive count, whatever was killed while they were made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.command_line import main
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.folders import LocalPath


def layout_with(folder: Path, *complete: int, torn: tuple[int, ...] = ()) -> ArchiveLayout[LocalPath]:
    """An archive with these batches, of which the torn ones have no _SUCCESS."""
    layout = ArchiveLayout(folder)
    for number in (*complete, *torn):
        layout.epoch(number).mkdir(parents=True)
        (layout.epoch(number) / "part-0.parquet").touch()
    for number in complete:
        (layout.epoch(number) / "_SUCCESS").touch()
    return layout


def segment_of(layout: ArchiveLayout[LocalPath], first: int, last: int) -> LocalPath:
    """A compacted range of batches, made and not yet named."""
    layout.segment(first, last).mkdir(parents=True)
    return layout.segment(first, last)


def test_a_batch_without_success_does_not_count(tmp_path: Path) -> None:
    """The complete batches count in the order of their numbers, the torn one does not."""
    assert layout_with(tmp_path, 10, 9, 0, torn=(11,)).epochs() == [0, 9, 10]


def test_a_segment_counts_when_the_manifest_names_it(tmp_path: Path) -> None:
    """A segment that was written before a kill is not read, and its batches still are."""
    layout = layout_with(tmp_path, 0, 1)
    segment_of(layout, 0, 1)
    assert (layout.epochs(), layout.segments()) == ([0, 1], [])
    layout.keep_segments([(0, 1)])
    assert (layout.epochs(), layout.segments()) == ([], [(0, 1)])
    assert not layout.epoch(1).exists()


def test_a_batch_that_is_written_again_after_its_compaction_does_not_count(tmp_path: Path) -> None:
    """A stream that begins its last batch again makes its folder again, and nobody reads it twice."""
    layout = layout_with(tmp_path, 0, 1)
    segment_of(layout, 0, 1)
    layout.keep_segments([(0, 1)])
    assert layout_with(tmp_path, 1, 2).epochs() == [2]


def test_segments_that_the_manifest_no_longer_names_are_removed(tmp_path: Path) -> None:
    """Two segments that were written together into one leave only that one."""
    layout = layout_with(tmp_path, 0, 1, 2)
    older = segment_of(layout, 0, 1)
    layout.keep_segments([(0, 1)])
    together = segment_of(layout, 0, 2)
    layout.keep_segments([(0, 2)])
    assert (older.exists(), together.exists(), layout.epochs()) == (False, True, [])


def test_what_is_no_archive_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    """An empty folder, and a manifest of another version."""
    layout = ArchiveLayout(tmp_path)
    with pytest.raises(PipelineError, match="amqp-broker pipeline archive URL DIR"):
        layout.check()
    layout.manifest.write_text(json.dumps({"version": 9, "compacted": []}))
    with pytest.raises(PipelineError, match="expected version 1, found 9"):
        layout.segments()


def sealed(folder: Path) -> ArchiveLayout[LocalPath]:
    """Batches 0 to 2, each with a file of its own content, as the stream leaves them."""
    layout = layout_with(folder, 0, 1, 2)
    (layout.checkpoint / "commits").mkdir(parents=True)
    for number in range(3):
        (layout.epoch(number) / "part-0.parquet").write_bytes(b"batch %d" % number)
        layout.seal(layout.epoch(number))
        (layout.checkpoint / "commits" / str(number)).touch()
    return layout


def _flip(file: Path) -> None:
    file.write_bytes(b"botch" + file.read_bytes()[5:])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip, "part-0.parquet: expected what was written, and it is damaged"),
        (lambda file: file.write_bytes(b""), "damaged: 7 octets were, 0 are there"),
        (lambda file: file.unlink(), "part-0.parquet: expected a file of the archive, and it is gone"),
        (lambda file: shutil.copy(file, file.with_name("part-1.parquet")), "1.parquet: expected no such"),
        (lambda file: (file.parent / "_FILES").write_text("{"), "_FILES: expected JSON"),
        (lambda file: shutil.rmtree(file.parent), "epoch=2: expected a batch that was archived, and"),
    ],
    ids=["flipped", "empty", "gone", "added", "list damaged", "batch gone"],
)
def test_a_damaged_archive_is_told_by_the_name_of_the_file(
    damage: Callable[[Path], object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 2, before Spark starts: whatever the audits would say of it would be about the damage."""
    layout = sealed(tmp_path)
    layout.verify()
    damage(layout.epoch(2) / "part-0.parquet")
    for command in ("audit", "report", "compact"):
        assert main(["pipeline", command, str(tmp_path)]) == 2
        assert words in capsys.readouterr().err


def test_a_damaged_manifest_is_told_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 2."""
    layout = sealed(tmp_path)
    layout.manifest.write_text("{")
    assert main(["pipeline", "audit", str(tmp_path)]) == 2
    assert "archive.json: expected JSON, but it is damaged" in capsys.readouterr().err


def test_what_an_older_version_wrote_is_read_as_it_is(tmp_path: Path) -> None:
    """Its folders say nothing of their files."""
    layout = layout_with(tmp_path, 0)
    layout.verify()
    (layout.epoch(0) / "part-1.parquet").touch()
    layout.verify()
