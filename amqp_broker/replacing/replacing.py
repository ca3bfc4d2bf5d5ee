"""A queue in which new messages put older ones out, in the commit of their posting: last values and rings.

    waiting   oldest ... newest | numbered by the group under way: the first of them go to links with credit
              put out first     | then these, from the first that no link has asked for

For each message, in order: the one of its key that waits is replaced (`keys`), then what is too much for the
ring is dropped (`ring`). What a consumer holds is left to it; if a newer value of its key comes meanwhile, it
is gone when it comes back, as replaced. That is judged when a group is made (`ComingBack`): a newer one
that was posted before the outcome counts, whatever shared its group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from amqp_broker.counts import REMOVED
from amqp_broker.judged_queue import ArrivalRule, JudgedQueue
from amqp_broker.links import Holdings
from amqp_broker.message_events import dead
from amqp_broker.operations.operation import Operation
from amqp_broker.operations.posting import Leaving, retire_verbs
from amqp_broker.persistence import Record, Store, Unit
from amqp_broker.replacing.keys import Change, Keys, key_of
from amqp_broker.replacing.ring import Ring

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

DROPPED: Final = "dropped: the ring is full"
REPLACED: Final = "replaced: a newer value of its key came"
READ_AT_ONCE: Final = 4_096  # messages, when a start looks for their keys: between two commits


class Step:
    """What one posting brought, and what it put out: messages that waited (`out`), such as were coming back
    (`back`) by the group under way, and such as never will wait, each with its place among those that were
    coming then. `passed_by` are older values that links have asked for.
    """

    __slots__ = (
        "back", "brought", "change", "dropped", "held", "never", "out", "passed_by", "replaced", "told",
    )  # fmt: skip

    def __init__(self) -> None:
        self.brought = 0
        self.out: list[Record] = []
        self.back: list[Record] = []
        self.never: list[tuple[int, Record]] = []
        self.dropped: list[int] = []  # offsets of all these
        self.replaced: list[int] = []
        self.held: set[int] = set()  # consumers had these before, so that a ring does not count them
        self.passed_by: list[int] = []
        self.change: Change = []
        self.told = False

    def records(self) -> list[Record]:
        """What it put out."""
        return [*self.out, *self.back, *[record for _, record in self.never]]


class ComingBack(Operation):
    """A message with a key, which a consumer had, waits again; an older value leaves instead."""

    __slots__ = ("_gone", "_record", "_rule")

    def __init__(self, rule: Replacing, record: Record) -> None:
        self._rule = rule
        self._record = record
        self._gone = False

    def prepare(self, now_ms: int) -> Unit:
        """Judge whether it is an older one by now."""
        self._gone = self._rule.overtaken(self._record.offset)
        if self._gone:
            return self._rule.gone_verbs([self._record], now_ms)
        self._rule.comes_back(self._record)
        return []

    def undo(self) -> None:
        """It is not decided."""
        self._rule.came_back(self._record.offset)

    def stored(self) -> None:
        """It waits, unless what came behind it has replaced it; or it is gone."""
        if self._gone:
            self._rule.gone([self._record])
        elif self._rule.came_back(self._record.offset):
            self._rule.wait_again([self._record])

    def refused(self, error: Exception) -> None:
        """A fault of the broker: it waits."""
        self._rule.wait_again([self._record])

    def waits_for_space(self) -> bool:
        """What has left waits for room to be forgotten."""
        return True


class Overtaken(Leaving):
    """Older values leave the store, which were asked for in vain."""

    __slots__ = ("_queue", "_records")

    def __init__(self, queue: JudgedQueue, records: list[Record], verbs: Unit) -> None:
        super().__init__(verbs)
        self._queue = queue
        self._records = records

    def stored(self) -> None:
        """No page has them any more."""
        super().stored()
        self._queue.backlog.gone_ahead(self._records)


class Replacing(ArrivalRule):
    """The rule of one queue: `ring` bounds what waits, and of each value of the application-property `key`
    the last message waits; None, "" where there is no such rule.
    """

    def __init__(self, nodes: BrokerNodes, queue: JudgedQueue, ring: Ring | None, key: str) -> None:
        self._nodes = nodes
        self._queue = queue
        self._ring = ring
        self._name = key
        self._names = {key.encode(): key}
        self._kept = Holdings()
        self._steps: list[Step] = []
        self._coming: list[Record] = []  # numbered by the group under way, and not put out
        self._passed_by: list[int] = []
        self._looks = False  # at these, at the next read
        self._puts_back = False
        self._back: dict[int, Record] = {}  # what comes back by the group under way
        self._given: set[int] = set()  # of both, what links have asked for
        self.keys = Keys()
        self.any_older = False  # among what the store had at the start

    # The judgement

    def begin(self) -> None:
        """Begin a step."""
        self._steps.append(Step())

    def numbered(self, records: Sequence[Record]) -> None:
        """Put out what these replace, and what there is too much."""
        step = self._steps[-1]
        now = [record for record in records if not record.due_at_ms]
        asked = self._queue.asked()
        if not self._name:
            self._come(step, now, asked)
            return
        for record in now:
            key = key_of(record, self._name, self._names)
            if key:
                before = self.keys.came(record.offset, key, step.change)
                if before is not None:
                    self._replace(step, before)
            if len(self._given) < asked:
                self._given.add(record.offset)
            self._come(step, [record], asked - len(self._given & self._back.keys()))

    def _come(self, step: Step, records: list[Record], asked: int) -> None:
        self._coming += records
        step.brought += len(records)
        if self._ring is None:
            return
        self._ring.count(self._coming, asked)
        if self._ring.too_much():
            self._nodes.writer.lookup(partial(self._drop, step))
            while asked < len(self._coming) and self._ring.drops(self._coming, asked):
                step.dropped.append(self._never(step, asked))

    def _drop(self, step: Step, store: Store) -> None:
        assert self._ring is not None, "what is dropped is too much for a ring"
        dropped = self._ring.take(store)
        step.out += dropped
        step.dropped += [record.offset for record in dropped]

    def _replace(self, step: Step, before: int) -> None:
        """An older value is gone, wherever it waits; one that somebody holds, or will, is left alone."""
        if before in self._given:
            step.passed_by.append(before)
            return
        if before in self._back:
            step.back.append(self._back.pop(before))
            step.replaced.append(before)
            return
        place = bisect_left(self._coming, before, key=_offset)
        if place < len(self._coming) and self._coming[place].offset == before:
            step.replaced.append(self._never(step, place))
        else:
            self._nodes.writer.lookup(partial(self._take, step, before))

    def _take(self, step: Step, offset: int, store: Store) -> None:
        found = self._waiting(offset, store)
        if found and self._ring is not None and offset in self._ring.held_ones():
            step.held.add(offset)
        self._queue.take_out(found)
        step.out += found
        step.replaced += [record.offset for record in found]

    def _waiting(self, offset: int, store: Store) -> list[Record]:
        """The message of this offset, in memory or on disk, if it waits."""
        found, _ = self._nodes.page_at(self._queue, store, offset, 1)
        return [record for record in found if record.offset == offset]

    def _never(self, step: Step, place: int) -> int:
        record = self._coming.pop(place)
        step.never.append((place, record))
        self._queue.never.add(record.offset)
        return record.offset

    def verbs(self) -> Unit:
        """What was put out leaves the store."""
        gone: list[Record] = []
        for step in self._steps:
            if not step.told:
                step.told = True
                gone += step.records()
        return retire_verbs(self._queue.queue_id, gone)

    def events(self, now_ms: int) -> Unit:
        """The journal tells of it, behind the coming of those that came with it."""
        step = self._steps[-1]
        unit: Unit = []
        for offsets, why in ((step.replaced, REPLACED), (step.dropped, DROPPED)):
            unit += dead(self._queue, sorted(offsets), why, now_ms)
        return unit

    def undo(self) -> None:
        """They wait again."""
        queue, step = self._queue, self._steps.pop()
        self.keys.undo(step.change)
        for place, record in reversed(step.never):
            queue.never.discard(record.offset)
            self._coming.insert(place, record)
        if step.brought:
            self._given.difference_update([record.offset for record in self._coming[-step.brought :]])
            del self._coming[-step.brought :]
        self._back.update({record.offset: record for record in step.back})
        if step.out and not queue.deleted:
            if self._ring is not None:
                self._ring.undone([record for record in step.out if record.offset not in step.held])
            self._put_back(step.out)
            self._nodes.writer.read(self._look_again)

    def _put_back(self, records: list[Record]) -> None:
        """They wait, in their old places."""
        self._puts_back = True
        self._queue.take_back(records)
        self._puts_back = False

    def _look_again(self, _store: Store) -> None:
        """Somebody may have asked for them meanwhile."""
        if not self._queue.deleted:
            self._nodes.pump(self._queue)

    def stored(self) -> None:
        """They are gone."""
        queue = self._queue
        steps, self._steps = self._steps, []
        self._coming.clear()
        self._given &= self._back.keys()
        for step in steps:
            queue.dropped += len(step.dropped)
            queue.replaced += len(step.replaced)
            self._passed_by += step.passed_by
            for _, record in step.never:
                self.keys.left(record.offset)
        out = [record for step in steps for record in (*step.out, *step.back)]
        if out:
            queue.retire(out, REMOVED)
            queue.backlog.gone_ahead(out)
            if queue.scarce:
                self._nodes.writer.read(self._make_room)
        if self._passed_by:
            self._look()
        self._count()

    def _make_room(self, _store: Store) -> None:
        """Senders may go on."""
        if not self._queue.deleted:
            self._nodes.drained(self._queue)

    # Older values

    def overtaken(self, offset: int) -> bool:
        """Whether a newer value of its key has come."""
        return self.keys.overtaken(offset)

    def takes_back(self, record: Record) -> bool:
        """What has a key waits when it is judged."""
        if self._puts_back or record.offset not in self.keys:
            return False
        self._nodes.writer.submit(ComingBack(self, record))
        return True

    def comes_back(self, record: Record) -> None:
        """It will wait again, unless something behind it replaces it."""
        self._back[record.offset] = record
        if len(self._given) < self._queue.asked():
            self._given.add(record.offset)

    def came_back(self, offset: int) -> bool:
        """It does, or it is undone; whether nothing has replaced it."""
        self._given.discard(offset)
        return self._back.pop(offset, None) is not None

    def wait_again(self, records: list[Record]) -> None:
        """These came back, and nothing has replaced them."""
        if not self._queue.deleted:
            self._put_back(records)
            self._nodes.pump(self._queue)

    def gone_verbs(self, records: list[Record], now_ms: int) -> Unit:
        """Older values leave the store."""
        queue = self._queue
        verbs = retire_verbs(queue.queue_id, records)
        if queue.events:
            verbs += dead(queue, sorted([record.offset for record in records]), REPLACED, now_ms)
        return verbs

    def gone(self, records: list[Record]) -> None:
        """They have left."""
        queue = self._queue
        if not queue.deleted:
            queue.replaced += len(records)
            queue.retire(records, REMOVED)
            self._nodes.drained(queue)

    def _look(self) -> None:
        if not self._looks:
            self._looks = True
            self._nodes.writer.read(self._let_go)

    def _let_go(self, store: Store) -> None:
        """They are gone, if nobody got them."""
        self._looks = False
        queue = self._queue
        passed_by, self._passed_by = self._passed_by, []
        found: list[Record] = []
        for offset in passed_by if not queue.deleted else ():
            if self.keys.overtaken(offset):
                found += self._waiting(offset, store)
        self._leave(found)

    def _leave(self, records: list[Record]) -> None:
        """Older values, which wait, leave."""
        if records:
            queue = self._queue
            queue.take_out(records)
            verbs = self.gone_verbs(records, self._nodes.clock.now_ms())
            self.gone(records)
            if verbs:
                self._nodes.writer.submit(Overtaken(queue, records, verbs))

    # The keys

    def looks_at_withheld(self) -> bool:
        """What is held has its key."""
        return bool(self._name)

    def withheld(self, records: Sequence[Record]) -> None:
        """The keys of what consumers still hold after a restart: newer values overtake it as before."""
        if self._name:
            self._know(records)

    def take_up(self, start: int, store: Store) -> int:
        """Read the keys of what the store has from offset `start` on; where the next ones are, -1: all are
        read.
        """
        found, next_offset = self._nodes.page_at(self._queue, store, start, READ_AT_ONCE)
        self._know(found)
        return next_offset if start < next_offset < self._queue.backlog.available_to else -1

    def _know(self, records: Sequence[Record]) -> None:
        for record in records:
            key = key_of(record, self._name, self._names)
            if key:
                self.any_older |= self.keys.found(record.offset, key)
        self._count()

    def clean_up(self, start: int, store: Store) -> int:
        """As `take_up`, once all keys are known: older values leave. They were held when the broker was
        killed, or came when the queue had no keys yet.
        """
        found, next_offset = self._nodes.page_at(self._queue, store, start, READ_AT_ONCE)
        self._leave([record for record in found if self.keys.overtaken(record.offset)])
        return next_offset if start < next_offset < self._queue.backlog.available_to else -1

    def retired(self, records: Sequence[Record]) -> None:
        """These have left the queue."""
        if self._name:
            for record in records:
                self.keys.left(record.offset)
            self._count()

    def _count(self) -> None:
        more = self.keys.octets - self._kept.used_bytes
        if more > 0:
            self._kept.add(self._nodes.memory.own, more)
        elif more:
            self._kept.remove(-more)

    def kept_bytes(self) -> int:
        """Of the keys."""
        return self._kept.used_bytes

    def forget(self) -> None:
        """The queue is gone."""
        self.keys.clear()
        self._back.clear()
        self._kept.clear()


def _offset(record: Record) -> int:
    return record.offset
