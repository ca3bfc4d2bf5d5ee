"""The way back: dead letters go to the queues that they came from, a page of them in each commit.

    taken from the front --> by their former address --> Redriven: leave here, come there --COMMIT--> there
                               |
                               +-- none, or its queue is gone or full: back to their places
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.addresses import TEMPORARY_PREFIX, AddressError, parse_address
from amqp_broker.dead_letters.moving import ADDRESS, OF_THE_BROKER
from amqp_broker.frames import DecodeError, Message, Symbol
from amqp_broker.operations.operation import Batch
from amqp_broker.operations.posting import Leaving, Posting, retire_verbs
from amqp_broker.persistence import Record, Store
from amqp_broker.queue import Queue
from amqp_broker.queues import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

PAGE_MESSAGES: Final = 1_000  # of one commit
EVERYTHING: Final = 1 << 62


class Redriven(Batch):
    """Dead letters are posted where they came from, and leave their queue, together or not at all."""

    def __init__(self, nodes: BrokerNodes, queue: Queue, records: list[Record], posts: list[Posting]) -> None:
        super().__init__([Leaving(retire_verbs(queue.queue_id, records)), *posts])
        self._nodes = nodes
        self._queue = queue
        self._records = records
        self._posts = posts
        self.error: Exception | None = None
        self.done = trio.Event()

    def stored(self) -> None:
        """They are back."""
        super().stored()
        self._queue.retire(self._records)
        self._nodes.drained(self._queue)
        for post in self._posts:
            self._nodes.pump(post.queue)
        self.done.set()

    def refused(self, error: Exception) -> None:
        """They stay where they are."""
        super().refused(error)
        self._queue.take_back(self._records)
        self._nodes.pump(self._queue)
        self.error = error
        self.done.set()


async def redrive(nodes: BrokerNodes, address: str, count: int = EVERYTHING) -> int:
    """Move at most `count` of the messages that are in the queue now and with nobody, the oldest first, back
    to their former addresses; returns how many. Their tries begin anew. Those that can't go stay. Raises
    NodeRefused where there is no such queue, and StoreError.
    """
    queue = nodes.queues.find(address)
    if queue is None:
        raise NodeRefused("amqp:not-found", f"no queue {address!r}")
    way = _WayBack(nodes, queue)
    try:
        while way.moved < count and await way.go(min(PAGE_MESSAGES, count - way.moved)):
            pass
    finally:
        way.end()
    return way.moved


class _WayBack:
    """One re-drive. What it has taken and not moved it holds, so that it meets no message twice."""

    def __init__(self, nodes: BrokerNodes, queue: Queue) -> None:
        self._nodes = nodes
        self._queue = queue
        self._end = queue.next_offset
        self._held: dict[int, Record] = {}
        self.moved = 0

    async def go(self, count: int) -> bool:
        """One commit; whether there may be more."""
        taken = await self._take(count)
        self._held.update({record.offset: record for record in taken})
        targets: dict[str, list[Record]] = {}
        for record in taken:
            name = former_address(record)
            if name and record.offset < self._end:
                targets.setdefault(name, []).append(record)
        found = [(queue, records) for name, records in targets.items() if (queue := await self._at(name))]
        going: list[Record] = []
        posts: list[Posting] = []
        for queue, records in found:
            fit = records[: queue.reserve([_again(queue, record, 0) for record in records])]
            if fit:
                now_ms = self._nodes.clock.now_ms()
                again = [_again(queue, record, now_ms) for record in fit]
                posts.append(Posting(self._nodes, queue, again, OF_THE_BROKER, reserved=True))
                going += fit
        if going:
            await self._move(going, posts)
        return bool(taken) and taken[-1].offset < self._end

    async def _move(self, going: list[Record], posts: list[Posting]) -> None:
        for record in going:
            del self._held[record.offset]
        redriven = Redriven(self._nodes, self._queue, going, posts)
        self._nodes.writer.submit(redriven)
        await redriven.done.wait()
        if redriven.error is not None:
            raise redriven.error
        self.moved += len(going)

    async def _take(self, count: int) -> list[Record]:
        """The next messages, read from the disk where they are there only."""
        backlog = self._queue.backlog
        taken = backlog.take(count)
        while not taken and backlog.disk_from >= 0 and not self._queue.deleted:
            self._nodes.load(self._queue)
            await self._nodes.writer.ask(_nothing)  # reads are done in their order
            taken = backlog.take(count)
        return taken

    async def _at(self, name: str) -> Queue | None:
        """The queue of this name, made if it is not there; None where no message can go."""
        queues = self._nodes.queues
        try:
            if name.startswith(TEMPORARY_PREFIX):
                return queues.find(name)
            if name == self._queue.name or parse_address(name).reserved:
                return None
            return await queues.site_by_name(name).make()
        except (AddressError, NodeRefused):
            return None

    def end(self) -> None:
        """What did not go is back in its place."""
        if not self._queue.deleted:
            self._queue.take_back(self._held.values())
            self._nodes.pump(self._queue)


def former_address(record: Record) -> str:
    """Where a dead letter comes from; empty if it does not say."""
    try:
        found = (Message(record.body).message_annotations or {}).get(Symbol(ADDRESS))
    except DecodeError:
        return ""
    return found if isinstance(found, str) else ""


def _again(queue: Queue, record: Record, now_ms: int) -> Record:
    """The message as it comes once more, with the annotations that say where it has been."""
    return Record(
        0, record.body, record.message_format, record.priority, 0, now_ms, queue.persistent, 0, True,
        queue_id=queue.queue_id,
    )  # fmt: skip


def _nothing(_store: Store) -> None:
    """Asked for its place among the reads."""
