"""The dead letters of one broker: where they go, how many there may be, and the way back.

Which queue a message goes to says the `[[queue]]` of the one that it leaves, by default `dead-letters`. From
such a queue nothing goes on to another: what is rejected there is gone, and nothing fails too often.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs

from amqp_broker import counts, message_events
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import Operation
from amqp_broker.operations.posting import Leaving, retire_verbs
from amqp_broker.persistence import CreateNode, Record, Store, Unit, octets_of
from amqp_broker.queue import Queue
from amqp_broker.queues import Queues

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


@attrs.define
class DeadLetterCounts:
    """Messages since the start: moved for each reason, and dropped since there were too many."""

    moved: dict[str, int] = attrs.field(factory=dict)
    dropped: int = 0


class Making(Operation):
    """A queue of dead letters is made, unless it was there before. `then` is called when it is there, or
    can't be made: what waits for it is refused then, and waits no more.
    """

    def __init__(self, queues: Queues, name: str, then: Callable[[], None]) -> None:
        self._queues = queues
        self._name = name
        self._then = then
        self._verb: CreateNode | None = None

    def prepare(self, now_ms: int) -> Unit:
        """The verb, if the queue is not there."""
        self._verb = None
        if self._queues.find(self._name) is not None:
            return []
        self._verb = self._queues.creation(self._name)
        return [self._verb]

    def stored(self) -> None:
        """The queue is there."""
        if self._verb is not None:
            self._queues.created(self._verb)
        self._then()

    def refused(self, error: Exception) -> None:
        """A link made it in the same group; else it is made when the next message has to go there."""
        self._then()

    def waits_for_space(self) -> bool:
        """What has to go there waits behind it, and would come back to its receivers meanwhile."""
        return True


class DeadLetters:
    """One for each broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self.addresses = nodes.config.dead_letter_addresses()
        self.counts = DeadLetterCounts()
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # for queues that are being made
        self._log = logger("dead_letters")

    def why_needed(self, queue: Queue) -> str:
        """Why a queue can't be deleted by hand: it has to be there for dead letters. Empty: it can."""
        return "dead letters go to it" if queue.name in self.addresses else ""

    # The way there

    def when_there(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` as soon as the queue of this name is there: now, or when it is made, or can't be."""
        if name not in self._waiting and self.nodes.queues.find(name) is not None:
            then()
            return
        waiting = self._waiting.setdefault(name, [])
        waiting.append(then)
        self.nodes.writer.submit(Making(self.nodes.queues, name, partial(self._made, name)))

    def _made(self, name: str) -> None:
        for then in self._waiting.pop(name, ()):
            then()

    def arrived(self, queue: Queue, target: Queue, reason: str, count: int) -> None:
        """Messages of `queue` are among the dead letters of `target`."""
        moved = self.counts.moved
        moved[reason] = moved.get(reason, 0) + count
        queue.counts[counts.DEAD_LETTERS] += count
        self._log.warning(
            "messages.dead", queue=queue.name, count=count, reason=reason, address=target.name
        )
        self._trim(target)

    def _trim(self, queue: Queue) -> None:
        """Drop the oldest that nobody holds, as long as there are more than its bounds allow."""
        limits = queue.limits
        count, size = queue.message_count, queue.byte_count
        dropped: list[Record] = []
        while count > limits.max_messages or size > limits.max_bytes:
            run = queue.backlog.take(1)
            if not run:
                if queue.backlog.disk_from >= 0:
                    self.nodes.load(queue)
                    self.nodes.writer.read(partial(self._trim_on, queue))
                break
            dropped += run
            count -= 1
            size -= octets_of(run)
        if dropped:
            self._drop(queue, dropped)

    def _trim_on(self, queue: Queue, _store: Store) -> None:
        """The oldest ones were read."""
        if self.nodes.queues.holds(queue) and queue.backlog.loaded():
            self._trim(queue)

    def _drop(self, queue: Queue, dropped: list[Record]) -> None:
        queue.retire(dropped, counts.REMOVED)
        verbs = retire_verbs(queue.queue_id, dropped)
        if queue.events:
            offsets = [record.offset for record in dropped]
            verbs += message_events.dead(queue, offsets, "dropped: too many", self.nodes.clock.now_ms())
        self.nodes.leave(queue, Leaving(verbs), None)
        self.counts.dropped += len(dropped)
        self._log.error("dead_letters.dropped", queue=queue.name, count=len(dropped), of=queue.message_count)
        self.nodes.drained(queue)
