"""When a group is committed, where, and how long reads may take between two commits. Pure: times are handed
in.

| what waits                                   | the group is committed                           |
|----------------------------------------------|--------------------------------------------------|
| something that somebody waits for, little,   | at the end of the turn that asked for it, in the |
| and a disk that syncs quickly                | loop: a lone client is spared two task switches  |
| something that somebody waits for            | at once, its COMMIT in the worker                |
| only what nobody waits for                   | with the next one, DEFER_S later at the latest   |
"""

from __future__ import annotations

from typing import Final

INLINE_COMMIT_S: Final = 0.001  # a disk that syncs faster than this may hold the loop for it
INLINE_OPERATIONS: Final = (
    8  # of a group that is committed in the loop: larger ones mean that there is traffic
)
COMMIT_TIME_WEIGHT: Final = 0.1  # of the newest commit in the average that predicts the next
DEFER_S: Final = 0.01  # how long work that nobody waits for may wait for a commit that happens anyway
DEFERRED_OPERATIONS: Final = 64  # of them at most: beyond it they are a group of their own
READ_TURN_S: Final = 0.005  # of reads without a pause: a page or two of the largest window
READ_PART: Final = 1.0  # of an average commit's time is what reads have between two commits


class Pace:
    """What the writer has learnt of its disk."""

    def __init__(self) -> None:
        self.commit_s = 2 * INLINE_COMMIT_S  # on average; the first ones are not trusted

    def committed(self, seconds: float) -> None:
        """Learn that a commit took so many seconds."""
        self.commit_s += COMMIT_TIME_WEIGHT * (seconds - self.commit_s)

    def inline(self, operations: int) -> bool:
        """Whether a group of so many may be committed in the loop."""
        return operations <= INLINE_OPERATIONS and self.commit_s < INLINE_COMMIT_S

    def reads_s(self, due: bool) -> float:
        """How long reads may take now: where a group is due, as long as a commit takes on average, so that
        both have half of the time however many readers there are; else a turn.
        """
        return min(READ_TURN_S, self.commit_s * READ_PART) if due else READ_TURN_S
