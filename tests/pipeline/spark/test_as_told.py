"""Are the events of an archive those that the broker told? Columns give what it makes of fields."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from amqp_broker.command_line import main
from amqp_broker.event_checksums import FIELDS, MODULUS, NUMBER, checksum
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.audits.as_told import sums_of
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.folders import LocalPath
from amqp_broker.pipeline.told_checksums import Told, hexadecimal
from tests.pipeline.planter import planted
from tests.pipeline.test_archive_layout import sealed, segment_of
from tests.pipeline.truthful_day import Event, clock, numbered, numbered_events, truthful_world


def batch_of(events: list[Event]) -> pyarrow.RecordBatch:
    """Events as a worker of Spark is given them."""
    rows = [{**event, "time": round(event["time"].timestamp() * 1_000)} for event in events]
    kinds = {name: pyarrow.int64() if kind is NUMBER else pyarrow.string() for name, kind in FIELDS.items()}
    return pyarrow.RecordBatch.from_pydict(
        {name: pyarrow.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    )


def test_columns_give_the_checksum_that_the_broker_makes_of_its_fields() -> None:
    """Also of texts that are no ASCII, of empty ones, and of ranges that a batch has in no order."""
    events = numbered([truthful_world("é ü", clock())])
    events[5]["reason"], events[6]["reason"] = "", "a\nb"
    starts = [1, 51, 101, 151]
    expected = {}
    for at, start in enumerate(starts):
        mine = events[start - 1 : starts[at + 1] - 1 if at + 1 < len(starts) else None]
        told = [
            {**event, "time": round(event["time"].timestamp() * 1_000), "seq_prev": event.get("seq_prev")}
            for event in mine
        ]
        expected[at] = (len(mine), sum(map(checksum, told)) % MODULUS)
    assert sums_of(batch_of(events), starts) == expected
    assert sums_of(batch_of(events[::2] + events[1::2]), starts) == expected
    assert sums_of(batch_of(events), [1_000]).keys() == {-1}


def test_whatever_is_changed_in_an_archive_changes_its_checksum() -> None:
    """What nobody can see in the events of a broker is seen where they are not those that it told."""
    log = truthful_world("day", clock()).events
    before = sums_of(batch_of(numbered_events(log)), [1])
    chance = random.Random(17)
    for _ in range(300):
        change, events = planted(log, chance)
        assert sums_of(batch_of(numbered_events(events)), [1]) != before, change


def told_of(layout: ArchiveLayout[LocalPath], *ends: int) -> None:
    """Batches of one event each, as the stream leaves them, with what the broker told of them."""
    for number, end in enumerate(ends):
        table = pyarrow.table({"lsn": [end - 1]})
        pyarrow.parquet.write_table(table, layout.epoch(number) / "part-0.parquet")
        layout.seal(layout.epoch(number))
        layout.note([Told(end - 1, end, 1, hexadecimal(end))])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: lines[:-1], "told of the events before 4, and it ends before 3: lines were cut off"),
        (lambda lines: lines[1:], "expected what the broker has told, and line 1 was changed"),
        (lambda lines: [lines[0], lines[1].replace("1", "2"), lines[2]], "and line 2 was changed"),
        (lambda lines: None, "expected what the broker has told, and it is gone"),
    ],
    ids=["cut off", "line gone", "edited", "file gone"],
)
def test_what_the_broker_told_is_whole_or_told_by_its_name(
    damage: Callable[[list[str]], list[str] | None], words: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With status 2, as a file of events."""
    layout = sealed(tmp_path)
    told_of(layout, 2, 3, 4)
    layout.verify()
    assert [one.first for one in layout.told()] == [1, 2, 3]
    lines = damage(layout.checksums.read_text().splitlines())
    if lines is None:
        layout.checksums.unlink()
    else:
        layout.checksums.write_text("".join(f"{line}\n" for line in lines))
    assert main(["pipeline", "audit", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said and str(layout.checksums) in said


def test_a_batch_that_is_not_committed_need_not_be_told_of(tmp_path: Path) -> None:
    """The stream was killed between the two, and begins it again; compaction keeps that the broker tells."""
    layout = sealed(tmp_path)
    told_of(layout, 2, 3, 4)
    layout.checksums.write_text("".join(layout.checksums.read_text().splitlines(keepends=True)[:2]))
    (layout.checkpoint / "commits" / "2").unlink()
    layout.verify()
    segment_of(layout, 0, 1)
    layout.keep_segments([(0, 1)])
    layout.checksums.unlink()
    with pytest.raises(PipelineError, match="and it is gone"):
        layout.verify()
