"""Messages leave a queue by the broker's own hand, and come elsewhere, in one commit. Their room is kept.

    available --take_out--> Moved --COMMIT--> gone here, available there
                              +--refused----> back in their places
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from amqp_broker import message_events
from amqp_broker.counts import REMOVED
from amqp_broker.large_messages import brought
from amqp_broker.operations.operation import Batch
from amqp_broker.operations.posting import Posting, retire_verbs
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.persistence import Record, Unit, octets_of, size_of
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


class Moved(Batch):
    """`records`, which nobody holds, leave `queue` for `reason`, and what `posts` have comes (`posting`),
    together or not at all.
    """

    def __init__(
        self, nodes: BrokerNodes, queue: Queue, records: list[Record], posts: list[Posting], reason: str
    ) -> None:
        super().__init__([*posts])
        self._posts = posts
        self._nodes = nodes
        self._queue = queue
        self._records = records
        self._reason = reason
        self.count = len(records)
        self._error: Exception | None = None
        self._done = trio.Event()
        queue.take_out(records)
        for post in posts:
            for record in post.records:
                post.queue.reserve_one(size_of(record), anyway=True)

    def prepare(self, now_ms: int) -> Unit:
        """The messages are retired here, and posted there."""
        queue, records = self._queue, self._records
        unit = retire_verbs(queue.queue_id, records)
        if queue.events and records:
            offsets = [record.offset for record in records]
            unit += message_events.dead(queue, offsets, self._reason, now_ms)
        return unit + super().prepare(now_ms)

    def stored(self) -> None:
        """They are gone here, and there."""
        self._unreserve()
        super().stored()
        queue = self._queue
        queue.retire(self._records, REMOVED)
        queue.backlog.gone_ahead(self._records)
        self._nodes.drained(queue)
        self._done.set()

    def refused(self, error: Exception) -> None:
        """They stay where they are."""
        self._unreserve()
        super().refused(error)
        if not self._queue.deleted:
            self._queue.take_back(self._records)
            self._nodes.pump(self._queue)
        self._error = error
        self._done.set()

    def _unreserve(self) -> None:
        for post in self._posts:
            post.queue.unreserve(post.operations, post.size_bytes)

    async def done(self) -> None:
        """Wait until it is decided. Raises what it was refused for."""
        await self._done.wait()
        if self._error is not None:
            raise self._error


def posting(nodes: BrokerNodes, queue: Queue, records: Sequence[Record]) -> Posting:
    """What brings messages of other queues into this one, now. Their tries begin anew, and their time to live
    goes on.
    """
    now_ms = nodes.clock.now_ms()
    again = [
        brought(queue, record, Record(
            0, record.body, record.message_format, record.priority, record.expires_at_ms, now_ms,
            queue.persistent and (record.durable or queue.stores_all), 0, record.acquired_before,
            queue_id=queue.queue_id,
        ))
        for record in records
    ]  # fmt: skip
    return Posting(nodes, queue, again, OF_THE_BROKER)


def fitting(queue: Queue, records: list[Record]) -> list[Record]:
    """The first of `records` for which there is room in `queue`."""
    count = queue.reserve(records)
    queue.unreserve(count, octets_of(records[:count]))
    return records[:count]
