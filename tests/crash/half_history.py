"""What writers of half messages did and were told, and whether all of that holds together."""

from __future__ import annotations

from threading import Lock

from tests.crash.history import Notes
from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate

PUT = "put"
ACCEPTED = "accepted"
UNKNOWN = "unknown"  # the answer never came
COMMIT = "commit"
ROLLBACK = "rollback"
DESTINATION = "q"


class HalfStory:
    """One half message: the answers to its puts and to each resolution, in order."""

    def __init__(self, half_id: str) -> None:
        self.half_id = half_id
        self.puts: list[str] = []
        self.resolutions: list[tuple[str, str]] = []
        self.known_at = float("inf")
        """When the first accepted put was answered; a resolution that was sent later has to find it."""
        self.unknown_after = False

    @property
    def stored(self) -> bool:
        """Whether a put was accepted."""
        return ACCEPTED in self.puts

    def accepted(self, what: str) -> bool:
        """Whether this resolution was accepted, once or more."""
        return (what, ACCEPTED) in self.resolutions

    @property
    def decided(self) -> bool:
        """Whether somebody was told a decision."""
        return self.accepted(COMMIT) or self.accepted(ROLLBACK)


class HalfHistory(Notes):
    """All of them; several threads write."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self.stories: dict[str, HalfStory] = {}

    def told(
        self, half_id: str, what: str, answer: str, sent_at: float, answered_at: float, writer: str = ""
    ) -> None:
        """A put or a resolution was answered with accepted, with a condition, or not at all."""
        with self._lock:
            story = self.stories.setdefault(half_id, HalfStory(half_id))
            self.record(
                writer, what, half_id=half_id, answer=answer, sent_at=sent_at, answered_at=answered_at
            )
            if what != PUT:
                story.resolutions.append((what, answer))
                if answer == "half:unknown-id" and sent_at > story.known_at:
                    story.unknown_after = True
                return
            story.puts.append(answer)
            if answer == ACCEPTED:
                story.known_at = min(story.known_at, answered_at)

    def undecided(self) -> list[str]:
        """Those of which nobody was told a decision, while others go on telling."""
        with self._lock:
            return [half_id for half_id, story in self.stories.items() if not story.decided]

    def count(self, what: str) -> int:
        """How many answers of a kind there were."""
        return sum(
            story.puts.count(what) + sum(answer == what for _, answer in story.resolutions)
            for story in self.stories.values()
        )


def check_halves(history: HalfHistory, delivered: list[str]) -> list[str]:
    """The complaints: `delivered` are the half-ids of what the destination gave at the end, where everything
    that was put is decided.
    """
    promises = [
        Promise(half_id, [half_id], Fate.COMMITTED if story.accepted(COMMIT) else Fate.ABSENT)
        for half_id, story in history.stories.items()
    ]
    complaints = check_delivered(DESTINATION, delivered, promises)
    for half_id, story in history.stories.items():
        if story.accepted(COMMIT) and story.accepted(ROLLBACK):
            complaints.append(f"{half_id}: commit and rollback were both accepted: {story.resolutions}")
        if story.stored and not story.decided:
            complaints.append(f"{half_id}: put, and in the end not decided: {story.resolutions}")
        complaints += _contradictions(story)
    return complaints


def _contradictions(story: HalfStory) -> list[str]:
    """What one answer says must not be denied by another one."""
    complaints = []
    for what, answer in story.resolutions:
        if answer == "half:conflict" and story.accepted(what):
            complaints.append(f"{story.half_id}: {what} was accepted and refused: {story.resolutions}")
    if story.unknown_after:
        complaints.append(f"{story.half_id}: its put was accepted, and then it was unknown")
    return complaints
