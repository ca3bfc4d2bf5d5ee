"""Where messages wait for their time: one place for all queues, a node of the store beside them.

    posted, due later --number--> this node --COMMIT--> a number in memory, by its time
                                                           | due
          Coming: leaves this node, posted to its queue <--+-- read, a part in each commit
                    --COMMIT--> available, behind what the queue has

A body is stored behind the id of its queue, and `enqueued_at_ms` is here when it is due, so that the store
needs nothing of its own for it. Of a message on disk memory holds one number. It comes at its expiry where
that is earlier, and expires in its queue, as any other. What only memory has of a message waits here, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.frames import Error
from amqp_broker.links import Account, Holdings
from amqp_broker.log import Log
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import Batch, NotYet, Refused
from amqp_broker.operations.posting import Leaving, Posting, Step, retire_verbs
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    CreateNode,
    Post,
    Record,
    RecoveredNode,
    Store,
    Unit,
)
from amqp_broker.persistence.questions import PageOf
from amqp_broker.waiting import ENTRY_BYTES, NEVER, Delays, Waiting

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.configuration import QueuePolicy
    from amqp_broker.queue import Queue

NODE_NAME: Final = "$waiting/messages"  # no address
NODE_KIND: Final = "waiting"
COME_AT_ONCE: Final = 1_024  # messages of one commit: some milliseconds
READS_AT_ONCE: Final = 16  # where they stand far apart: a millisecond each
COME_AT_ONCE_BYTES: Final = 4 << 20  # and their octets, or one message
SPREAD: Final = 8  # so many are read for each that is due; where they stand further apart, each by itself
AGAIN_S: Final = 1.0  # after which what could not come is tried again

_QUEUE_ID: Final = struct.Struct("<q")  # before each body

Entry = tuple[int, int]
"""When something that waits is due, and its number."""


class Comings:
    """What comes in one commit."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_queue: dict[Queue, list[Record]] = {}
        self.size = 0
        self.stored_octets = 0
        self.retired: list[Record] = []

    def add(self, queue: Queue, record: Record) -> None:
        """A message as it will stand in its queue."""
        self.size += len(record.body)
        self.by_queue.setdefault(queue, []).append(record)

    def add_stored(self, queue: Queue | None, stored: Record, now_ms: int) -> None:
        """One that leaves the node. Without its queue it is gone."""
        self.retired.append(stored)
        self.stored_octets += len(stored.body) - _QUEUE_ID.size + RECORD_OVERHEAD_BYTES
        if queue is not None:
            self.add(queue, _record(queue, stored, now_ms))


class Coming(Batch):
    """Messages come: they leave the place where they waited, and are posted to their queues."""

    def __init__(self, room: Room, comings: Comings) -> None:
        posts = [
            Posting(room.nodes, queue, records, OF_THE_BROKER)
            for queue, records in comings.by_queue.items()
        ]
        super().__init__([Leaving(retire_verbs(room.node_id, comings.retired)), *posts])
        self._room = room
        self._comings = comings

    def stored(self) -> None:
        """They are there; the room that was kept for them is theirs."""
        for queue, records in self._comings.by_queue.items():
            queue.free_room(records)
        super().stored()
        self._room.came(self._comings)

    def refused(self, error: Exception) -> None:
        """They wait on."""
        super().refused(error)
        self._room.put_off(self._comings.entries)


class Room(Delays):
    """One for each broker. A number is an offset in the node, doubled; odd ones are of what only memory
    has.
    """

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self._waiting = Waiting()
        self._kept = Holdings()
        self.node_id = 0
        self._asked = False  # to make the node
        self._next = 0
        self._volatile: dict[int, tuple[Queue, Record]] = {}
        self._coming = False
        self._unread = (0, 0)  # offsets that have to be read after a start
        self._log = logger("delays")

    def __len__(self) -> int:
        return len(self._waiting)

    # The way in

    def make_ready(self) -> bool:
        """Have the node made, if it is not there."""
        if not self.node_id and not self._asked:
            self._asked = True
            verb = CreateNode(NODE_NAME, NODE_KIND)
            self.nodes.writer.submit(Step([verb], partial(self._made, verb)))
        return True

    def _made(self, verb: CreateNode, error: Exception | None) -> None:
        self._asked = False
        if error is None:
            self.node_id = verb.queue_id

    def number(self, records: Sequence[Record]) -> None:
        """The next numbers; durable messages need the node."""
        for record in records:
            if record.durable and not self.node_id:
                description = "the place where messages wait for their time could not be made"
                raise NotYet(
                    Refused(Error(condition="amqp:resource-limit-exceeded", description=description))
                )
            record.offset = self._next
            self._next += 1

    def post_verbs(self, queue: Queue, records: Sequence[Record]) -> Unit:
        """One post: each body behind the id of its queue."""
        head = _QUEUE_ID.pack(queue.queue_id)
        stored = [
            Record(
                each.offset, head + each.body, each.message_format, each.priority, each.expires_at_ms,
                each.due_at_ms, True, each.delivery_count, queue_id=self.node_id,
            )
            for each in records if each.durable
        ]  # fmt: skip
        return [Post(self.node_id, stored)] if stored else []

    def enter(self, queue: Queue, records: Sequence[Record], account: Account | None) -> None:
        """Until the time of each, or its expiry."""
        queue.keep_room(records)
        kept = 0
        for record in records:
            number = record.offset << 1
            kept += ENTRY_BYTES
            if not record.durable:
                number |= 1
                self._volatile[number] = (queue, record)
            if not record.durable or queue.in_memory:
                kept += len(record.body) + RECORD_OVERHEAD_BYTES
            self._waiting.enter(number, _comes_at_ms(record.due_at_ms, record.expires_at_ms))
        self._kept.add(account or self.nodes.memory.own, kept)
        self._set_timer()

    def forget(self, queue: Queue) -> None:
        """What memory has is forgotten now; what is stored leaves when it is due."""
        for number, (owner, record) in list(self._volatile.items()):
            if owner is queue:
                del self._volatile[number]
                self._kept.remove(len(record.body) + RECORD_OVERHEAD_BYTES)

    # After a start

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up what waits: it is read through once, in the share of time that all readers have."""
        for node in nodes:
            if node.kind == NODE_KIND:
                self.node_id, self._next = node.queue_id, node.next_offset
                if node.message_count:
                    self._unread = (node.first_offset, node.next_offset)
                    self.nodes.turns.ask(self)

    def read_page(self, store: Store) -> None:
        """The times of the next ones."""
        first, end = self._unread
        limits = self.nodes.config.limits
        page = store.ask(
            PageOf(self.node_id, first, limits.retained_page_messages, limits.retained_page_bytes)
        )
        queues = self._queues()
        for record in page.records:
            if record.offset < end:
                self._take_up(record, queues.get(_queue_id(record)))
        self._unread = (page.next_offset, end)
        if first < page.next_offset < end:
            self.nodes.turns.ask(self)
        self._set_timer()

    def _take_up(self, stored: Record, queue: Queue | None) -> None:
        if queue is not None:
            queue.waits = True
            queue.keep_room([_record(queue, stored, 0)])
        self._waiting.enter(stored.offset << 1, _comes_at_ms(stored.enqueued_at_ms, stored.expires_at_ms))
        self._kept.add(self.nodes.memory.own, ENTRY_BYTES)

    # The way out

    def _set_timer(self) -> None:
        next_ms = self._waiting.next_ms()
        if next_ms < NEVER and not self._coming:
            wait_s = max(0, next_ms - self.nodes.clock.now_ms()) / 1_000
            self.nodes.timers.set(trio.current_time() + wait_s, self)

    def wake(self) -> None:
        """Something may be due: a part of it comes, and the rest when that is there."""
        if self._coming:
            return
        due = self._waiting.take_due(self.nodes.clock.now_ms(), COME_AT_ONCE)
        if due:
            self._coming = True
            self.nodes.writer.read(partial(self._come, due), partial(self._failed, due))
        else:
            self._set_timer()

    def _failed(self, due: list[Entry], _fault: Exception) -> None:
        self.put_off(due)

    def _come(self, due: list[Entry], store: Store) -> None:
        """Those that are due, in their order, as far as they are not too large together."""
        found = self._read([number >> 1 for _, number in due if not number & 1], store)
        now_ms = self.nodes.clock.now_ms()
        queues = self._queues()
        comings = Comings()
        for at, entry in enumerate(due):
            number = entry[1]
            stored = found.get(number >> 1)
            if comings.size >= COME_AT_ONCE_BYTES or (not number & 1 and number >> 1 not in found):
                for at_ms, other in due[at:]:
                    self._waiting.enter(other, at_ms)
                break
            comings.entries.append(entry)
            if stored is not None:
                comings.add_stored(queues.get(_queue_id(stored)), stored, now_ms)
            elif number in self._volatile:
                queue, record = self._volatile[number]
                record.due_at_ms = 0
                comings.add(queue, record)
        self.nodes.writer.submit(Coming(self, comings))

    def _read(self, offsets: list[int], store: Store) -> dict[int, Record | None]:
        """The messages at these, in this order, up to bounds of octets and reads: None where one is
        damaged.
        """
        found: dict[int, Record | None] = {}
        room = COME_AT_ONCE_BYTES
        for _ in range(READS_AT_ONCE):
            if len(found) == len(offsets) or room <= 0:
                break
            at = stop = len(found)
            stop += 1
            while stop < len(offsets) and 0 < offsets[stop] - offsets[stop - 1] <= SPREAD:
                stop += 1
            first, last = offsets[at], offsets[stop - 1]
            page = store.ask(PageOf(self.node_id, first, last - first + 1, room))
            for each in page.quarantined:
                self._log.error("message.quarantined", queue=NODE_NAME, offset=each.offset, why=each.reason)
            read = {record.offset: record for record in page.records}
            room -= sum([len(record.body) for record in page.records])
            for offset in offsets[at:stop]:
                if offset < page.next_offset:
                    found[offset] = read.get(offset)
        return found

    def _queues(self) -> dict[int, Queue]:
        """By the ids that stand before the bodies; some are gone."""
        return {queue.queue_id: queue for queue in self.nodes.queues.queues()}

    def came(self, comings: Comings) -> None:
        """They are in their queues, or gone with them."""
        octets = 0
        for _, number in comings.entries:
            octets += ENTRY_BYTES
            volatile = self._volatile.pop(number, None)
            if volatile is not None:
                octets += len(volatile[1].body) + RECORD_OVERHEAD_BYTES
        if self.nodes.config.memory:
            octets += comings.stored_octets
        self._kept.remove(octets)
        self._coming = False
        self.wake()

    def put_off(self, entries: list[Entry]) -> None:
        """These could not come, and are tried again."""
        for at_ms, number in entries:
            self._waiting.enter(number, at_ms)
        self.nodes.timers.set(trio.current_time() + AGAIN_S, self)
        self._coming = False


def fill(room: Room, queue: Queue, _policy: QueuePolicy) -> None:
    """A queue was made: messages may wait for it. In a log they don't, since nobody takes them."""
    if not isinstance(queue, Log):
        queue.delays = room


def _queue_id(stored: Record) -> int:
    found: tuple[int] = _QUEUE_ID.unpack_from(stored.body)
    return found[0]


def _record(queue: Queue, stored: Record, now_ms: int) -> Record:
    """The message as it stands in its queue."""
    return Record(
        0, stored.body[_QUEUE_ID.size :], stored.message_format, stored.priority, stored.expires_at_ms,
        now_ms, True, stored.delivery_count, queue_id=queue.queue_id,
    )  # fmt: skip


def _comes_at_ms(due_at_ms: int, expires_at_ms: int) -> int:
    """What expires before it is due expires in its queue."""
    return min(due_at_ms, expires_at_ms) if expires_at_ms else due_at_ms
