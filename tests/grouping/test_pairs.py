"""Small requests beside each other, in both orders, in one group: as one after the other.

Here every request meets every other one about the same objects, and a few of the rest; `python -m
tests.grouping --pairs` has each meet each.
"""

from __future__ import annotations

import pytest

from tests.grouping.pairs import KINDS, TOPICS, judge_pair, related
from tests.grouping.stores import MemoryStores

STRIDE = 11


@pytest.mark.parametrize("first", KINDS)
def test_pairs(first: str) -> None:
    """This request and then others, from two connections in one group."""
    at = list(KINDS).index(first)
    rest = [second for number, second in enumerate(KINDS) if (at + number) % STRIDE == 0]
    seconds = [second for second in KINDS if second in rest or related(first, second)]
    found = {second: judge_pair(first, second, MemoryStores()) for second in seconds}
    wrong = {second: told for second, told in found.items() if told}
    assert not wrong, "\n".join(f"{first}; {second}: {told}" for second, told in wrong.items())


def test_enough_kinds() -> None:
    """The list is long enough to be worth its name, and each kind is about something."""
    assert len(KINDS) >= 25
    assert set(KINDS) == {kind for topic in TOPICS for kind in topic}
