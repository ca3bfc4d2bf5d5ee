"""A broker that is killed keeps the last values, and what fits into its rings, as some end of its life left
them (a quick version of `python -m tests.crash.kills --with replacing`), and each planted violation is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.lives import run_kills
from tests.crash.posts import Request
from tests.crash.replacing import MOST_MESSAGES, QUOTES, RING, TAKEN, Replacing, State, all_after
from tests.promises.fates import Fate

KILLS: Final = 3
SEED: Final = 4_711


def test_kills_at_random_moments(tmp_path: Path) -> None:
    """Message by message."""
    complaints, line = run_kills(tmp_path, [Replacing(SEED)], KILLS, SEED, points=())
    assert complaints == [], line


def rows(*numbers: int) -> State:
    """Of one sender; 1 and 24 are of one key."""
    return tuple(f"s {number}" for number in numbers)


def story(address: str, *told: int, unknown: tuple[int, ...] = ()) -> Replacing:
    """What was posted and told, one by one."""
    workload = Replacing(SEED)
    for number in (*told, *unknown):
        name = f"s {number}"
        request = workload.story.post(Request(name, "s", 1, next(workload.story.clock), {address: [name]}))
        if number in told:
            workload.story.answer(request, Fate.COMMITTED)
    return workload


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (rows(2, 24), True), (rows(2, 24, 3), True), (rows(2, 24, 3, 4), True),
        (rows(2, 24, 4), False), (rows(24, 2), False), (rows(1, 2, 24), False), (rows(2), False),
    ],
)  # fmt: skip
def test_what_no_end_leaves_is_found(found: State, right: bool) -> None:
    """Lost, in another order, not replaced; what was not told may be there or not, in order."""
    workload = story(QUOTES, 1, 2, 24, unknown=(3, 4))
    workload._compare(QUOTES, found, workload.story.requests)
    assert (not workload.complaints) is right, workload.complaints


def test_a_ring_that_keeps_too_much_is_found() -> None:
    """One more, or one less."""
    told = range(1, MOST_MESSAGES + 5)
    for first, right in ((4, False), (5, True), (6, False)):
        workload = story(RING, *told)
        workload._compare(RING, rows(*range(first, MOST_MESSAGES + 5)), workload.story.requests)
        assert (not workload.complaints) is right, (first, workload.complaints)
    assert len(all_after(RING, (), rows(*told))) == MOST_MESSAGES


@pytest.mark.parametrize(
    ("found", "came", "accepted", "right"),
    [
        (rows(2, 24), (), (), True), (rows(24), (2,), (2,), True), (rows(2), (24,), (24,), True),
        (rows(1, 2), (1, 24), (24,), True), (rows(1, 2), (24,), (24,), False), (rows(1, 2), (), (), False),
        (rows(2), (24,), (), False), (rows(1, 2, 24), (), (), False), (rows(2, 24, 9), (), (), False),
    ],
)  # fmt: skip
def test_a_value_that_is_not_the_last_is_found(
    found: State, came: tuple[int, ...], accepted: tuple[int, ...], right: bool
) -> None:
    """Unless the last one was taken, and it was held."""
    workload = story(TAKEN, 1, 2, 24)
    workload.came.update(rows(*came))
    workload.accepted.update(rows(*accepted))
    workload._check_taken(found)
    assert (not workload.complaints) is right, workload.complaints


def test_what_was_taken_and_is_there_is_found() -> None:
    """Its worker was told so."""
    workload = story(TAKEN, 1)
    workload.accepted.update(rows(1))
    workload.confirmed.update(rows(1))
    workload._check_taken(rows(1))
    assert workload.complaints == ["quotes.taken: s 1 is there, and was taken or never sent"]
