"""What a transaction has the store do: its postings, each with room kept in its queue, and its discharge.

post --> TransactionalPosting (reserved, invisible) --discharge--> DischargeJob: one unit of one commit
                                                                   Post ... Retire, Return ... Discharged
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from amqp_broker.coordinator import Effect, Transaction, TransactionError, Work
from amqp_broker.frames import Modified
from amqp_broker.jobs import Nodes, post_verbs, retire_verbs
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.message_events import Origin, put, settled
from amqp_broker.persistence import Discharged, Record, Return, Unit
from amqp_broker.queue import Consumer, Queue, fresh
from amqp_broker.records import annotated


class TransactionalPosting:
    """A run of messages to one queue that is there when its transaction is committed, and never before. Its
    room in the queue was reserved.
    """

    __slots__ = ("_nodes", "_numbered", "operations", "origin", "queue", "records", "size_bytes")

    def __init__(self, queue: Queue, records: Sequence[Record], nodes: Nodes) -> None:
        self._nodes = nodes
        self._numbered = False
        self.queue = queue
        self.records = records
        self.origin: Origin | None = None  # of a queue with events
        self.operations = len(records)
        self.size_bytes = sum([len(record.body) for record in records])

    def verbs(self) -> Unit:
        """Number the messages and store them; what has outlived its ttl by now is left out, but in a log
        nothing expires.
        """
        queue = self.queue
        self._numbered = True
        queue.pending_posts += 1
        now_ms = self._nodes.wall_clock_ms()
        for record in self.records:
            if record.expires_at_ms and not queue.archives:
                self.records = fresh(self.records, now_ms)
                break
        queue.number(self.records)
        unit = post_verbs(queue, self.records, sum([record.durable for record in self.records]))
        origin = self.origin
        if origin is not None:
            unit.extend(put(queue, self.records, origin.container, now_ms, origin.txn_id, origin.places))
        return unit

    def withdraw(self) -> None:
        """Nothing was stored: the offsets are free again."""
        if self._numbered:
            self._end_numbering()
            if self.records:
                self.queue.next_offset = self.records[0].offset

    def _end_numbering(self) -> None:
        if self._numbered:
            self._numbered = False
            self.queue.pending_posts -= 1

    def committed(self) -> None:
        """Make the messages available in the room that was kept for them."""
        self._end_numbering()
        self.queue.unreserve(self.operations, self.size_bytes)
        if not self.queue.deleted:
            self.queue.make_available(self.records, sum([len(record.body) for record in self.records]))

    def rolled_back(self) -> None:
        """The messages never were; their room is free."""
        self._end_numbering()
        self.queue.unreserve(self.operations, self.size_bytes)


def stored_by(work: Work) -> Unit:
    """What the commit stores for messages that the transaction has acquired or retired.

    Nothing in memory changes yet: the commit may fail, and then nothing has happened.
    """
    queue_id = work.holder.queue.queue_id
    if work.effect is Effect.RETIRE:
        return retire_verbs(queue_id, records_of(work))
    outcome = work.outcome
    if work.effect is not Effect.RETURN or type(outcome) is not Modified:
        return []
    failed = 1 if outcome.delivery_failed else 0
    if not failed and not outcome.message_annotations:
        return []
    unit: Unit = []
    for record in records_of(work):
        if record.durable:
            annotations = record.annotations
            if outcome.message_annotations:
                annotations = annotated(record, outcome.message_annotations)
            unit.append(Return(queue_id, record.offset, record.delivery_count + failed, annotations))
    return unit


def events_of(work: Work, txn_id: bytes, now_ms: int) -> Unit:
    """What the event log tells of it, in the commit."""
    if work.effect not in (Effect.RETIRE, Effect.RETURN):
        return []
    consumer: Consumer = work.holder
    container = consumer.connection.container_id
    return settled(consumer.queue, records_of(work), work.outcome, container, now_ms, txn_id)


def records_of(work: Work) -> list[Record]:
    """The messages of a work: those of its deliveries, or, sent settled, the items themselves."""
    return [item if isinstance(item, Record) else item.message for item in work.items]


class DischargeOwner(Protocol):
    """The connection whose controller discharged."""

    def discharged(self, job: DischargeJob, error: Exception | None) -> None:
        """The commit returned, or why nothing of the transaction was stored."""


class DischargeJob:
    """The commit of one transaction: everything in it is one unit, and its outcome is part of that."""

    __slots__ = ("_nodes", "_owner", "_refused", "delivery", "link", "transaction")

    def __init__(
        self,
        owner: DischargeOwner,
        nodes: Nodes,
        transaction: Transaction,
        link: ReceiverLink,
        delivery: Delivery,
    ) -> None:
        self._owner = owner
        self._nodes = nodes
        self.transaction = transaction
        self.link = link
        self.delivery = delivery
        self._refused: TransactionError | None = None

    def unit(self) -> Unit:
        transaction = self.transaction
        self._refused = None
        try:
            unit: Unit = transaction.verbs()
        except TransactionError as error:  # something that was promised provisionally does not hold any more
            transaction.withdraw()
            self._refused = error
            return []
        for work in transaction.works(True):
            unit.extend(stored_by(work))
            if work.holder.queue.events:
                unit.extend(events_of(work, transaction.txn_id, self._nodes.wall_clock_ms()))
        unit.append(Discharged(transaction.txn_id, self._nodes.wall_clock_ms()))
        return unit

    def withdraw(self) -> None:
        """Nothing was stored: the numbers that the postings were given are free again."""
        self.transaction.withdraw()

    def keeps(self) -> bool:
        """The controller is told that there is no room, and the transaction is rolled back."""
        return False

    def finished(self, error: Exception | None) -> None:
        self._owner.discharged(self, error or self._refused)
