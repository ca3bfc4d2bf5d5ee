"""How a group asks about sets that are not decided: as about half messages (half_group), but no outcome
commits one, since a set is committed with its epoch only, and no number of unknown answers ends one.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.coordinator.half_checks import CHECK_OUTCOMES, CheckEffect, CheckGiven
from amqp_broker.coordinator.half_group import OpenHalf
from amqp_broker.coordinator.half_set_table import SetState
from amqp_broker.coordinator.half_sets import StagedSet

# by_outcome, given: (effect, never again on this link).
SET_CHECK_OUTCOMES: Final[dict[bool, dict[CheckGiven, tuple[CheckEffect, bool]]]] = {
    False: CHECK_OUTCOMES[False],
    True: {**CHECK_OUTCOMES[True], CheckGiven.ACCEPTED: (CheckEffect.ATTEMPT, False)},
}


def set_key(staged: StagedSet) -> bytes:
    """What a group knows a set by; no half-id begins like that."""
    return f"S{staged.producer.name}/{staged.set_id}".encode()


class OpenSet(OpenHalf):
    """A set that is asked about, until it is decided or reaches its maximum age."""

    __slots__ = ("staged",)

    outcomes = SET_CHECK_OUTCOMES
    ends_by_attempts = False

    def __init__(self, staged: StagedSet, due_ms: int) -> None:
        super().__init__(
            set_key(staged), "", b"", staged.begun_at_ms, due_ms, staged.deadline_ms, staged.container_id, 0
        )
        self.staged = staged

    @property
    def undecided(self) -> bool:
        """Whether an answer to a check-back still means something."""
        return self.staged.state not in (None, SetState.VOIDED)

    def names(self) -> dict[str, Any]:
        """What the journal calls it."""
        staged = self.staged
        return {"set_id": staged.set_id, "producer": staged.producer.name, "epoch": staged.epoch}
