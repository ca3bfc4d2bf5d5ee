"""A broker that is killed while it copies keeps what each subscription was promised (a quick version of
`python -m tests.crash.kills --with topics`, and with dead letters), and each planted violation is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.crash.kills import workloads_of
from tests.crash.lives import run_kills
from tests.crash.posts import Request, Story
from tests.crash.topics import Subscription, check_lasted, resolved
from tests.promises.fates import Fate

KILLS: Final = 3
SEED: Final = 4_711
NEWS, OTHER = "news.sport", "news.weather"


@pytest.mark.parametrize("names", [["topics"], ["dead-letters"]])
def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path, names: Sequence[str]) -> None:
    """What a topic accepted is in each subscription once; what died is among the dead letters once."""
    complaints, line = run_kills(tmp_path, workloads_of(names, SEED), KILLS, SEED, points=())
    assert complaints == [], line


class Told:
    """A subscription to all, and to whose odd rows it is if `wanted`; requests are told at once."""

    def __init__(self, wanted: int | None = None) -> None:
        self.story = Story()
        self.subscription = Subscription("s", "news.#", self.story, wanted=wanted)
        self.archive: list[str] = []

    def posted(self, *rows: str, fate: Fate = Fate.COMMITTED, there: bool = True) -> None:
        """One request; `there` tells whether the binding has it."""
        request = Request(rows[0], "p", 1, next(self.story.clock), {NEWS: [*rows[:2]], OTHER: [*rows[2:]]})
        self.story.post(request)
        if fate is Fate.UNKNOWN:
            self.story.life_is_over()
        else:
            self.story.answer(request, fate)
        self.archive += rows if there else ()

    def subscribed(self) -> None:
        """It is there from now on."""
        self.subscription.asking()
        self.subscription.there()

    def took(self, *rows: str) -> None:
        """These came, and were accepted."""
        taken = self.subscription.lasted[-1].taken
        for row in rows:
            taken.came(row, 1)
            taken.leaving(row)
            taken.confirmed(row)

    def complaints(self) -> list[str]:
        """What is wrong with it in the end."""
        requests = self.story.requests
        fates = resolved(requests, self.archive)
        places = {row: place for place, row in enumerate(self.archive)}
        found = [*self.subscription.complaints]
        for lasted in self.subscription.lasted:
            found += check_lasted(self.subscription, lasted, requests, fates, places)
        return found


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("1 2 3 5 6 7", ""),
        ("2 3 5 6 7", "is committed, and 1 rows came, expected 2"),
        ("1 2 3 5 7 6", "first difference at 0"),
        ("1 2 5 6 7", "is committed, and 0 rows came"),
        ("1 3 2 5 6 7", "others stand between"),
        ("5 6 7 1 2 3", "comes before"),
        ("0 1 2 3 5 6 7", "p 0 .. is not committed, and 1 of its 1 rows"),
        ("1 2 3 4 5 6 7", "p 4 .. is not committed"),
        ("1 2 3 5 6 7 9", "p 9 was delivered, and nobody sent it"),
    ],
)
def test_a_planted_violation_of_a_topic_is_found(rows: str, words: str) -> None:
    """Lost, in part, out of order, before its time, rolled back, invented."""
    told = Told()
    told.posted("p 0")
    told.subscribed()
    told.posted("p 1", "p 2", "p 3")
    told.posted("p 4", fate=Fate.ABSENT, there=False)
    told.posted("p 5", fate=Fate.UNKNOWN)
    told.posted("p 6", "p 7")
    told.took(*(f"p {number}" for number in rows.split()))
    complaints = told.complaints()
    assert (complaints == []) is (not words) and words in "".join(complaints[:1]), complaints


def test_what_nobody_heard_of_is_what_the_binding_has() -> None:
    """As a whole: where it has a row, all others have theirs, by their filters."""
    for there, rows, fine in ((True, ["p 1", "p 3"], True), (True, [], False), (False, [], True)):
        told = Told(wanted=1)
        told.subscribed()
        told.posted("p 1", "p 2", "p 3", fate=Fate.UNKNOWN, there=there)
        told.took(*rows)
        assert (told.complaints() == []) is fine


def test_of_what_was_unsubscribed_a_part_may_have_come() -> None:
    """In order and once; the next one of that name has nothing of it."""
    told = Told()
    told.subscribed()
    told.posted("p 1", "p 2", "p 3")
    told.took("p 1")
    told.subscription.closing()
    told.subscription.closed()
    told.subscribed()
    assert told.complaints() == []
    told.took("p 2")
    assert "is not committed" in told.complaints()[0]


def test_subscriptions_that_come_and_go() -> None:
    """One that was answered is there, one whose end was answered is not; in between both may be."""
    for story, words in (
        (["asking", "not_there"], ""),
        (["asking", "there", "closing", "not_there"], ""),
        (["asking", "there", "closing", "there"], ""),
        (["asking", "there", "not_there"], "s is lost"),
        (["asking", "there", "closing", "closed", "there"], "s is there, and had been unsubscribed"),
    ):
        subscription = Subscription("s", "news.#", Story())
        for step in story:
            getattr(subscription, step)()
        assert subscription.complaints == ([words] if words else [])
