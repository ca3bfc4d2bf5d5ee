"""What the broker has stored: one class for each kind of work, each stored wholly or not at all.

A job is made in a connection's turn, gives its verbs when the writer asks, and answers the peer only after
the commit returned (law 4: a promise leaves after the commit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from amqp_broker.links import Delivery, OutgoingDelivery, ReceiverLink, SenderLink
from amqp_broker.message_events import put
from amqp_broker.nodes.ends import Sink
from amqp_broker.persistence import Post, Record, Retire, Return, Unit
from amqp_broker.queue import Consumer, Queue


class Nodes(Protocol):
    """What a finished job tells: a queue has something to distribute, or room again."""

    def wall_clock_ms(self) -> int:
        """Milliseconds of the Unix epoch."""

    def pump(self, queue: Queue) -> None:
        """Distribute what `queue` has."""

    def drained(self, queue: Queue) -> None:
        """`queue` lost messages: senders that wait for room may go on."""


def retire_verbs(queue_id: int, records: Sequence[Record]) -> Unit:
    """The fewest ranges that hold exactly the durable ones of `records`."""
    offsets = sorted([record.offset for record in records if record.durable])
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [Retire(queue_id, offsets[0], offsets[-1])]
    unit: Unit = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            unit.append(Retire(queue_id, first, last))
            first = offset
        last = offset
    unit.append(Retire(queue_id, first, last))
    return unit


def post_verbs(queue: Queue, records: Sequence[Record], durable_count: int) -> Unit:
    """What the store has to take of numbered messages, of which `durable_count` are durable."""
    if not durable_count:
        return []
    if queue.archives:
        return [Post(queue.queue_id, records), archive_verb(queue, records[0].offset, len(records))]
    if durable_count == len(records):
        return [Post(queue.queue_id, records)]
    return [Post(queue.queue_id, run) for run in _durable_runs(records)]


def archive_verb(queue: Queue, first_offset: int, count: int) -> Retire:
    """What makes messages of a log ARCHIVED, in the unit that posts them: it retains, so they are kept."""
    return Retire(queue.queue_id, first_offset, first_offset + count - 1)


class Posting:
    """A run of messages from one link to one queue; without an owner it is the broker that posts."""

    __slots__ = ("deliveries", "durable_count", "link", "nodes", "owner", "queue", "records", "size")

    def __init__(
        self,
        owner: Sink | None,
        link: ReceiverLink | None,
        deliveries: list[Delivery],
        queue: Queue,
        records: list[Record],
        nodes: Nodes,
    ) -> None:
        self.owner = owner
        self.nodes = nodes
        self.link = link
        self.deliveries = deliveries
        self.queue = queue
        self.records = records
        self.size = sum([len(record.body) for record in records])
        self.durable_count = sum([record.durable for record in records])
        queue.pending_posts += 1

    def unit(self) -> Unit:
        queue = self.queue
        queue.number(self.records)
        unit = post_verbs(queue, self.records, self.durable_count)
        if queue.events:
            container = "" if self.owner is None else self.owner.connection.container_id
            unit.extend(put(queue, self.records, container, self.nodes.wall_clock_ms()))
        return unit

    def withdraw(self) -> None:
        """Nothing was stored: the offsets are free again."""
        self.queue.next_offset = self.records[0].offset

    def keeps(self) -> bool:
        """The sender is told that there is no room."""
        return False

    def finished(self, error: Exception | None) -> None:
        queue = self.queue
        queue.pending_posts -= 1
        if error is None:
            queue.make_available(self.records, self.size)
        if self.owner is not None:
            self.owner.on_posted(self, error)
        if error is None:
            self.nodes.pump(queue)


def _durable_runs(records: Sequence[Record]) -> list[list[Record]]:
    runs: list[list[Record]] = []
    follows = False
    for record in records:
        if record.durable:
            if follows:
                runs[-1].append(record)
            else:
                runs.append([record])
        follows = record.durable
    return runs


class Settlement:
    """The outcome of a run of deliveries to one consumer: its messages leave the queue, or return changed."""

    __slots__ = ("deliveries", "link", "nodes", "owner", "queue", "records", "state", "verbs")

    def __init__(
        self, owner: Consumer, link: SenderLink, deliveries: list[OutgoingDelivery], queue: Queue,
        retired: list[Record], state: object, nodes: Nodes, verbs: Unit,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.nodes = nodes
        self.link = link
        self.deliveries = deliveries
        self.queue = queue
        self.records = retired
        self.state = state
        self.verbs = verbs

    def unit(self) -> Unit:
        return self.verbs

    def withdraw(self) -> None:
        """Nothing was stored; nothing was taken either."""

    def keeps(self) -> bool:
        """The receiver has decided: its outcome waits for room, and nothing is delivered once more."""
        return True

    def finished(self, error: Exception | None) -> None:
        if self.records:
            self.queue.retire(self.records)
            self.nodes.drained(self.queue)
        self.owner.on_settled(self, error)


def return_verbs(queue_id: int, records: Sequence[Record]) -> Unit:
    """What the store has to know of messages whose header effects changed."""
    return [
        Return(queue_id, record.offset, record.delivery_count, record.annotations)
        for record in records
        if record.durable
    ]


class Step:
    """Verbs that somebody waits for, or that nobody waits for."""

    __slots__ = ("_then", "_verbs")

    def __init__(self, verbs: Unit, then: Callable[[Exception | None], None] | None = None) -> None:
        self._verbs = verbs
        self._then = then

    def unit(self) -> Unit:
        return self._verbs

    def withdraw(self) -> None:
        """Nothing was stored; nothing was taken either."""

    def keeps(self) -> bool:
        """Who waits for the step is told; what nobody waits for is tried again."""
        return self._then is None

    def finished(self, error: Exception | None) -> None:
        if self._then is not None:
            self._then(error)
