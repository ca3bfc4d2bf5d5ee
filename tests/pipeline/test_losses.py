"""What a batch lacks is counted once, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.losses import Loss, kinds_of, read_losses, union
from amqp_broker.pipeline.offsets import Range


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([(0, 5), (0, 5)], [(0, 5)]),
        ([(3, 9), (0, 5)], [(0, 9)]),
        ([(5, 9), (0, 5)], [(0, 9)]),
        ([(6, 9), (0, 5), (7, 8)], [(0, 5), (6, 9)]),
    ],
)
def test_what_is_told_again_is_the_same_loss(
    told: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    """By a task that is run again, or by another action over the batch."""
    others = [Range("a", 0, 99, 1), Range("b", 0, 99)]
    ranges = union([*(Range("a", low, high) for low, high in told), *others])
    assert ranges == [*(Range("a", low, high) for low, high in found), *others]


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
