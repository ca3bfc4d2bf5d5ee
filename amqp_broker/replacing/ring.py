"""Ring queues: so many messages wait, and a new one drops the oldest that does, in the commit of its posting.

    waiting   oldest ... newest | numbered by the group under way: the first of them go to links with credit
              dropped first     | then these, from the first that no link has asked for

What a consumer holds, or held and gave back, does not count, and is never dropped: a message comes back at
once, before what was posted earlier is judged, so that grouping would decide which one is the oldest. After a
start nobody knows who held what, and all that wait are equal. What waits for its time does not count either.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from amqp_broker.counts import REMOVED
from amqp_broker.judged_queue import ArrivalRule, JudgedQueue
from amqp_broker.message_events import dead
from amqp_broker.operations.posting import retire_verbs
from amqp_broker.persistence import Record, Store, Unit

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.configuration import QueuePolicy
    from amqp_broker.queue import Queue

DROPPED: Final = "dropped: the ring is full"


class Dropping:
    """What one posting brought, and what it dropped: messages that waited, and such as never will, which
    stood at `place` among those of the group.
    """

    __slots__ = ("brought", "never", "place", "told", "waited")

    def __init__(self) -> None:
        self.brought = 0
        self.waited: list[Record] = []
        self.never: list[Record] = []
        self.place = 0
        self.told = False


class Ring(ArrivalRule):
    """The rule of one queue: at most `most` wait."""

    def __init__(self, nodes: BrokerNodes, queue: JudgedQueue, most: int) -> None:
        self._nodes = nodes
        self._queue = queue
        self._most = most
        self._steps: list[Dropping] = []
        self._coming: list[Record] = []  # numbered by the group under way, and not dropped
        self._undone: set[int] = set()  # came back, and nobody has held them

    def begin(self) -> None:
        """Begin a step."""
        self._steps.append(Dropping())

    def numbered(self, records: Sequence[Record]) -> None:
        """Drop the oldest, as many as there are too many."""
        queue, step = self._queue, self._steps[-1]
        now = [record for record in records if not record.due_at_ms]
        step.brought = len(now)
        self._coming += now
        asked = sum([each.demand for each in queue.consumers if not each.browser and each.filter is None])
        held = self._held()
        excess = queue.backlog.available() - len(held) + len(self._coming) - asked - self._most
        if excess <= 0:
            return
        self._nodes.writer.lookup(partial(self._take, step, excess, held))
        excess -= len(step.waited)
        if excess > 0:
            step.place = asked
            step.never = self._coming[asked : asked + excess]
            del self._coming[asked : asked + excess]
            queue.never.update([record.offset for record in step.never])

    def _held(self) -> set[int]:
        """The offsets of those that wait and were held."""
        backlog = self._queue.backlog
        if not backlog.back:
            self._undone.clear()
            return set()
        if self._undone:
            self._undone &= backlog.back
        return backlog.back - backlog.ahead - self._undone

    def _take(self, step: Dropping, count: int, held: set[int], store: Store) -> None:
        """The oldest that wait, at most so many, in memory or on disk, but for those that were held."""
        queue, nodes, start = self._queue, self._nodes, 0
        while len(step.waited) < count:
            if queue.backlog.loaded() <= len(held) and queue.backlog.disk_from >= 0:
                nodes.page_in(queue, store)
            wanted = count - len(step.waited)
            page, next_offset = nodes.page_at(queue, store, start, wanted + len(held))
            found = [record for record in page if record.offset not in held][:wanted]
            queue.take_out(found)
            step.waited += found
            if next_offset <= start:
                return
            start = next_offset

    def verbs(self) -> Unit:
        """What was dropped leaves the store."""
        dropped: list[Record] = []
        for step in self._steps:
            if not step.told:
                step.told = True
                dropped += [*step.waited, *step.never]
        return retire_verbs(self._queue.queue_id, dropped)

    def events(self, now_ms: int) -> Unit:
        """The journal tells of it, behind the coming of those that came with it."""
        step = self._steps[-1]
        offsets = [record.offset for record in (*step.waited, *step.never)]
        return dead(self._queue, offsets, DROPPED, now_ms) if offsets else []

    def undo(self) -> None:
        """They wait again."""
        queue, step = self._queue, self._steps.pop()
        if step.never:
            queue.never.difference_update([record.offset for record in step.never])
            self._coming[step.place : step.place] = step.never
        if step.brought:
            del self._coming[-step.brought :]
        if step.waited and not queue.deleted:
            self._undone.update([record.offset for record in step.waited])
            queue.take_back(step.waited)
            self._nodes.writer.read(self._look_again)

    def _look_again(self, _store: Store) -> None:
        """Somebody may have asked for them meanwhile."""
        if not self._queue.deleted:
            self._nodes.pump(self._queue)

    def stored(self) -> None:
        """They are gone."""
        queue = self._queue
        steps, self._steps = self._steps, []
        self._coming.clear()
        waited = [record for step in steps for record in step.waited]
        queue.dropped += len(waited) + sum([len(step.never) for step in steps])
        if waited:
            queue.retire(waited, REMOVED)
            queue.backlog.gone_ahead(waited)
            if queue.scarce:
                self._nodes.writer.read(self._make_room)

    def _make_room(self, _store: Store) -> None:
        """Senders may go on."""
        if not self._queue.deleted:
            self._nodes.drained(self._queue)


def fill(nodes: BrokerNodes, queue: Queue, policy: QueuePolicy) -> None:
    """A queue was made."""
    if policy.ring_messages and isinstance(queue, JudgedQueue):
        queue.rules.append(Ring(nodes, queue, policy.ring_messages))
