"""What the broker told of an archive's events: as the broker makes it, and whatever is changed is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from amqp_broker.event_checksums import FIELDS, MODULUS, NUMBER, TEXT, checksum
from amqp_broker.pipeline.audits.as_told import sums_of
from amqp_broker.pipeline.errors import BrokerRefused, PipelineError
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.told_checksums import BLOCK, Told, ask, hexadecimal, note, ranges, read_told
from tests.pipeline.truthful_day import Event, clock, numbered, truthful_world


def batch_of(events: list[Event]) -> pyarrow.RecordBatch:
    """Events as a worker of Spark is given them."""
    rows = [{**event, "time": round(event["time"].timestamp() * 1_000)} for event in events]
    kinds = {name: pyarrow.int64() if kind is NUMBER else pyarrow.string() for name, kind in FIELDS.items()}
    return pyarrow.RecordBatch.from_pydict(
        {name: pyarrow.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    )


def test_the_fields_are_the_columns_of_the_archive() -> None:
    """Of the same names and kinds."""
    numbers = ("bigint", "int", "timestamp")
    assert {name: NUMBER if kind in numbers else TEXT for name, kind in EVENT_COLUMNS} == FIELDS


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


def test_ranges_end_with_blocks_and_batches() -> None:
    """So that what is asked for of two batches never overlaps."""
    end = 2 * BLOCK + 8
    assert list(ranges(4_000, end)) == [(4_000, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, end)]
    assert list(ranges(5, 5)) == []


def told_of(first: int, end: int) -> list[Told]:
    """By a broker whose checksums are the number of the first event."""
    return ask(lambda start, until: (until - start, start), first, end)


def test_a_batch_that_begins_again_is_told_once(tmp_path: Path) -> None:
    """Its lines are replaced, whatever was told of it before the kill."""
    path = tmp_path / "checksums.jsonl"
    note(path, told_of(1, 5_000))
    note(path, told_of(5_000, 9_000))
    note(path, told_of(5_000, 8_000))
    assert read_told(path) == told_of(1, 5_000) + told_of(5_000, 8_000)
    note(path, [])
    assert len(read_told(path)) == 3


def test_a_broker_that_cannot_tell_is_asked_once(tmp_path: Path) -> None:
    """An older one, or one that has dropped it: the rest says why."""
    asked = []

    def tell(start: int, until: int) -> tuple[int, int]:
        asked.append(start)
        if start > 1:
            raise BrokerRefused("it is gone")
        return until - start, 7

    told = ask(tell, 1, 3 * BLOCK)
    assert asked == [1, BLOCK] and [one.untold for one in told] == ["", "it is gone", "it is gone"]
    note(tmp_path / "told", told)
    assert read_told(tmp_path / "told") == told


def _edit(line: int, **fields: Any) -> Callable[[list[str]], list[str]]:
    def edited(lines: list[str]) -> list[str]:
        changed = json.dumps({**json.loads(lines[line]), **fields})
        return [*lines[:line], changed, *lines[line + 1 :]]

    return edited


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (_edit(1, checksum=hexadecimal(9)), 2),
        (_edit(0, first=2), 1),
        (_edit(2, chain="00"), 3),
        (_edit(1, more=1), 2),
        (lambda lines: [*lines[:1], *lines[2:]], 2),
        (lambda lines: [lines[0], lines[2], lines[1]], 2),
        (lambda lines: [*lines, lines[-1]], 4),
        (lambda lines: [*lines, "{"], 4),
        (lambda lines: [*lines, "[]"], 4),
    ],
)
def test_a_line_that_was_changed_is_named(
    damage: Callable[[list[str]], list[str]], line: int, tmp_path: Path
) -> None:
    """Edited, taken out, put in, swapped, torn."""
    path = tmp_path / "checksums.jsonl"
    note(path, told_of(1, 2 * BLOCK + 5))
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(PipelineError, match=f"line {line} was changed"):
        read_told(path)
