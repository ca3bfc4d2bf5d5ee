"""Where the ids of durable messages are kept: a node of the store beside the queues, one for all of them.

    posted --> its id is posted here in the same commit; what its window forgets leaves in it, too
    start  --> all of it is read, before anybody is served: as many as the windows may have

An id is stored as the body of a record, behind the id of its queue, with the time of its posting, so that the
store needs nothing of its own for it. What only memory has of a message, its id is in memory only, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from amqp_broker.duplicates.seen import VOLATILE, Change, Seen, Window, key_of, octets_of
from amqp_broker.frames import Error
from amqp_broker.judged_queue import NOWHERE, ArrivalRule, JudgedQueue
from amqp_broker.links import Holdings
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import NotYet, Refused
from amqp_broker.operations.posting import Leaving, Step, retire_verbs
from amqp_broker.persistence import CreateNode, Post, Record, RecoveredNode, Unit
from amqp_broker.persistence.questions import PageOf

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.configuration import QueuePolicy
    from amqp_broker.queue import Queue

NODE_NAME: Final = "$seen/message-ids"  # no address
NODE_KIND: Final = "seen"
PAGE_MESSAGES: Final = 4_096
PAGE_BYTES: Final = 1 << 20

_QUEUE_ID: Final = struct.Struct("<q")  # before each id


class Duplicates:
    """One for each broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self.node_id = 0
        self._asked = False  # to make the node
        self._recovered = False
        self._end = 0  # of what was stored before the start
        self._next = 0
        self._rules: dict[int, WindowRule] = {}
        self._log = logger("duplicates")

    # The node

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up the node, or have it made if a queue needs it."""
        self._recovered = True
        for node in nodes:
            if node.kind == NODE_KIND:
                self.node_id, self._next = node.queue_id, node.next_offset
                self._end = node.next_offset if node.message_count else 0
        if self._rules and not self.node_id:
            self._make()

    async def read(self) -> None:
        """Read what the windows knew; what is for no window any more leaves."""
        gone: list[Record] = []
        at = 0
        while at < self._end:
            page = await self.nodes.writer.ask(PageOf(self.node_id, at, PAGE_MESSAGES, PAGE_BYTES))
            for lost in page.quarantined:
                self._log.error("message_id.lost", offset=lost.offset, reason=lost.reason)
            for record in page.records:
                rule = self._rules.get(_QUEUE_ID.unpack_from(record.body)[0])
                if rule is None:
                    gone.append(record)
                else:
                    rule.take_up(record.body[_QUEUE_ID.size :], record.enqueued_at_ms, record.offset)
            if page.next_offset <= at:
                break
            at = page.next_offset
        if gone:
            self.nodes.writer.submit(Leaving(retire_verbs(self.node_id, gone)))

    def _make(self) -> None:
        if not self._asked:
            self._asked = True
            verb = CreateNode(NODE_NAME, NODE_KIND)
            self.nodes.writer.submit(Step([verb], partial(self._made, verb)))

    def check_ready(self) -> None:
        """Whether ids can be stored. Raises NotYet: the node is being made, or there was no room."""
        if not self.node_id:
            self._make()
            description = "the place where message-ids are kept could not be made"
            raise NotYet(Refused(Error(condition="amqp:resource-limit-exceeded", description=description)))

    def _made(self, verb: CreateNode, error: Exception | None) -> None:
        self._asked = False
        if error is None:
            self.node_id = verb.queue_id

    def next_offset(self) -> int:
        """The next number; one that nobody uses is never used again."""
        self._next += 1
        return self._next - 1

    def post(self, seen: Sequence[tuple[Seen, int]]) -> Unit:
        """The verbs that store ids, each behind the id of its queue."""
        records = [
            Record(each.offset, _QUEUE_ID.pack(queue_id) + each.key, 0, 4, 0, each.at_ms, True)
            for each, queue_id in seen if each.offset != VOLATILE
        ]  # fmt: skip
        return [Post(self.node_id, records)] if records else []

    def retire(self, seen: Iterable[Seen]) -> Unit:
        """The verbs by which stored ids leave."""
        return retire_verbs(self.node_id, [_stored(each) for each in seen if each.offset != VOLATILE])

    # The queues

    def add(self, queue: JudgedQueue, policy: QueuePolicy) -> None:
        """A queue was made that wants it."""
        window = Window(policy.duplicate_window_ms, policy.max_duplicate_ids)
        rule = self._rules[queue.queue_id] = WindowRule(self, queue, window)
        queue.rules.append(rule)
        if self._recovered and not self.node_id:
            self._make()

    def drop(self, queue: JudgedQueue, seen: Sequence[Seen]) -> None:
        """A queue is gone: its ids leave."""
        self._rules.pop(queue.queue_id, None)
        verbs = self.retire(seen)
        if verbs:
            self.nodes.writer.submit(Leaving(verbs))


class WindowRule(ArrivalRule):
    """What is no duplicate comes, and its id is remembered."""

    def __init__(self, duplicates: Duplicates, queue: JudgedQueue, window: Window) -> None:
        self._duplicates = duplicates
        self._queue = queue
        self._kept = Holdings()
        self._changes: list[Change] = []
        self._unsaid: list[Change] = []  # of which the verbs have not been asked for
        self.window = window

    def take_up(self, key: bytes, at_ms: int, offset: int) -> None:
        """An id that the store has."""
        seen = Seen(key, at_ms, offset)
        self.window.remember(seen, Change())
        self._keep([seen], [])

    def _keep(self, more: Sequence[Seen], less: Sequence[Seen]) -> None:
        """Count what is kept in memory from now on; what a store in memory has of them, too."""
        nodes = self._duplicates.nodes
        in_memory = nodes.config.memory
        self._kept.add(nodes.memory.own, octets_of(more, in_memory))
        self._kept.remove(octets_of(less, in_memory))

    def begin(self) -> None:
        """Begin a change."""
        change = Change()
        self._changes.append(change)
        self._unsaid.append(change)

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Without those whose ids the window knows; the others' ids are remembered. Raises NotYet where there
        is no place for ids yet: what the broker moves needs none.
        """
        self._duplicates.check_ready()
        now_ms = self._duplicates.nodes.clock.now_ms()
        window, change = self.window, self._changes[-1]
        there: list[Record] = []
        for record in records:
            key = key_of(record.body)
            if key and window.knows(key, now_ms):
                record.offset = NOWHERE
                continue
            there.append(record)
            if key:
                offset = self._duplicates.next_offset() if record.durable else VOLATILE
                window.remember(Seen(key, now_ms, offset), change)
        window.forget_old(now_ms, change)
        return there

    def verbs(self) -> Unit:
        """The ids of the last postings are stored; those that were forgotten leave."""
        changes, self._unsaid = self._unsaid, []
        queue_id = self._queue.queue_id
        remembered = [(seen, queue_id) for change in changes for seen in change.remembered]
        unit = self._duplicates.post(remembered)
        return [*unit, *self._duplicates.retire([seen for change in changes for seen in change.forgotten])]

    def undo(self) -> None:
        """The window knows what it knew before."""
        change = self._changes.pop()
        if self._unsaid and self._unsaid[-1] is change:
            self._unsaid.pop()
        self.window.undo(change)

    def stored(self) -> None:
        """What they changed holds."""
        changes, self._changes = self._changes, []
        for change in changes:
            self._keep(change.remembered, change.forgotten)

    def kept_bytes(self) -> int:
        """Of the ids."""
        return self._kept.used_bytes

    def forget(self) -> None:
        """The queue is gone."""
        self._kept.clear()
        self._duplicates.drop(self._queue, self.window.clear())


def fill(duplicates: Duplicates, queue: Queue, policy: QueuePolicy) -> None:
    """A queue was made."""
    if policy.duplicate_window_ms and isinstance(queue, JudgedQueue):
        duplicates.add(queue, policy)


def _stored(seen: Seen) -> Record:
    return Record(seen.offset, b"", durable=True)
