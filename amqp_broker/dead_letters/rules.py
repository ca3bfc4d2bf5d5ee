"""The rules of one queue: how often a delivery may fail, when it is tried again, and where what ends goes.

    failed --put_off--> waits, elapsed time counts --> given back to its place
    undeliverable-here --excluded--> every link said so, for a while --> the dead letters
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker import counts, message_events
from amqp_broker.configuration import DEAD_LETTERS, QueuePolicy
from amqp_broker.dead_letters.moving import DeadLetter
from amqp_broker.endings import EXPIRED, UNDELIVERABLE, Departed, Endings, Letter, as_it_is
from amqp_broker.operations.posting import Leaving, retire_verbs
from amqp_broker.persistence import Record
from amqp_broker.queue import Queue, QueueLimits
from amqp_broker.waiting import NEVER, Waiting

if TYPE_CHECKING:
    from amqp_broker.dead_letters.dead_letters import DeadLetters

DOUBLINGS_MAX: Final = 64  # beyond it any factor but 1 has reached any ceiling


class _Held:
    """Messages in memory that wait, by their offsets."""

    def __init__(self) -> None:
        self.waiting = Waiting()
        self._records: dict[int, Record] = {}

    def enter(self, record: Record, at_ms: int) -> None:
        """A message waits until then; one that waits already for the earlier of the two."""
        self._records[record.offset] = record
        self.waiting.enter(record.offset, at_ms)

    def take_due(self, now_ms: int) -> list[Record]:
        """Those whose time it is."""
        due = [self._records.pop(offset, None) for _, offset in self.waiting.take_due(now_ms)]
        return [record for record in due if record is not None]

    def clear(self) -> None:
        """Nothing waits any more."""
        self.waiting.clear()
        self._records.clear()


class QueueEndings(Endings):
    """Of a queue with an address, or a temporary one. One that is for dead letters has no address to send on
    to.
    """

    def __init__(
        self, letters: DeadLetters, queue: Queue, policy: QueuePolicy, *, is_for_dead_letters: bool
    ) -> None:
        super().__init__()
        self._letters = letters
        self._queue = queue
        self._sends_on = not is_for_dead_letters
        self.change(policy)
        self._delayed = _Held()
        self._refused = _Held()

    def change(self, policy: QueuePolicy) -> None:
        """What ends or fails from now on is judged by this policy."""
        self._policy = policy
        if self._sends_on:
            self.max_deliveries = policy.max_deliveries

    # What ends

    def make_ready(self) -> None:
        """Have the queue made to which what outcomes end goes."""
        if self._sends_on:
            self._letters.when_there(self._policy.dead_letter_address, _nothing)

    def letter(self, reason: str, text: str, departed: Sequence[Departed]) -> Letter | None:
        """What brings messages to the dead letters; None, they are gone, where they are dead already."""
        if not self._sends_on:
            return None
        policy = self._policy
        name = policy.dead_letter_address
        if reason == EXPIRED and policy.expiry_address:
            name = policy.expiry_address
        return DeadLetter(self._letters, self._queue, name, reason, text, departed)

    # What failed, and is tried again

    def put_off(self, record: Record) -> bool:
        """Whether the message waits before it is given back."""
        delay_ms = self.delay_ms(record.delivery_count)
        if delay_ms:
            self._queue.keep_in_sight((record,))
            self._enter(self._delayed, delay_ms, record)
        return delay_ms > 0

    def delay_ms(self, failures: int) -> int:
        """How long a message waits after so many failed deliveries."""
        policy = self._policy
        first = policy.redelivery_delay_ms
        if not first:
            return 0
        times: int = policy.redelivery_factor ** min(max(failures - 1, 0), DOUBLINGS_MAX)
        return min(first * times, policy.redelivery_delay_max_ms)

    def excluded(self, record: Record) -> None:
        """A link said undeliverable-here of a message: it waits for another link, for a while."""
        if self._sends_on:
            self._enter(self._refused, self._policy.undeliverable_wait_ms, record)

    def _enter(self, held: _Held, for_ms: int, record: Record) -> None:
        held.enter(record, self._letters.nodes.clock.now_ms() + for_ms)
        self._set_timer(held)

    def _set_timer(self, held: _Held) -> None:
        next_ms = held.waiting.next_ms()
        if next_ms < NEVER:
            wait_s = max(0, next_ms - self._letters.nodes.clock.now_ms()) / 1_000
            self._letters.nodes.timers.set(trio.current_time() + wait_s, self)

    def wake(self) -> None:
        """Some time is over: messages are given back, or are deliverable nowhere."""
        queue = self._queue
        if queue.deleted:
            self._delayed.clear()
            self._refused.clear()
            return
        now_ms = self._letters.nodes.clock.now_ms()
        back = self._delayed.take_due(now_ms)
        queue.end_in_sight(back)
        queue.give_back(back)
        # Two links may have said so within one look: each message once.
        due = {record.offset: record for record in self._refused.take_due(now_ms)}
        refused = [record for record in due.values() if queue.refused_somewhere(record)]
        there = queue.backlog.back
        nowhere = [each for each in refused if each.offset in there and queue.refused_everywhere(each)]
        for record in refused:
            if record not in nowhere:
                self._enter(self._refused, self._policy.undeliverable_wait_ms, record)
        if nowhere:
            self._bury(nowhere)
        if back:
            self._letters.nodes.pump(queue)
        for held in (self._delayed, self._refused):
            self._set_timer(held)

    def _bury(self, records: list[Record]) -> None:
        """Nobody who receives from the queue can have these."""
        queue, nodes = self._queue, self._letters.nodes
        queue.take_out(records)
        queue.retire(records, counts.UNDELIVERABLE)
        verbs = retire_verbs(queue.queue_id, records)
        if queue.events:
            offsets = [record.offset for record in records]
            verbs += message_events.dead(queue, offsets, UNDELIVERABLE, nodes.clock.now_ms())
        letter = self.letter(UNDELIVERABLE, "", [as_it_is(record) for record in records])
        nodes.leave(queue, Leaving(verbs, letter), letter)
        nodes.drained(queue)


def fill(letters: DeadLetters, queue: Queue, policy: QueuePolicy) -> None:
    """A queue was made: it gets its rules. One of dead letters stores everything, durable or not."""
    into = queue.name in letters.addresses
    queue.endings = QueueEndings(letters, queue, policy, is_for_dead_letters=into)
    queue.stores_all = queue.stores_all or (into and queue.persistent)
    _bound(letters, queue, policy)


def change(letters: DeadLetters, queue: Queue, policy: QueuePolicy) -> None:
    """The policy of a queue was changed by hand."""
    rules = queue.endings
    if isinstance(rules, QueueEndings):
        rules.change(policy)
    _bound(letters, queue, policy)


def _bound(letters: DeadLetters, queue: Queue, policy: QueuePolicy) -> None:
    """The queue that takes dead letters by default is never without bounds."""
    if queue.name == DEAD_LETTERS:
        limits = letters.nodes.config.limits
        queue.limits = QueueLimits(
            policy.max_messages or limits.dead_letter_messages,
            policy.max_bytes or limits.dead_letter_bytes,
            policy.max_volatile_bytes,
        )


def _nothing() -> None:
    """Nobody waits: what comes next stands behind it."""
