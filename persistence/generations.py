"""Which outcomes of transactions are kept, and until when: the arithmetic of it, without a disk.

Outcomes are numbered in the order of their commits and lie in generations of neighbours, which are forgotten
as a whole, the oldest first. A generation is full with GENERATION_OUTCOMES, or when its first outcome is a
sixteenth of the time for keeping away from the next one.

    0 ........ 2047 | 2048 ..... 4095 | 4096 .. 4099            numbers
    oldest            ...               open                    generations, told by their first number

Age is measured where it can be, by the clock of the callers: from the call of `forgettable` that first saw
the youngest outcome of a generation. For what an earlier process has left there are only the times of the
discharges; files of former versions have those of a clock on the wall, which may have been set back, forth,
or both. Hence a step between two generations counts not at all when it goes back, and for an eighth of the
time for keeping at most: one wrong time makes nothing older than that. Time without discharges in which the
store was closed counts less than it was; keeping longer is never wrong (a forgotten commit looks like none),
and the number bounds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from amqp_broker.persistence.verbs import Discharged

KEEP_MS: Final = 7 * 24 * 60 * 60 * 1000
KEEP_COUNT: Final = 1_000_000
GENERATION_OUTCOMES: Final = 2048  # the numbers behind it: outcomes.py
PARTS: Final = 16  # what is kept has at least so many generations, so that few are forgotten too early
STEP_OUTCOMES: Final = 16_384  # forgotten in one step: more than are made in the second between two of them
assert GENERATION_OUTCOMES * PARTS <= KEEP_COUNT


@attrs.define(eq=False)
class Generation:
    """Neighbours among the outcomes. `age_ms` is what it had when the store was opened.

    `expires_at` (monotonic seconds) is right for `seen_count` outcomes; more were not seen yet.
    """

    first_number: int
    opened_at_ms: int
    count: int = 0
    age_ms: int = 0
    expires_at: float = 0.0
    seen_count: int = -1


@attrs.define
class Placement:
    """Where the outcomes of a group go, by the first number of their generation."""

    opened: list[tuple[int, int]]  # (first number, at_ms) of new generations
    members: dict[int, list[Discharged]]


class Generations:
    """What is kept, oldest first. Times in milliseconds, limits as for the stores."""

    def __init__(self, keep_ms: int, keep_count: int) -> None:
        assert keep_ms > 0 and keep_count > 0, f"keep {keep_count} outcomes for {keep_ms} ms"
        self._keep_ms = keep_ms
        self._keep_count = keep_count
        self._most_outcomes = max(1, min(GENERATION_OUTCOMES, keep_count // PARTS))
        self._most_ms = keep_ms // PARTS
        self._kept: list[Generation] = []
        self._next_number = 0

    def load(self, opened: Sequence[tuple[int, int]], newest_count: int) -> None:
        """What an earlier process left: (first number, at_ms) in order, and how many the newest holds."""
        self._kept = [Generation(first_number, at_ms) for first_number, at_ms in opened]
        for one, two in zip(self._kept, self._kept[1:], strict=False):
            one.count = two.first_number - one.first_number
        if self._kept:
            self._kept[-1].count = newest_count
            self._next_number = self._kept[-1].first_number + newest_count
        # The youngest outcome of a generation is about as old as the oldest of the next one.
        age_ms = 0
        for index in range(len(self._kept) - 3, -1, -1):
            step_ms = self._kept[index + 2].opened_at_ms - self._kept[index + 1].opened_at_ms
            age_ms += min(max(step_ms, 0), 2 * self._most_ms)
            self._kept[index].age_ms = age_ms

    def place(self, discharges: Sequence[Discharged]) -> Placement:
        """Give each outcome of a group its generation. Nothing changes before `keep`."""
        placement = Placement([], {})
        number = self._next_number
        first_number, opened_at_ms, room = 0, 0, 0
        if self._kept:
            newest = self._kept[-1]
            first_number, opened_at_ms = newest.first_number, newest.opened_at_ms
            room = self._most_outcomes - newest.count
        for verb in discharges:
            if room <= 0 or abs(verb.at_ms - opened_at_ms) > self._most_ms:
                first_number, opened_at_ms, room = number, verb.at_ms, self._most_outcomes
                placement.opened.append((first_number, opened_at_ms))
            placement.members.setdefault(first_number, []).append(verb)
            number += 1
            room -= 1
        return placement

    def keep(self, placement: Placement) -> None:
        """The outcomes are durable: count them."""
        self._kept.extend([Generation(first_number, at_ms) for first_number, at_ms in placement.opened])
        for generation in self._kept[-len(placement.members) :]:
            count = len(placement.members[generation.first_number])
            generation.count += count
            self._next_number += count

    def forgettable(self, now: float) -> int:
        """How many of the oldest generations may go in one step; `now` is monotonic seconds."""
        for generation in reversed(self._kept):
            if generation.seen_count == generation.count:
                break
            generation.seen_count = generation.count
            generation.expires_at = now + (self._keep_ms - generation.age_ms) / 1000
        before = left = self.count
        for index, generation in enumerate(self._kept):
            # The newest one may be larger than a limit that was lowered; it goes for its age only.
            too_many = left > self._keep_count and generation is not self._kept[-1]
            if not (too_many or generation.expires_at <= now) or before - left >= STEP_OUTCOMES:
                return index
            left -= generation.count
        return len(self._kept)

    def number_after(self, generations: int) -> int:
        """The first number that is kept when so many of the oldest generations are forgotten."""
        if generations < len(self._kept):
            return self._kept[generations].first_number
        return self._next_number

    def forget(self, generations: int) -> None:
        """Drop so many of the oldest generations."""
        del self._kept[:generations]

    @property
    def count(self) -> int:
        """How many outcomes are kept."""
        return self._next_number - self._kept[0].first_number if self._kept else 0
