"""The oracle of what a queue may hold: each planted violation is found, and what may be is no complaint."""

from __future__ import annotations

import pytest

from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate

PROMISES = (
    Promise("one", ["a", "b", "c"], Fate.COMMITTED, line="p"),
    Promise("two", ["d"], Fate.COMMITTED, line="p"),
    Promise("other", ["x"], Fate.COMMITTED),
    Promise("rolled back", ["n", "o"], Fate.ABSENT),
    Promise("unheard", ["u", "v"], Fate.UNKNOWN, line="p"),
)


@pytest.mark.parametrize("delivered", ["abcdx", "xabcd", "abcxduv"])
def test_what_may_be_is_no_complaint(delivered: str) -> None:
    """Whole promises, those of one line in order, and of what nobody knows all or nothing."""
    assert check_delivered("q", [*delivered], PROMISES) == []


@pytest.mark.parametrize(
    ("delivered", "words"),
    [
        ("abcx", "two is committed, and 0 rows came, expected 1"),
        ("abdx", "one is committed, and 2 rows came, expected 3: 0 twice, 1 missing, first difference at 2"),
        ("abccdx", "1 twice, 0 missing"),
        ("acbdx", "first difference at 1"),
        ("abxcd", "others stand between its 3 rows"),
        ("dabcx", "two is committed, and comes before one"),
        ("abcdxno", "rolled back is not committed, and 2 of its 2 rows were delivered"),
        ("abcdxo", "1 of its 2 rows were delivered"),
        ("abcdxu", "unheard is unknown, and 1 rows came, expected 2"),
        ("uvabcdx", "unheard is unknown, and comes before two"),
        ("abcdxz", "z was delivered, and nobody sent it"),
    ],
)
def test_a_planted_violation_is_found(delivered: str, words: str) -> None:
    """Lost, in part, twice, out of order, not at once, before its turn, undone, half known, invented."""
    complaints = check_delivered("q", [*delivered], PROMISES)
    assert len(complaints) == 1 and words in complaints[0], complaints
