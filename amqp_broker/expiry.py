"""Messages whose time to live runs out while nobody receives (ttl, 3.2.1): found by time, in bounded steps.

    note --chunk of offsets, earliest expiry--> due --memory--> expired
                                                 +--disk: a page between two commits--> expired, noted again

A queue remembers the earliest expiry of each chunk of 4,096 offsets, so memory does not grow with what waits
on disk, and nothing at all as long as no message has a ttl. Messages that a consumer holds are not looked at:
they are noted again when they come back. That a queue has had messages with a ttl is stored with its node;
after a restart it is read through once, in the share of time that all readers have.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import trio

from amqp_broker.expiries import NEVER, Expiries
from amqp_broker.log import Log
from amqp_broker.operations.posting import Leaving
from amqp_broker.operations.settings import SettingsStep
from amqp_broker.persistence import NoSuchNode, Record, RecoveredNode, Store, Unit
from amqp_broker.persistence.questions import ReadResult

if TYPE_CHECKING:
    from amqp_broker.clock import BrokerClock
    from amqp_broker.configuration import BrokerConfig
    from amqp_broker.endings import Letter
    from amqp_broker.operations.writer import Writer
    from amqp_broker.page_turns import PageTurns
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Queues
    from amqp_broker.timers import Timers

SWEEP_EVERY_MS: Final = 1_000  # of one queue: how late a message may be found in memory
SWEEP_DISK_EVERY_MS: Final = 10_000  # of one chunk on disk: reading costs more than looking
SWEEP_CHUNKS: Final = 4  # of one queue in one step: two windows, some milliseconds
EXPIRES: Final = "expires"  # in the settings of a node: messages in it have had a ttl

assert SWEEP_EVERY_MS <= SWEEP_DISK_EVERY_MS, "memory is nearer than the disk"


class Nodes(Protocol):
    """What messages that expire are found in, and who is told of them."""

    config: BrokerConfig
    queues: Queues
    writer: Writer
    clock: BrokerClock
    timers: Timers
    turns: PageTurns

    def expire(self, queue: Queue, expired: list[Record], on_disk: Expiries | None = None) -> None:
        """The time to live of these ran out; the store may still give those that are `on_disk`."""

    def page_of(self, queue: Queue, store: Store, start: int, messages: int, size: int) -> ReadResult:
        """A page of messages, of large ones the head."""

    def lose(self, queue: Queue, page: ReadResult) -> None:
        """The store found messages of `queue` damaged."""


class Swept(Leaving):
    """Messages that expired on disk leave the store; until then a page may still have them."""

    def __init__(
        self, expiries: Expiries, records: list[Record], verbs: Unit, letter: Letter | None
    ) -> None:  # fmt: skip
        super().__init__(verbs, letter)
        self._expiries = expiries
        self._offsets = [record.offset for record in records]

    def stored(self) -> None:
        """No page has them any more."""
        super().stored()
        self._expiries.gone.difference_update(self._offsets)


class Reading:
    """One queue that has to be read for what is expired in it."""

    def __init__(self, sweep: ExpirySweep, queue: Queue) -> None:
        self._sweep = sweep
        self._queue = queue

    def read_page(self, store: Store) -> None:
        """Between two commits."""
        self._sweep.read(self._queue, store)


class ExpirySweep:
    """One for each broker."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._due: list[tuple[int, int, Queue]] = []
        self._serial = count()

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """After a start: what has had messages with a ttl is read through; in a log nothing expires."""
        by_id = {queue.queue_id: queue for queue in self._nodes.queues.queues()}
        for node in nodes:
            queue = by_id.get(node.queue_id)
            if queue is not None and not isinstance(queue, Log) and node.settings.get(EXPIRES):
                expiries = queue.may_expire(node.first_offset, node.next_offset)
                expiries.kept = True
                self.arm(queue, expiries)

    def arm(self, queue: Queue, expiries: Expiries) -> None:
        """Look at `queue` when something in it is due, and read what has to be read."""
        if not expiries.kept and queue.persistent:
            expiries.kept = True
            queue.settings = {**queue.settings, EXPIRES: True}
            self._nodes.writer.defer(SettingsStep(queue))
        if expiries.crowded():
            expiries.forget_below(queue.backlog.first_offset())
        if expiries.unread and not expiries.asked:
            expiries.asked = True
            self._nodes.turns.ask(Reading(self, queue))
        at_ms = max(expiries.next_ms(), expiries.swept_at_ms + SWEEP_EVERY_MS)
        if expiries.next_ms() < NEVER and at_ms < expiries.armed_ms:
            expiries.armed_ms = at_ms
            heappush(self._due, (at_ms, next(self._serial), queue))
            self._set_timer()

    def _set_timer(self) -> None:
        if self._due:
            wait_s = max(0, self._due[0][0] - self._nodes.clock.now_ms()) / 1000
            self._nodes.timers.set(trio.current_time() + wait_s, self)

    def wake(self) -> None:
        """Something may be due: one queue in each step, others have a turn in between."""
        now_ms = self._nodes.clock.now_ms()
        if self._due and self._due[0][0] <= now_ms:
            queue = heappop(self._due)[2]
            expiries = queue.expiries
            if expiries is not None and not queue.deleted:
                expiries.armed_ms = NEVER
                if self._sweep(queue, expiries, now_ms):
                    expiries.swept_at_ms = now_ms
                self.arm(queue, expiries)
        self._set_timer()

    def _sweep(self, queue: Queue, expiries: Expiries, now_ms: int) -> bool:
        """Take out what is expired in memory; whether that was all that is due."""
        backlog = queue.backlog
        expired: list[Record] = []
        chunk: tuple[int, int] | None = None
        for _ in range(SWEEP_CHUNKS):
            chunk = expiries.take_due(now_ms)
            if chunk is None:
                break
            first, end = chunk
            gone, stays = backlog.take_expired(first, end, now_ms)
            expired.extend(gone)
            if stays:
                expiries.note(first, stays)
            if 0 <= backlog.disk_from < end:
                expiries.unread.append((first, end))
        if expired:
            self._nodes.expire(queue, expired)
        return chunk is None

    def read(self, queue: Queue, store: Store) -> None:
        """A page of what has to be read; the store holds at least what the memory does not."""
        expiries = queue.expiries
        if expiries is None:
            return
        expiries.asked = False
        backlog = queue.backlog
        while expiries.unread:
            first, end = expiries.unread.popleft()
            first, end = max(first, backlog.disk_from), min(end, backlog.available_to)
            if backlog.disk_from >= 0 and first < end and self._nodes.queues.holds(queue):
                self._read_range(queue, expiries, store, first, end)
                break
        self.arm(queue, expiries)

    def _read_range(self, queue: Queue, expiries: Expiries, store: Store, first: int, end: int) -> None:
        limits = self._nodes.config.limits
        most, size = limits.retained_page_messages, limits.retained_page_bytes
        try:
            page = self._nodes.page_of(queue, store, first, most, size)
        except NoSuchNode:
            return
        queue.backlog.lose(len(page.quarantined))
        self._nodes.lose(queue, page)
        if first < page.next_offset < end:
            expiries.unread.appendleft((page.next_offset, end))
        now_ms = self._nodes.clock.now_ms()
        again_ms = now_ms + SWEEP_DISK_EVERY_MS
        expired: list[Record] = []
        for record in page.records:
            if record.offset >= end:
                break
            if not record.expires_at_ms or record.offset in expiries.gone:
                continue
            if record.offset in queue.backlog.ahead:  # a consumer has it, or it came back
                continue
            if record.expires_at_ms <= now_ms:
                expired.append(record)
            else:
                expiries.note(record.offset, max(record.expires_at_ms, again_ms))
        if expired:
            expiries.gone.update([record.offset for record in expired])
            queue.backlog.lose(len(expired))
            self._nodes.expire(queue, expired, expiries)
