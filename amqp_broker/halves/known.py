"""What is known of a half message, what a group has seen, and how fast it asks."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from amqp_broker.coordinator import HalfAnswer, HalfState, OpenHalf, Resolver
from amqp_broker.frames import Error
from amqp_broker.persistence import Half, Record
from amqp_broker.queue import Queue

STATES: Final = {state: state.value for state in HalfState}
RESOLVERS: Final = {resolver: resolver.value for resolver in Resolver}

StoredHalves = dict[bytes, Half | None]
"""What the store has of several half messages, by their half-ids; None: it has none."""
NONE_LOOKED_UP: Final[StoredHalves] = {}

Posted = dict[Queue, list[Record]]
"""Messages of committed half messages, by queue, in order; none where only room was given back."""


@attrs.define
class KnownHalf:
    """What is known of a half message that is open (`half`), or was decided: then its tombstone."""

    state: HalfState
    digest: bytes
    destination: str
    half: OpenHalf | None = None
    resolved_at_ms: int = 0
    resolver: str = ""

    def refusal(self, answer: HalfAnswer) -> Error:
        """Why something can't be done with it any more, and what was decided, when and by whom."""
        if answer is HalfAnswer.ID_CONFLICT:
            return Error(
                condition=answer.value,
                description="expected the content and destination of the half message that has this half-id, "
                "got others",
            )
        info = {
            "half_state": self.state.value,
            "half_resolved_at": self.resolved_at_ms,
            "half_resolved_by": self.resolver,
        }
        description = (
            f"it was decided: half_state={self.state.value}, half_resolved_at={self.resolved_at_ms}, "
            f"half_resolved_by={self.resolver}"
        )
        return Error(condition=HalfAnswer.CONFLICT.value, description=description, info=info)


class GroupFigures:
    """What was asked and decided in one group since the broker started."""

    def __init__(self) -> None:
        self.asks = 0
        self.conflicts = 0
        self.unknown_ids = 0
        self.decided: Counter[tuple[str, str]] = Counter()
        self._resolution_ms = 0

    def decision(self, state: HalfState, resolver: Resolver, age_ms: int) -> None:
        """Count a half message that was committed or rolled back `age_ms` after it was stored."""
        self.decided[STATES[state], RESOLVERS[resolver]] += 1
        self._resolution_ms += age_ms

    def refusal(self, error: Error) -> None:
        """Count a request that was refused."""
        if error.condition == HalfAnswer.UNKNOWN.value:
            self.unknown_ids += 1
        elif error.condition == HalfAnswer.CONFLICT.value:
            self.conflicts += 1

    def mean_resolution_ms(self) -> float:
        """The mean time from storage to decision; 0 before the first one."""
        return self._resolution_ms / max(1, self.decided.total())


class Pace:
    """How many check-backs may be sent now: `per_s` a second, in bursts of a tenth of that at most.

    A flood of due half messages leaves the broker to its other work.
    """

    def __init__(self, per_s: int, now: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s / 10)
        self._tokens = self._burst
        self._at = now

    def room(self, now: float) -> int:
        """How many check-backs may be sent now."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        return int(self._tokens)

    def taken(self) -> None:
        """Count a check-back that was sent."""
        self._tokens -= 1

    def wait_s(self, now: float) -> float:
        """The seconds until some may be sent: half a burst, so that a turn is worth it."""
        if self.room(now) >= 1:
            return 0.0
        return max(1.0, self._burst / 2) / self._per_s
