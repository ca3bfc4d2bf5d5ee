"""What a workload does with the store, made from a seed, and what the store must hold after each group.

A plan knows queues by name and messages by offset; it does not know the store. `workload.py` carries it out,
`states.py` compares what survived with the snapshots.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from amqp_broker.persistence.halves import COMMITTED
from tests.power_loss.plan_halves import (
    DecideHalf,
    HalfStep,
    HalfWriter,
    Holdings,
    Move,
    apply_half_step,
    without_queue,
)

MAX_QUEUES: Final = 3
MAX_MESSAGES: Final = 30
"""Above this many messages a queue is emptied rather than filled, so that states stay small and quick to
check.
"""

START_MS: Final = 1_700_000_000_000
CLOCK_BACK_MS: Final = 12 * 60 * 60 * 1000
"""More than a generation of outcomes spans."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as the store has to give it back."""

    body: bytes
    message_format: int = 0
    priority: int = 4
    expires_at_ms: int = 0
    enqueued_at_ms: int = 1
    delivery_count: int = 0
    acquired_before: bool = False
    annotations: bytes | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store holds: the queues by name, each the next offset and the messages by offset; the committed
    transactions with their times, in the order of their commits; and half messages, streams and events.
    """

    queues: Mapping[str, tuple[int, Mapping[int, Stored]]] = field(default_factory=dict)
    outcomes: tuple[tuple[bytes, int], ...] = ()
    held: Holdings = field(default_factory=Holdings)


@dataclass(frozen=True, slots=True)
class Make:
    """Create a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a queue with all its messages."""

    queue: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove all messages of a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Put:
    """Post messages by offset; offsets that are left out belong to messages that are not durable."""

    queue: str
    messages: Mapping[int, Stored]


@dataclass(frozen=True, slots=True)
class Take:
    """Retire a range of offsets, both ends included."""

    queue: str
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """Return a message with a changed header."""

    queue: str
    offset: int
    delivery_count: int
    acquired_before: bool
    annotations: bytes | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A posting that the store must refuse, and the rest of its unit with it: the queue does not exist."""

    message: Stored


@dataclass(frozen=True, slots=True)
class Discharge:
    """The unit is a transaction: its outcome is stored with it."""

    txn_id: bytes
    at_ms: int


Step = Make | Drop | Clear | Put | Take | PutBack | Refused | Discharge | HalfStep


@dataclass(frozen=True, slots=True)
class Group:
    """The units of one commit; `idle_after` lets the store do its housekeeping (a checkpoint) afterwards."""

    units: tuple[tuple[Step, ...], ...]
    idle_after: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups in order, and the snapshot before the first and after each of them."""

    groups: tuple[Group, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def event_keep_bytes(self) -> int:
        """So much of the journal is kept; 0: no such bound."""
        return self.snapshots[0].held.event_keep_bytes


@dataclass(slots=True)
class _Queue:
    next_offset: int = 0
    messages: dict[int, Stored] = field(default_factory=dict)


def make_plan(seed: object, groups: int, start: Snapshot | None = None) -> Plan:
    """A plan of `groups` commits, which begins where the store holds `start`."""
    writer = _Writer(random.Random(repr(seed)), start or Snapshot())
    done = []
    snapshots = [writer.snapshot()]
    for _ in range(groups):
        done.append(writer.group())
        snapshots.append(writer.snapshot())
    return Plan(tuple(done), tuple(snapshots))


class _Writer:
    def __init__(self, chance: random.Random, start: Snapshot) -> None:
        self.chance = chance
        self.queues = {
            name: _Queue(next_offset, dict(messages))
            for name, (next_offset, messages) in start.queues.items()
        }
        self.outcomes = list(start.outcomes)
        self.halves = HalfWriter(self.chance, start.held)
        self.clock_ms = START_MS
        self.names = max((int(name[1:]) for name in self.queues), default=-1) + 1
        self.fresh: set[str] = (
            set()
        )  # made by the group that is being written: their ids are not known before it ran

    def snapshot(self) -> Snapshot:
        return Snapshot(
            {name: (queue.next_offset, dict(queue.messages)) for name, queue in self.queues.items()},
            tuple(self.outcomes),
            self.halves.held,
        )

    def group(self) -> Group:
        self.fresh.clear()
        self.halves.changed.clear()
        units = [self.unit() for _ in range(self.chance.choice((1, 1, 1, 2, 3, 5)))]
        idle_after = self.chance.random() < 0.15
        if idle_after:
            self.halves.held = replace(self.halves.held, idles=self.halves.held.idles + 1)
        return Group(tuple(unit for unit in units if unit), idle_after)

    def unit(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        draw = self.chance.random()
        if not self.queues or (draw < 0.06 and len(self.queues) < MAX_QUEUES):
            self.names += 1
            name = f"q{self.names - 1}"
            self.queues[name] = _Queue()
            self.fresh.add(name)
            return (Make(name),)
        if len(self.queues) == len(self.fresh):
            return ()
        if draw < 0.08 and len(self.queues) > 1:
            name = self.some_queue()
            del self.queues[name]
            self.halves.held = without_queue(self.halves.held, name)
            return (Drop(name),)
        if draw < 0.12:
            # Nothing of a unit that fails alone may stay, so this one changes no queue of the model.
            name = self.some_queue()
            queue = self.queues[name]
            steps += [Put(name, {queue.next_offset: self.message()})] if self.chance.random() < 0.5 else []
            steps += self.halves.phantom(self.clock_ms) if self.chance.random() < 0.5 else []
            steps += [Refused(self.message())]
            steps += [self.discharge()] if self.chance.random() < 0.5 else []
            return tuple(steps)
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            name = self.some_queue()
            step = self.step(name)
            if step is not None:
                steps.append(step)
            if isinstance(step, Put) and self.chance.random() < 0.3:
                steps.append(self.halves.move(name))
        if self.chance.random() < 0.3:
            self.tick()
            steps += self.halves.unit(self.clock_ms)
            # A committed one is posted in the same unit.
            steps += [self.post(self.some_queue()) for step in steps if _is_commit(step)]
        for _ in range(self.chance.choice((0, 0, 1, 1))):
            discharge = self.discharge()
            self.outcomes.append((discharge.txn_id, discharge.at_ms))
            steps.append(discharge)
        return tuple(steps)

    def discharge(self) -> Discharge:
        self.tick()
        return Discharge(self.chance.randbytes(16), self.clock_ms)

    def tick(self) -> None:
        """The clock stands mostly; where it goes back, outcomes begin a new generation."""
        self.clock_ms += self.chance.choice((0, 0, 0, 1, 1000))
        if self.chance.random() < 0.05:
            self.clock_ms -= CLOCK_BACK_MS

    def some_queue(self) -> str:
        return self.chance.choice(sorted(self.queues.keys() - self.fresh))

    def step(self, name: str) -> Step | None:
        queue = self.queues[name]
        offsets = list(queue.messages)
        draw = self.chance.random()
        if draw < 0.02:
            queue.messages.clear()
            return Clear(name)
        if offsets and draw < 0.12:
            return self.put_back(name, queue, self.chance.choice(offsets))
        if offsets and (draw < 0.5 or len(offsets) > MAX_MESSAGES):
            return self.take(name, queue, offsets)
        return self.post(name, self.chance.choice((1, 1, 2, 3, 10, 25)))

    def post(self, name: str, count: int = 1) -> Put:
        queue = self.queues[name]
        messages = {}
        for _ in range(count):
            queue.next_offset += 1 if self.chance.random() < 0.97 else self.chance.choice((2, 5))
            messages[queue.next_offset - 1] = self.message()
        queue.messages.update(messages)
        return Put(name, messages)

    def take(self, name: str, queue: _Queue, offsets: list[int]) -> Take:
        if self.chance.random() < 0.6:
            first, last = offsets[0], offsets[self.chance.randrange(len(offsets))]
        else:
            first = self.chance.choice(offsets)
            last = min(first + self.chance.choice((0, 0, 1, 4)), queue.next_offset - 1)
        for offset in offsets:
            if first <= offset <= last:
                del queue.messages[offset]
        return Take(name, first, last)

    def put_back(self, name: str, queue: _Queue, offset: int) -> PutBack:
        old = queue.messages[offset]
        annotations = self.chance.randbytes(20) if self.chance.random() < 0.3 else old.annotations
        count = old.delivery_count + self.chance.choice((0, 1))
        acquired = old.acquired_before or self.chance.random() < 0.8
        queue.messages[offset] = replace(
            old, delivery_count=count, acquired_before=acquired, annotations=annotations
        )
        return PutBack(name, offset, count, acquired, annotations)

    def message(self) -> Stored:
        chance = self.chance
        size = chance.choice((0, 10, 60, 100, 100, 300))
        if chance.random() < 0.02:
            size = chance.randrange(3_000, 12_000)
        return Stored(
            body=chance.randbytes(size),
            message_format=chance.choice((0, 0, 0, 7)),
            priority=chance.choice((4, 4, 4, 0, 9)),
            expires_at_ms=chance.choice((0, 0, 4_000_000_000_000)),
            enqueued_at_ms=chance.randrange(1, 2_000_000_000_000),
        )


def apply_unit(snapshot: Snapshot, unit: tuple[Step, ...]) -> Snapshot:
    """What a store that held `snapshot` holds after a unit that happened. Steps on queues that are gone do
    nothing.
    """
    after = dict(snapshot.queues)
    outcomes = snapshot.outcomes
    held = snapshot.held
    for step in unit:
        if isinstance(step, Make):
            after[step.queue] = (0, {})
        elif isinstance(step, Discharge):
            outcomes += ((step.txn_id, step.at_ms),)
        elif isinstance(step, HalfStep):
            if not isinstance(step, Move) or step.queue in after:
                held = apply_half_step(held, step)
        elif not isinstance(step, Refused) and step.queue in after:
            if isinstance(step, Drop):
                del after[step.queue]
                held = without_queue(held, step.queue)
            else:
                after[step.queue] = _apply_step(*after[step.queue], step)
    return Snapshot(after, outcomes, held)


def _is_commit(step: Step) -> bool:
    return isinstance(step, DecideHalf) and step.state == COMMITTED


def _apply_step(
    next_offset: int, messages: Mapping[int, Stored], step: Clear | Put | Take | PutBack
) -> tuple[int, Mapping[int, Stored]]:
    match step:
        case Clear():
            return next_offset, {}
        case Put():
            return max(step.messages) + 1, {**messages, **step.messages}
        case Take():
            kept = {
                at: old for at, old in messages.items() if not step.first_offset <= at <= step.last_offset
            }
            return next_offset, kept
        case PutBack():
            if step.offset not in messages:
                return next_offset, messages
            changed = replace(
                messages[step.offset],
                delivery_count=step.delivery_count,
                acquired_before=step.acquired_before,
                annotations=step.annotations,
            )
            return next_offset, {**messages, step.offset: changed}
