"""The judge of the crash runs finds what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.pipeline.spark.crash_points import SOURCES, judge

ROWS = 20
GOOD = [f"{address} {row}".upper().encode() for row in range(ROWS) for address in [SOURCES[row % 2]]]


def test_what_is_right_is_right() -> None:
    """Every row once, in the order of its node; nodes may mix as they like."""
    assert judge(GOOD, ROWS) == []
    assert judge(sorted(GOOD, key=lambda body: body.split()[0]), ROWS) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (GOOD[:-1], "in.b: 1 lost, 0 doubled, 9 of 10 in all"),
        ([*GOOD, GOOD[0]], "in.a: 0 lost, 1 doubled, 11 of 10 in all"),
        ([*GOOD[1:], GOOD[0]], "in.a: 0 lost, 0 doubled, 10 of 10 in all, out of order"),
        ([*GOOD, b"else"], "1 that nobody sent, b'else'"),
        ([*GOOD, b"IN.A 77"], "in.a: 0 lost, 0 doubled, 11 of 10 in all, out of order"),
        ([], "in.a: 10 lost, 0 doubled, 0 of 10 in all"),
    ],
)
def test_what_is_wrong_is_found(found: list[bytes], said: str) -> None:
    """Lost, doubled, out of order, foreign."""
    assert said in judge(found, ROWS)
