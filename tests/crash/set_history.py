"""What producers of half-message sets were told, and whether it holds: each epoch once and in order, or not.

A producer says one thing at a time, so after each answer it knows what is decided, apart from a commit whose
answer was lost: that one may have happened, and the next `status` has to say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

from tests.crash.history import Notes
from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate

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


class SetHistory(Notes):
    """All producers of all lives."""

    def __init__(self, producers: Sequence[str]) -> None:
        super().__init__()
        self._lock = Lock()
        self.stories: dict[str, list[EpochStory]] = {name: [EpochStory(name, 0)] for name in producers}
        self.attempts: dict[str, Attempt | None] = dict.fromkeys(producers)
        self.rows: dict[str, dict[str, list[str]]] = {}
        """By set and destination: the bodies, in the order in which they were staged."""
        self.complaints: list[str] = []
        self.lost_answers = 0
        self.repeats = 0

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
            self.record("", "complaint", text=text)

    def committing(self, story: EpochStory, winners: Winners, life: int) -> None:
        """A commit is sent; until it is answered it is a lost one."""
        self.record(story.producer, "commit", epoch=story.epoch, winners=winners, life=life)
        story.possible.append(winners)
        story.lost_in = life

    def committed(self, story: EpochStory) -> None:
        """It was accepted."""
        self.record(story.producer, "committed", epoch=story.epoch)
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
        self.record(story.producer, "status", epoch=story.epoch, decided=decided)
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

    def check(self, delivered: dict[str, list[str]]) -> list[str]:
        """The complaints; `delivered` is all that each destination gave. All decisions are known."""
        return [
            words
            for destination, rows in delivered.items()
            for words in check_delivered(destination, rows, self._promises(destination))
        ]

    def _promises(self, destination: str) -> Iterator[Promise]:
        """Of each epoch the rows of its winners are one; sets that won nothing leave nothing."""
        won = set()
        for story in self.all_stories():
            names = [set_id for set_id, _, _ in story.decided or ()]
            won.update(names)
            rows = [row for set_id in names for row in self.rows[set_id].get(destination, [])]
            name = f"{story.producer}, epoch {story.epoch}"
            yield Promise(name, rows, Fate.COMMITTED, line=story.producer)
        for set_id in self.rows.keys() - won:
            yield Promise(f"set {set_id}", self.rows[set_id].get(destination, []), Fate.ABSENT)

    def all_stories(self) -> list[EpochStory]:
        """Of each producer in order."""
        return [story for stories in self.stories.values() for story in stories]

    def fates(self) -> dict[int, list[Fate]]:
        """By life, how the commits ended whose answer was lost in it."""
        fates: dict[int, list[Fate]] = defaultdict(list)
        for story in self.all_stories():
            for life, decided in story.fates.items():
                fates[life].append(Fate.COMMITTED if decided else Fate.ABSENT)
        return fates
