"""What producers of half-message sets were told, and whether it holds: each epoch once and in order, or not.

A producer says one thing at a time, so after each answer it knows what is decided, apart from a commit whose
answer was lost: that one may have happened, and the next `status` has to say so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock

from tests.crash.deaths import Death

Winners = tuple[tuple[str, int, int], ...]
"""(set, count, checksum) in the order of a commit."""


@dataclass(slots=True)
class EpochStory:
    """One epoch of one producer. `possible` are the commits that may have decided it."""

    producer: str
    epoch: int
    possible: list[Winners] = field(default_factory=list)
    accepted: bool = False
    decided: Winners | None = None
    lost_in: int | None = None  # the life in which a commit was sent that nobody has answered
    fates: dict[int, bool] = field(default_factory=dict)  # by such a life: what `status` said afterwards


@dataclass(slots=True)
class Attempt:
    """Sets that were staged for an epoch, in the order in which they would win."""

    winners: Winners
    voided: bool = False


class SetHistory:
    """All producers of all lives."""

    def __init__(self, producers: Sequence[str]) -> None:
        self._lock = Lock()
        self.stories: dict[str, list[EpochStory]] = {name: [EpochStory(name, 0)] for name in producers}
        self.attempts: dict[str, Attempt | None] = dict.fromkeys(producers)
        self.rows: dict[str, dict[str, list[str]]] = {}
        """By set and destination: the bodies, in the order in which they were staged."""
        self.complaints: list[str] = []
        self.records: list[dict[str, object]] = []
        """What was said and told, in one order."""
        self.lost_answers = 0
        self.repeats = 0

    def record(self, producer: str, epoch: int, what: str, **fields: object) -> None:
        """One thing that was said or told; appending keeps the order."""
        self.records.append(
            {"producer": producer, "epoch": epoch, "what": what, "at": time.monotonic(), **fields}
        )

    def current(self, producer: str) -> EpochStory:
        """The epoch that this producer is about."""
        return self.stories[producer][-1]

    def next_epoch(self, producer: str, gap: int = 1) -> None:
        """The last one is decided; the next one is higher, not always by one."""
        self.stories[producer].append(EpochStory(producer, self.current(producer).epoch + gap))
        self.attempts[producer] = None

    def complain(self, text: str) -> None:
        """Something does not hold."""
        with self._lock:
            self.complaints.append(text)
            self.record("", -1, "complaint", text=text)

    def committing(self, story: EpochStory, winners: Winners, life: int) -> None:
        """A commit is sent; until it is answered it is a lost one."""
        self.record(story.producer, story.epoch, "commit", winners=winners, life=life)
        story.possible.append(winners)
        story.lost_in = life

    def committed(self, story: EpochStory) -> None:
        """It was accepted."""
        self.record(story.producer, story.epoch, "committed")
        story.accepted = True
        story.lost_in = None

    def lost(self) -> None:
        """The broker died with a commit on its way."""
        with self._lock:
            self.lost_answers += 1

    def refused(self, story: EpochStory, why: str) -> None:
        """A commit of sealed sets that nobody voided was refused."""
        story.lost_in = None
        self.complain(f"{story.producer}, epoch {story.epoch}: its commit was refused: {why}")

    def told(self, story: EpochStory, decided: Winners | None) -> None:
        """What `status` says of an epoch."""
        self.record(story.producer, story.epoch, "status", decided=decided)
        where = f"{story.producer}, epoch {story.epoch}"
        if story.lost_in is not None:
            story.fates[story.lost_in] = decided is not None
            story.lost_in = None
        if decided is None:
            if story.accepted or story.decided is not None:
                self.complain(f"{where}: its commit was accepted, and status says that nothing is decided")
            story.possible.clear()  # what was on its way died with the broker
            return
        if story.decided is not None and decided != story.decided:
            self.complain(f"{where}: the decision was {story.decided}, and is {decided}")
        elif decided not in story.possible:
            self.complain(f"{where}: {decided} is decided, and the commits were {story.possible}")
        story.decided = decided

    # At the end

    def rows_of(self, story: EpochStory, destination: str) -> list[str]:
        """What a decided epoch has to leave in a queue, in order."""
        winners = story.decided or ()
        return [row for set_id, _, _ in winners for row in self.rows[set_id].get(destination, [])]

    def check(self, delivered: dict[str, list[str]]) -> list[str]:
        """The complaints; `delivered` is all that each destination gave. All decisions are known."""
        found = list(self.complaints)
        for destination, rows in delivered.items():
            found += self._check_queue(destination, rows)
        return found

    def _check_queue(self, destination: str, rows: list[str]) -> list[str]:
        found = []
        left: dict[tuple[str, int], list[str]] = {
            (story.producer, story.epoch): expected
            for stories in self.stories.values()
            for story in stories
            if (expected := self.rows_of(story, destination))
        }
        latest: dict[str, int] = {}
        for (producer, epoch), each in groupby(rows, epoch_of):
            block = list(each)
            where = f"{destination}: {producer}, epoch {epoch}"
            expected = left.pop((producer, epoch), [])
            if not expected:
                found.append(f"{where}: {len(block)} rows that nobody decided, or not at once: {block[:3]}")
            elif block != expected:
                found.append(
                    f"{where}: {len(block)} rows, expected {len(expected)} in the order of the winners; "
                    f"first difference at {_difference(block, expected)}"
                )
            if epoch <= latest.get(producer, -1):
                found.append(f"{where}: comes after epoch {latest[producer]}")
            latest[producer] = epoch
        for (producer, epoch), expected in left.items():
            found.append(
                f"{destination}: {producer}, epoch {epoch} is decided, and its {len(expected)} rows are gone"
            )
        return found


def epoch_of(row: str) -> tuple[str, int]:
    """A row's body is `producer/epoch/set/destination/number`."""
    producer, epoch, _, _, _ = row.split("/")
    return producer, int(epoch)


def check_fates(history: SetHistory, deaths: Sequence[Death]) -> list[str]:
    """At a death on the way of an epoch, of the commits whose answer was lost one at least is decided, or is
    not, as the place of the point before or after the COMMIT says.
    """
    stories = [story for stories in history.stories.values() for story in stories]
    complaints = []
    for death in deaths:
        life, point = death.life, death.point
        if point.split(".")[0] not in ("move", "epoch"):
            continue
        expected = point == "epoch.after_commit"
        fates = [story.fates[life] for story in stories if life in story.fates]
        if expected not in fates:
            said = "decided" if expected else "undecided"
            complaints.append(f"life {life} died at {point}, and of {len(fates)} commits none is {said}")
    return complaints


def _difference(one: list[str], two: list[str]) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(two)),
    )
