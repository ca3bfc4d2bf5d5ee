"""Queues with their messages, transactions, half messages, streams and the journal."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from amqp_broker.persistence import (
    Advance,
    CreateNode,
    Decide,
    DeleteNode,
    Discharged,
    Event,
    ForgetStream,
    Half,
    Hold,
    Journal,
    Post,
    Purge,
    Record,
    RecoveredNode,
    Reschedule,
    Retire,
    Return,
    Stream,
    Unit,
    Verb,
)
from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, PARKED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.questions import OpenHalves, StreamOf
from amqp_broker.testing.store_suite.helpers import read_all
from tests.power_loss.plan import REFUSED, START_MS, Workload
from tests.promises.book import Book, Bound

MAX_QUEUES: Final = 3
MAX_MESSAGES: Final = 30
"""Above this many messages a queue is emptied rather than filled, so that states stay small and quick to
check.
"""
CLOCK_BACK_MS: Final = 12 * 60 * 60 * 1000
"""More than a generation of outcomes spans."""
STREAMS: Final = ("one", "two", "three")
MAX_OPEN: Final = 12
KEEP_MS: Final = 1_500_000
"""Two rests: a plan of forty groups makes the store forget some halves and events."""


class Messages(Workload):
    """The journal is bounded at some twenty of the events here, which a plan of forty groups passes."""

    SIZES = (1, 1, 1, 2, 3, 5)
    SHARE_OF_RESTS = 0.15
    BOUND = Bound(1_500)

    def __init__(self, chance: random.Random, book: Book) -> None:
        super().__init__(chance, book)
        self.clock_ms = START_MS
        self.changed: set[tuple[str, bytes]] = set()
        """Half messages that the group has changed which is being written."""
        self.numbered: dict[str, int] = {}
        """Next offsets, as the unit leaves them which is being written."""

    def units(self) -> Sequence[Callable[[], Unit]]:
        """Each half message is changed once in a group."""
        self.changed.clear()
        return super().units()

    def unit(self) -> Unit:
        """One of these."""
        chance, nodes, draw = self.chance, self.nodes(), self.chance.random()
        self.numbered.clear()
        there = len(nodes) + len(self.fresh)
        if not there or (draw < 0.06 and there < MAX_QUEUES):
            name = f"q{chance.getrandbits(32):x}"
            self.fresh.add(name)
            return [CreateNode(name, "queue", {"made_by": name})]
        if not nodes:
            return []
        if draw < 0.08 and there > 1:
            return [DeleteNode(self.some(nodes).queue_id)]
        if draw < 0.12:
            return self.refused(self.some(nodes))
        unit: Unit = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            node = self.some(nodes)
            verb = self.verb(node)
            unit.append(verb)
            if isinstance(verb, Post) and chance.random() < 0.3:
                unit.append(self.move(node))
        if chance.random() < 0.3:
            self.tick()
            halves = self.halves()
            commits = [verb for verb in halves if isinstance(verb, Decide) and verb.state == COMMITTED]
            unit += [*halves, *(self.post(self.some(nodes)) for _ in commits)]
        return [*unit, self.discharge()] if chance.random() < 0.5 else unit

    def some(self, nodes: dict[str, RecoveredNode]) -> RecoveredNode:
        return nodes[self.chance.choice(sorted(nodes))]

    def refused(self, node: RecoveredNode) -> Unit:
        """Nothing of it may stay."""
        unit: Unit = [self.post(node)] if self.chance.random() < 0.5 else []
        if self.chance.random() < 0.5:
            unit += [self.hold("refused", b"refused"), self.note()]
        return [*unit, REFUSED, *([self.discharge()] if self.chance.random() < 0.5 else [])]

    def discharge(self) -> Discharged:
        self.tick()
        return Discharged(self.chance.randbytes(16), self.clock_ms)

    def tick(self) -> None:
        """The clock stands mostly; where it goes back, outcomes begin a new generation."""
        self.clock_ms += self.chance.choice((0, 0, 0, 1, 1000))
        if self.chance.random() < 0.05:
            self.clock_ms -= CLOCK_BACK_MS

    # Messages

    def verb(self, node: RecoveredNode) -> Verb:
        chance, draw = self.chance, self.chance.random()
        if draw < 0.02:
            return Purge(node.queue_id)
        records = read_all(self.store, node.queue_id)
        if records and draw < 0.12:
            return self.give_back(chance.choice(records))
        if records and (draw < 0.5 or len(records) > MAX_MESSAGES):
            if chance.random() < 0.6:
                return Retire(node.queue_id, records[0].offset, chance.choice(records).offset)
            first = chance.choice(records).offset
            return Retire(node.queue_id, first, first + chance.choice((0, 0, 1, 4)))
        return self.post(node, chance.choice((1, 1, 2, 3, 10, 25)))

    def post(self, node: RecoveredNode, count: int = 1) -> Post:
        """Offsets that are left out belong to messages that are not durable."""
        at = self.numbered.get(node.name, node.next_offset)
        records = []
        for _ in range(count):
            at += 0 if self.chance.random() < 0.97 else self.chance.choice((1, 4))
            records.append(self.record(node.queue_id, at))
            at += 1
        self.numbered[node.name] = at
        return Post(node.queue_id, records)

    def record(self, queue_id: int, offset: int) -> Record:
        chance = self.chance
        size = chance.choice((0, 10, 60, 100, 100, 300))
        if chance.random() < 0.02:
            size = chance.randrange(3_000, 12_000)
        return Record(
            offset,
            chance.randbytes(size),
            message_format=chance.choice((0, 0, 0, 7)),
            priority=chance.choice((4, 4, 4, 0, 9)),
            expires_at_ms=chance.choice((0, 0, 4_000_000_000_000)),
            enqueued_at_ms=chance.randrange(1, 2_000_000_000_000),
            queue_id=queue_id,
        )

    def give_back(self, old: Record) -> Return:
        annotations = self.chance.randbytes(20) if self.chance.random() < 0.3 else old.annotations
        acquired = old.acquired_before or self.chance.random() < 0.8
        count = old.delivery_count + self.chance.choice((0, 1))
        return Return(old.queue_id, old.offset, count, annotations, acquired)

    def move(self, node: RecoveredNode) -> Verb:
        """The position of a stream whose messages are posted in the same unit."""
        name = self.chance.choice(STREAMS)
        if self.chance.random() < 0.05:
            return ForgetStream(node.queue_id, name)
        at = self.store.ask(StreamOf(node.queue_id, name)) or Stream(node.queue_id, name, "owner", 1, 0)
        seq_id, seq_no = (at.seq_id, at.seq_no + 1) if self.chance.random() < 0.9 else (at.seq_id + 2**60, 1)
        return Advance(Stream(node.queue_id, name, "owner", seq_id, seq_no, ((seq_id - 1, 7),)))

    # Half messages

    def halves(self) -> Unit:
        """One verb about each half message at most, and mostly its event."""
        unit: Unit = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 6))):
            unit.append(self.half_verb())
            unit += [self.note()] if self.chance.random() < 0.6 else []
        return unit

    def half_verb(self) -> Verb:
        chance, draw = self.chance, self.chance.random()
        waiting = [(half.group, half.half_id) for half in self.store.ask(OpenHalves())]
        free = [key for key in waiting if key not in self.changed]
        if not free or (draw < 0.45 and len(waiting) < MAX_OPEN):
            return self.hold(chance.choice("gh"), chance.randbytes(chance.choice((0, 10, 100, 300, 5_000))))
        key = chance.choice(free)
        self.changed.add(key)
        if draw < 0.6:
            state = chance.choice((PREPARED, PARKED))
            return Reschedule(*key, state, chance.randrange(16), chance.randrange(10_000), 5)
        state = chance.choice((COMMITTED, COMMITTED, ROLLED_BACK))
        resolver = chance.choice(("check", BY_POLICY)) if state == ROLLED_BACK else "check"
        reason = chance.choice(("", "gone", "wh\u00ff"))
        return Decide(*key, state, self.clock_ms, resolver, reason, self.clock_ms + KEEP_MS)

    def hold(self, group: str, body: bytes) -> Hold:
        half_id = self.chance.randbytes(16)
        self.changed.add((group, half_id))
        at_ms, size = self.clock_ms, len(body)
        half = Half(group, half_id, "destination", PREPARED, bytes(32), at_ms, 0, 5, "container", size)
        return Hold(half, body)

    def note(self) -> Journal:
        return Journal(Event("noted", self.clock_ms, {"at": self.clock_ms}))
