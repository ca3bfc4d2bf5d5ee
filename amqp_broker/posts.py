"""What a client posts on one connection: from the transfers of its links to the nodes, and the answers.

Everything here runs in the turn of the connection's own task and waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.control_nodes import SETTLED_ERROR, control_post
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Accepted, DecodeError, Error, Rejected, TransactionalState
from amqp_broker.links import DeliveriesReceived, Delivery, ReceiverLink
from amqp_broker.operations.operation import error_of
from amqp_broker.operations.posting import Posting
from amqp_broker.persistence import Record
from amqp_broker.producers import Producer
from amqp_broker.queue import Queue
from amqp_broker.records import record_of, store_all
from amqp_broker.sequences.links import SequencedLinks

if TYPE_CHECKING:
    from amqp_broker.control_nodes import ControlNode
    from amqp_broker.coordinator import Transaction
    from amqp_broker.link_owner import Service
    from amqp_broker.services import Services
    from amqp_broker.transactions import Transactions

ACCEPTED: Final = Accepted()


def deleted_error(queue: Queue) -> Error:
    """Why a link of a queue that is gone ends."""
    return Error(condition="amqp:resource-deleted", description=f"queue {queue.name!r} was deleted")


class Posts:
    """Serves the receiving links of one connection. `task` is its owner, `services` what all connections
    share.
    """

    def __init__(self, task: Any, services: Services, transactions: Transactions) -> None:
        self._task = task
        self._services = services
        self._nodes = services.nodes
        self._transactions = transactions
        self.sequenced = SequencedLinks(task, self, services.nodes, services.sequences, transactions)
        self.producers: dict[ReceiverLink, Producer] = {}
        self.services: dict[ReceiverLink, Service] = {}

    def holds(self, link: object) -> bool:
        """Whether `link` is attached here."""
        return link in self.producers or link in self.services

    def on_deliveries(self, event: DeliveriesReceived) -> None:
        """A run of complete messages on one link."""
        link = event.link
        deliveries = event.deliveries
        producer = self.producers.get(link)
        if producer is None:
            service = self.services.get(link)
            if service is not None:
                service.on_deliveries(link, deliveries)
            return
        if producer.ended:
            return
        for delivery in deliveries:
            if delivery.state is not None:
                self._post_by_state(producer, deliveries)
                return
        self._post_run(producer, deliveries, None)

    def _post_by_state(self, producer: Producer, deliveries: list[Delivery]) -> None:
        """Some of the run name transactions: each stretch of one transaction, or of none, for itself."""
        start = 0
        while start < len(deliveries) and not producer.ended:
            txn_id = _txn_id(deliveries[start])
            end = start + 1
            state = deliveries[start].state
            while end < len(deliveries) and (
                deliveries[end].state is state or _txn_id(deliveries[end]) == txn_id
            ):
                end += 1
            transaction = None
            if txn_id is not None:
                try:
                    transaction = self._transactions.find(txn_id)
                except TransactionError as error:
                    producer.detach(error.error())
                    return  # nothing is stored outside of the transaction that was meant
            self._post_run(producer, deliveries[start:end], transaction)
            start = end

    def _post_run(
        self, producer: Producer, deliveries: list[Delivery], transaction: Transaction | None
    ) -> None:
        queue = producer.queue
        if queue is None:
            for delivery in deliveries:
                if not producer.ended:
                    self._post_by_properties(producer, delivery, transaction)
            return
        now_ms = self._nodes.wall_clock_ms()
        persistent = queue.persistent
        queue_id = queue.queue_id
        mapped: list[bytes] = []
        try:
            records = [
                record_of(d.payload, d.message_format, now_ms, queue_id, persistent, mapped)
                for d in deliveries
            ]
        except DecodeError:
            self._post_up_to_malformed(producer, deliveries, queue, now_ms, transaction)
            return
        self._post(producer, deliveries, queue, records, transaction, mapped)

    def _post_up_to_malformed(
        self,
        producer: Producer,
        deliveries: list[Delivery],
        queue: Queue,
        now_ms: int,
        transaction: Transaction | None,
    ) -> None:
        """What came before a message with malformed sections is taken, wherever a read ended."""
        records: list[Record] = []
        mapped: list[bytes] = []
        for delivery in deliveries:
            try:
                records.append(
                    record_of(
                        delivery.payload,
                        delivery.message_format,
                        now_ms,
                        queue.queue_id,
                        queue.persistent,
                        mapped,
                    )
                )
            except DecodeError as error:
                if records:
                    self._post(producer, deliveries[: len(records)], queue, records, transaction, mapped)
                self._malformed(producer, error)
                return

    def _post(
        self,
        producer: Producer,
        deliveries: list[Delivery],
        queue: Queue,
        records: list[Record],
        transaction: Transaction | None,
        mapped: list[bytes],
    ) -> None:
        link = producer.link
        if queue.deleted:
            producer.detach(deleted_error(queue))
            return
        if queue.stores_all:
            store_all(records)
        if mapped or producer.placed:
            if self.sequenced.take(producer, deliveries, queue, records, transaction):
                return
        if transaction is not None:
            self._transactions.post(transaction, link, deliveries, queue, records)
            return
        posting = Posting(self._nodes, queue, records, self._task.origin, self._task, link, deliveries)
        if posting.durable_count or queue.pending_posts > 1 or queue.events:
            self._nodes.writer.collect(posting)  # nothing overtakes what stands before it in its queue
        else:
            posting.prepare(0)
            posting.stored()

    def _post_by_properties(
        self, producer: Producer, delivery: Delivery, transaction: Transaction | None
    ) -> None:
        """The anonymous terminus: each message names its node in properties.to."""
        link = producer.link
        now_ms = self._nodes.wall_clock_ms()
        try:
            found = self._services.relay_target(self._task.principal, delivery.payload)
            if isinstance(found, Error):
                if transaction is None:
                    self.refuse_posts(link, [delivery], found)
                else:
                    self._transactions.refuse_posts(transaction, link, [delivery], found)
                    self.processed(link, 1)
                return
            if not isinstance(found, Queue):
                self._post_to_node(producer, delivery, found, transaction)
                return
            mapped: list[bytes] = []
            record = record_of(
                delivery.payload, delivery.message_format, now_ms, found.queue_id, found.persistent, mapped
            )
        except DecodeError as error:
            self._malformed(producer, error)
            return
        if found.sequences.required:
            mapped.append(record.body)
        self._post(producer, [delivery], found, [record], transaction, mapped)

    def _post_to_node(
        self, producer: Producer, delivery: Delivery, node: ControlNode, transaction: Transaction | None
    ) -> None:
        """A message for one of the broker's own nodes."""
        link = producer.link
        if delivery.settled and node.unsettled_only:
            producer.detach(SETTLED_ERROR)
        elif transaction is not None:
            self._transactions.post_to_node(transaction, link, delivery, node)
            self.processed(link, 1)
        else:
            node.receive(control_post(self._task, link, delivery))

    def answered(self, link: ReceiverLink, delivery: Delivery, outcome: Any) -> None:
        """One of the broker's own nodes is done with a message."""
        if self.holds(link):
            link.settle([delivery], outcome)
            link.processed(1)

    def _malformed(self, producer: Producer, error: DecodeError) -> None:
        """A message that misrepresents its sections ends the session (behaviour paper 2.2.1)."""
        producer.ended = True
        producer.link.session.end(Error(condition=error.condition, description=error.description))

    def posted(self, posting: Posting, error: Exception | None) -> None:
        """In the turn after the commit: tell the sender, and renew its credit."""
        link = posting.link
        if link is None or link not in self.producers:
            return
        if error is None:
            link.settle(posting.deliveries, ACCEPTED)
        else:
            self.refuse_posts(link, posting.deliveries, error_of(error))
            return
        self.processed(link, len(posting.deliveries))

    def refuse_posts(self, link: ReceiverLink, deliveries: list[Delivery], error: Error) -> None:
        """These messages were not stored: rejected where the sender listens, else the link is detached (fail
        fast).
        """
        if any(delivery.settled for delivery in deliveries):
            self.producers[link].detach(error)
            return
        link.settle(deliveries, Rejected(error=error))
        self.processed(link, len(deliveries))

    def processed(self, link: ReceiverLink, count: int) -> None:
        """`count` deliveries are done with: credit is renewed, unless the queue is full."""
        producer = self.producers.get(link)
        if producer is None:
            return
        queue = producer.queue
        if queue is not None and not producer.blocked and queue.full():
            producer.blocked = True
            queue.blocked.append(producer)
            link.set_credit(0)
        link.processed(count)

    def unblock(self, producer: Producer) -> None:
        """The queue has room again: the link gets its credit back."""
        if producer.link in self.producers:
            producer.blocked = False
            producer.link.set_credit(producer.credit)

    def on_detached(self, link: ReceiverLink) -> None:
        """A link is gone."""
        service = self.services.pop(link, None)
        if service is not None:
            service.on_detached(link)
        producer = self.producers.pop(link, None)
        if producer is not None:
            self._nodes.forget_producer(producer)
            self.sequenced.on_detached(link)


def _txn_id(delivery: Delivery) -> object:
    """The transaction that a transfer names (4.5.4), or None."""
    state = delivery.state
    return state.txn_id if isinstance(state, TransactionalState) else None
