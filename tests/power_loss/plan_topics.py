"""Topics and dead letters: messages of several queues whose bodies are stored once, subscriptions that come
and go, and messages that leave one queue for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.persistence import (
    Contents,
    CreateNode,
    DeleteNode,
    Post,
    Purge,
    Record,
    RecoveredNode,
    Retire,
    Unit,
)
from amqp_broker.testing.store_suite.helpers import read_all
from tests.power_loss.plan import REFUSED
from tests.power_loss.plan_messages import Messages

SUBSCRIPTION: Final = "subscription"
MAX_SUBSCRIPTIONS: Final = 5
MAX_MESSAGES: Final = 20
"""Above this many messages a subscription is emptied rather than filled."""
DEAD: Final = "dead-letters"
WHOLE_PAGES: Final = (5_000, 40_000)
"""Sizes of bodies that take pages of their own, or a segment."""


class Topics(Messages):
    """No half messages and streams: those of `Messages` do for both."""

    def unit(self) -> Unit:
        """One of these."""
        nodes = self.nodes()
        self.numbered.clear()
        subscriptions = [node for node in nodes.values() if node.kind == SUBSCRIPTION]
        if DEAD not in nodes:
            return self.made(DEAD, "queue") if DEAD not in self.fresh else []
        if len(subscriptions) < 2:
            return self.subscribed()
        kinds: list[tuple[float, Callable[[list[RecoveredNode]], Unit]]] = [
            (0.40, self.published),
            (0.25, self.settled),
            (0.20, lambda some: self.died(self.chance.choice(some), nodes[DEAD])),
            (0.10, lambda some: self.gone(some, len(self.fresh))),
            (0.05, lambda some: [*self.published(some), REFUSED]),
        ]
        shares, makers = zip(*kinds, strict=True)
        (make,) = self.chance.choices(makers, shares)
        unit = make(subscriptions)
        return [*unit, self.discharge()] if unit and self.chance.random() < 0.3 else unit

    def made(self, name: str, kind: str) -> Unit:
        self.fresh.add(name)
        return [CreateNode(name, kind, {"made_by": name})]

    def subscribed(self) -> Unit:
        return self.made(f"$subscription/durable/{self.chance.getrandbits(32):x}", SUBSCRIPTION)

    def gone(self, subscriptions: list[RecoveredNode], fresh: int) -> Unit:
        """An end, or a new one, or another one instead (another selector), in one unit."""
        chance = self.chance
        if len(subscriptions) + fresh < MAX_SUBSCRIPTIONS and chance.random() < 0.5:
            return self.subscribed()
        ended: Unit = [DeleteNode(chance.choice(subscriptions).queue_id)]
        return ended if chance.random() < 0.5 else [*ended, *self.subscribed()]

    def published(self, subscriptions: list[RecoveredNode]) -> Unit:
        """What one or two topics take: each subscription has all of it, or what passes its filter."""
        chance = self.chance
        unit: Unit = []
        for _ in range(chance.choice((1, 1, 2))):
            count = chance.choice((1, 1, 2, 3, 10))
            contents = Contents([self.content() for _ in range(count)])
            there = chance.sample(subscriptions, chance.randint(1, len(subscriptions)))
            for node in there:
                if node.message_count > MAX_MESSAGES:
                    continue
                positions = None if chance.random() < 0.6 else self.some_of(count)
                unit.append(self.copies(node, contents, positions))
        return unit

    def some_of(self, count: int) -> list[int]:
        return sorted(self.chance.sample(range(count), self.chance.randint(1, count)))

    def content(self) -> Record:
        record = self.record(0, 0)
        if self.chance.random() < 0.03:
            record.body = self.chance.randbytes(self.chance.choice(WHOLE_PAGES))
        return record

    def copies(self, node: RecoveredNode, contents: Contents, positions: list[int] | None) -> Post:
        """Offsets that are left out belong to copies that are not durable."""
        at = self.numbered.get(node.name, node.next_offset)
        records = []
        for position in range(len(contents.records)) if positions is None else positions:
            at += 0 if self.chance.random() < 0.97 else 3
            records.append(copied(contents.records[position], node, at, contents.records[position].body))
            at += 1
        self.numbered[node.name] = at
        return Post(node.queue_id, records, contents, positions)

    def settled(self, subscriptions: list[RecoveredNode]) -> Unit:
        """Some are accepted, or fail and come back; now and then all of a queue goes."""
        chance = self.chance
        node = chance.choice(subscriptions)
        records = read_all(self.store, node.queue_id)
        if not records:
            return []
        draw = chance.random()
        if draw < 0.05:
            return [Purge(node.queue_id)]
        if draw < 0.25:
            return [self.give_back(chance.choice(records))]
        first = records[0] if draw < 0.75 else chance.choice(records)
        return [Retire(node.queue_id, first.offset, max(first, chance.choice(records), key=_offset).offset)]

    def died(self, node: RecoveredNode, dead: RecoveredNode) -> Unit:
        """A run leaves its queue for the dead letters, which are taken in their turn."""
        chance = self.chance
        there = read_all(self.store, dead.queue_id)
        if there and (chance.random() < 0.1 or len(there) > MAX_MESSAGES):
            return [Retire(dead.queue_id, there[0].offset, chance.choice(there).offset)]
        records = read_all(self.store, node.queue_id)
        if not records:
            return []
        first = chance.randrange(len(records))
        run = records[first : first + chance.choice((1, 1, 2, 5))]
        unit: Unit = [Retire(node.queue_id, each.offset, each.offset) for each in run]
        letters = [
            copied(each, dead, offset, b"rejected " + each.body)
            for offset, each in enumerate(run, dead.next_offset)
        ]
        return [*unit, Post(dead.queue_id, letters)]


def copied(of: Record, node: RecoveredNode, offset: int, body: bytes) -> Record:
    """A message as it stands in another queue."""
    return Record(
        offset,
        body,
        message_format=of.message_format,
        priority=of.priority,
        expires_at_ms=of.expires_at_ms,
        enqueued_at_ms=of.enqueued_at_ms,
        queue_id=node.queue_id,
    )


def _offset(record: Record) -> int:
    return record.offset
