"""Half messages, streams and events in a plan: what the store must hold of them, and the steps.

A step about a half message names one that was put by an earlier group, or by its own unit, and each is
changed once in a group: so no step is a mistake when a unit before it was refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, PARKED, PREPARED, ROLLED_BACK, size_of

GROUPS: Final = ("orders", "stock")
ALL_GROUPS: Final = (*GROUPS, "refused")
STREAMS: Final = ("one", "two", "three")
MAX_OPEN: Final = 12
KEEP_MS: Final = 1_500_000
"""Two steps of idleness: a plan of forty groups makes the store forget some halves and events."""

EVENT_KEEP_BYTES: Final = 1_500
"""Some twenty of the events here, which a plan of forty groups passes."""

_EVENT_BYTES: Final = size_of(b"noted", b'{"at":1700000000000}')

Key = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class StoredHalf:
    """A half message as the store has to give it back. `idles`: those before its decision, which it cannot
    tell.
    """

    body: bytes | None
    put_at_ms: int
    state: str = PREPARED
    attempts: int = 0
    due_at_ms: int = 0
    resolved_at_ms: int = 0
    reason: str = ""
    idles: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An entry of the log. `idles`: those before it."""

    seq: int
    at_ms: int
    idles: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the store holds. `idles` is how often it was idle, and might have forgotten what is old."""

    halves: Mapping[Key, StoredHalf] = field(default_factory=dict)
    streams: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    events: tuple[StoredEvent, ...] = ()
    idles: int = field(default=0, compare=False)
    event_keep_bytes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PutHalf:
    """Put a half message."""

    key: Key
    half: StoredHalf


@dataclass(frozen=True, slots=True)
class Ask:
    """It was asked, parked or resumed."""

    key: Key
    state: str
    attempts: int
    due_at_ms: int


@dataclass(frozen=True, slots=True)
class DecideHalf:
    """It is committed or rolled back."""

    key: Key
    state: str
    at_ms: int
    reason: str
    resolver: str = "check"


@dataclass(frozen=True, slots=True)
class Move:
    """A stream's position; None resets it."""

    queue: str
    stream: str
    position: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Note:
    """An event."""

    at_ms: int


HalfStep = PutHalf | Ask | DecideHalf | Move | Note


def apply_half_step(held: Holdings, step: HalfStep) -> Holdings:
    """What a store that held `held` holds after the step."""
    match step:
        case PutHalf():
            return replace(held, halves={**held.halves, step.key: step.half})
        case Ask():
            half = replace(
                held.halves[step.key], state=step.state, attempts=step.attempts, due_at_ms=step.due_at_ms
            )
            return replace(held, halves={**held.halves, step.key: half})
        case DecideHalf():
            half = held.halves[step.key]
            half = replace(
                half,
                state=step.state,
                body=half.body if step.resolver == BY_POLICY else None,
                resolved_at_ms=step.at_ms,
                reason=step.reason,
                idles=held.idles,
            )
            return replace(held, halves={**held.halves, step.key: half})
        case Move():
            streams = dict(held.streams)
            if step.position is None:
                streams.pop((step.queue, step.stream), None)
            else:
                streams[step.queue, step.stream] = step.position
            return replace(held, streams=streams)
        case Note():
            seq = held.events[-1].seq + 1 if held.events else 1
            return replace(held, events=(*held.events, StoredEvent(seq, step.at_ms, held.idles)))


def without_queue(held: Holdings, queue: str) -> Holdings:
    """It was deleted."""
    kept = {key: position for key, position in held.streams.items() if key[0] != queue}
    return replace(held, streams=kept)


def is_possible(held: Holdings, steps: tuple[object, ...]) -> bool:
    """Whether the steps of a unit are no mistakes: what they are about is there, and open."""
    put = {step.key for step in steps if isinstance(step, PutHalf)}
    return all(
        step.key in put or (step.key in held.halves and not held.halves[step.key].resolved_at_ms)
        for step in steps
        if isinstance(step, Ask | DecideHalf)
    )


class HalfWriter:
    """Makes the steps of a plan."""

    def __init__(self, chance: random.Random, start: Holdings) -> None:
        self.chance = chance
        bound = start.event_keep_bytes or chance.choice((0, EVENT_KEEP_BYTES))
        self.held = replace(start, event_keep_bytes=bound)
        self.changed: set[Key] = set()  # by the group that is being written

    def unit(self, at_ms: int) -> list[HalfStep]:
        """Some steps, one about each half message at most, and mostly their events."""
        steps: list[HalfStep] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 6))):
            step = self._step(at_ms)
            steps.append(step)
            self.held = apply_half_step(self.held, step)
            if self.chance.random() < 0.6:
                steps.append(Note(at_ms))
                self.held = apply_half_step(self.held, steps[-1])
        return steps

    def _step(self, at_ms: int) -> HalfStep:
        chance = self.chance
        waiting = [key for key, half in self.held.halves.items() if not half.resolved_at_ms]
        free = [key for key in waiting if key not in self.changed]
        draw = chance.random()
        if not free or (draw < 0.45 and len(waiting) < MAX_OPEN):
            return self._put(at_ms)
        key = chance.choice(free)
        self.changed.add(key)
        if draw < 0.6:
            return Ask(key, chance.choice((PREPARED, PARKED)), chance.randrange(16), chance.randrange(10_000))
        state = chance.choice((COMMITTED, COMMITTED, ROLLED_BACK))
        resolver = chance.choice(("check", BY_POLICY)) if state == ROLLED_BACK else "check"
        return DecideHalf(key, state, at_ms, chance.choice(("", "gone", "wh\u00ff")), resolver)

    def _put(self, at_ms: int) -> PutHalf:
        size = self.chance.choice((0, 10, 100, 300, 5_000))
        half = StoredHalf(self.chance.randbytes(size), at_ms)
        key = (self.chance.choice(GROUPS), self.chance.randbytes(16))
        self.changed.add(key)
        return PutHalf(key, half)

    def phantom(self, at_ms: int) -> tuple[PutHalf, Note]:
        """Of a unit that is refused: they change nothing."""
        return PutHalf(("refused", self.chance.randbytes(16)), StoredHalf(b"refused", at_ms)), Note(at_ms)

    def move(self, queue: str) -> Move:
        """A position for messages that are posted in the same unit."""
        stream = self.chance.choice(STREAMS)
        seq_id, seq_no = self.held.streams.get((queue, stream), (1, 0))
        position = (seq_id, seq_no + 1) if self.chance.random() < 0.9 else (seq_id + 2**60, 1)
        step = Move(queue, stream, None if self.chance.random() < 0.05 else position)
        self.held = apply_half_step(self.held, step)
        return step


def holding_differences(found: Holdings, expected: Holdings) -> list[str]:
    """How they differ, in words. What was decided or logged before the last idleness may be forgotten."""
    if found == expected:
        return []
    told = []
    for key in sorted(found.halves.keys() | expected.halves.keys()):
        have, want = found.halves.get(key), expected.halves.get(key)
        if want is None:
            told.append(f"half {key} is there and should not be")
        elif have is None:
            if not want.resolved_at_ms or want.idles >= expected.idles:
                told.append(f"half {key} is lost: {want}")
        elif have != want:
            told.append(f"half {key}: {have}, expected {want}")
    for stream in sorted(found.streams.keys() | expected.streams.keys()):
        if found.streams.get(stream) != expected.streams.get(stream):
            told.append(
                f"stream {stream} is at {found.streams.get(stream)}, expected {expected.streams.get(stream)}"
            )
    return told + _event_differences(found.events, expected)


def _event_differences(found: tuple[StoredEvent, ...], holdings: Holdings) -> list[str]:
    expected, idles, bound = holdings.events, holdings.idles, holdings.event_keep_bytes
    if found != expected[len(expected) - len(found) :]:
        return [f"events {found[:1]} to {found[-1:]}, expected the last of {expected[:1]} to {expected[-1:]}"]
    lost = expected[: len(expected) - len(found)]
    if expected and not found:
        return [f"all {len(expected)} events are lost"]
    if bound and (len(found) + 1) * _EVENT_BYTES > bound:
        return []  # what is beyond the bound may go, however young it is
    if any(event.idles >= idles for event in lost):
        return [f"{len(lost)} events are lost"]
    return []
