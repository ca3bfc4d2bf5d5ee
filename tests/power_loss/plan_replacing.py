"""Rings and last values: units that bring messages and take out the older ones that these replace, which may
stand anywhere, also among those of the unit itself.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.operations.posting import retire_verbs
from amqp_broker.persistence import CreateNode, Post, Record, RecoveredNode, Retire, Unit
from amqp_broker.testing.store_suite.helpers import read_all
from tests.power_loss.plan import REFUSED
from tests.power_loss.plan_messages import Messages

KEYS: Final = b"abcdefgh"
RING: Final = "ring"
LAST: Final = "last"
MOST: Final = 12


class Replacing(Messages):
    """A ring and a queue of last values: the key of a message is its first octet."""

    def unit(self) -> Unit:
        """One of these."""
        nodes = self.nodes()
        self.numbered.clear()
        for name in (RING, LAST):
            if name not in nodes:
                if name in self.fresh:
                    return []
                self.fresh.add(name)
                return [CreateNode(name, "queue", {"made_by": name})]
        both = self.chance.random() < 0.2
        names = (RING, LAST) if both else (self.chance.choice((RING, LAST)),)
        unit = [verb for name in names for verb in self.replaced(nodes[name])]
        if self.chance.random() < 0.08:
            return [*unit, REFUSED]
        return [*unit, self.discharge()] if self.chance.random() < 0.3 else unit

    def replaced(self, node: RecoveredNode) -> Unit:
        """Some come, and what they put out goes; or a consumer takes some."""
        chance = self.chance
        there = read_all(self.store, node.queue_id)
        if there and chance.random() < 0.2:
            taken = chance.choice(there).offset
            return [Retire(node.queue_id, taken, taken)]
        at = node.next_offset
        come = [self.value(node.queue_id, at + place) for place in range(chance.choice((1, 1, 2, 5, 20)))]
        rows = [*there, *come]
        if node.name == RING:
            gone = rows[:-MOST]
        else:
            newest = {row.body[:1]: row.offset for row in rows}
            gone = [row for row in rows if newest[row.body[:1]] != row.offset]
        return [Post(node.queue_id, come), *retire_verbs(node.queue_id, gone)]

    def value(self, queue_id: int, offset: int) -> Record:
        """A message with its key."""
        record = self.record(queue_id, offset)
        record.body = bytes((self.chance.choice(KEYS),)) + record.body
        return record
