"""What the broker told of an archive's events: as the broker makes it, and whatever is changed is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.event_checksums import FIELDS, NUMBER, TEXT
from amqp_broker.pipeline.errors import BrokerRefused, PipelineError
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.folders import LocalPath
from amqp_broker.pipeline.told_checksums import BLOCK, Told, ask, hexadecimal, note, ranges, read_told


def test_the_fields_are_the_columns_of_the_archive() -> None:
    """Of the same names and kinds."""
    numbers = ("bigint", "int", "timestamp")
    assert {name: NUMBER if kind in numbers else TEXT for name, kind in EVENT_COLUMNS} == FIELDS


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
    note(LocalPath(path), told_of(1, 5_000))
    note(LocalPath(path), told_of(5_000, 9_000))
    note(LocalPath(path), told_of(5_000, 8_000))
    assert read_told(LocalPath(path)) == told_of(1, 5_000) + told_of(5_000, 8_000)
    note(LocalPath(path), [])
    assert len(read_told(LocalPath(path))) == 3


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
    note(LocalPath(tmp_path / "told"), told)
    assert read_told(LocalPath(tmp_path / "told")) == told


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
    note(LocalPath(path), told_of(1, 2 * BLOCK + 5))
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(PipelineError, match=f"line {line} was changed"):
        read_told(LocalPath(path))
