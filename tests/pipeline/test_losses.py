"""What a batch lacks is counted, and named as far as the broker tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.losses import Loss, kinds_of, missing_of, ranges_of, read_losses
from amqp_broker.pipeline.offsets import Offsets, Place, Range

A, B = Range("a", 10, 20), Range("b", 0, 5)


@pytest.mark.parametrize(
    ("rows", "firsts", "missing", "ranges"),
    [
        (15, {"a": 10, "b": 0}, 0, ()),
        (16, {"a": 17, "b": 0}, 0, ()),
        (12, {"a": 13, "b": 0}, 3, ("offsets 10 to 12 of 'a'",)),
        (0, {"a": 99, "b": 5}, 15, ("offsets 10 to 19 of 'a'", "offsets 0 to 4 of 'b'")),
        (14, {"a": 10, "b": 0}, 1, ("offsets 10 to 19 of 'a'", "offsets 0 to 4 of 'b'")),  # damage
        (12, {"a": 15, "b": 0}, 3, ("offsets 10 to 19 of 'a'", "offsets 0 to 4 of 'b'")),  # since then
        (12, {}, 3, ("offsets 10 to 19 of 'a'", "offsets 0 to 4 of 'b'")),
    ],
)
def test_what_is_missing(rows: int, firsts: dict[str, int], missing: int, ranges: tuple[str, ...]) -> None:
    """The number is that of the rows; the ranges are exact where the broker's are that number."""
    assert missing_of([A, B], rows, [firsts]) == (missing, ranges)


def test_each_broker_has_its_ranges() -> None:
    """And what it retains."""
    start = Place((Offsets("x", {"a": 1}), Offsets("y", {"a": 1})))
    end = Place((Offsets("x", {"a": 3, "new": 9}), Offsets("y", {"a": 4})))
    ranges = ranges_of(start, end)
    assert ranges == [Range("a", 1, 3), Range("a", 1, 4, 1)]
    assert missing_of(ranges, 3, [{"a": 1}, {"a": 3}]) == (2, ("offsets 1 to 2 of 'a', partition 1",))


def test_losses_are_lines_of_a_file_and_warnings_of_a_report(tmp_path: Path) -> None:
    """A batch that was told twice counts once."""
    losses = [Loss("q", 1, 3, ("r",)), Loss("q", 2, 4, ("s", "t")), Loss("q", 1, 3, ("r",))]
    path = tmp_path / "losses.jsonl"
    path.write_text("".join(f"{loss.to_json()}\n" for loss in losses))
    assert read_losses(path) == losses
    (kind,) = kinds_of(losses)
    assert (kind.audit, kind.severity, kind.count, len(kind.findings)) == ("source", "warning", 7, 2)
    assert (kind.findings[1].detail, kind.findings[1].example) == ("4 messages", "s; t")
    assert kinds_of([]) == ()
    path.write_text('{"query": 1}\n')
    for wrong in (path, tmp_path / "nothing"):
        with pytest.raises(PipelineError, match="expected"):
            read_losses(wrong)
