"""What a client posts to a queue: from the transfers of a link to the writer, and the answers.

    run --record_of--> records --rule.take?--> a feature that has a say in it
                         +--> Posting, or part of the transaction that the run names

Everything here but `unblock` and `on_posted` runs in a turn of the connection, and waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.compilation import mypyc_attr
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Accepted, DecodeError, Error, TransactionalState
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.nodes.ends import Sink
from amqp_broker.nodes.refusals import malformed_error
from amqp_broker.operations.operation import error_of
from amqp_broker.operations.posting import Posting
from amqp_broker.persistence import Record
from amqp_broker.queue import Queue, deleted_error
from amqp_broker.records import record_of, store_all

if TYPE_CHECKING:
    from amqp_broker.connection import Connection
    from amqp_broker.coordinator import Transaction
    from amqp_broker.node_service import NodeService
    from amqp_broker.transactions import Transactions

ACCEPTED: Final = Accepted()


@mypyc_attr(allow_interpreted_subclasses=True)
class PostRule:
    """What a feature has to say about the messages of one link before they are posted."""

    __slots__ = ()

    def wants_all(self, queue: Queue) -> bool:
        """Whether also messages without annotations and application properties have to be shown to `take`."""
        return False

    def take(
        self, sink: QueueSink, deliveries: list[Delivery], records: list[Record],
        transaction: Transaction | None,
    ) -> bool:  # fmt: skip
        """Have a run stored by other means; False: it is posted as any other."""
        return False

    def on_detached(self) -> None:
        """The link is gone."""


class QueueSink(Sink):
    """One link that sends to a queue. `transactions` are those of its connection."""

    __slots__ = ("_nodes", "_placed", "_rule", "blocked", "credit", "queue", "temporary")

    def __init__(
        self, connection: Connection, link: ReceiverLink, queue: Queue, nodes: NodeService,
        transactions: Transactions, rule: PostRule | None, *, temporary: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(connection, link)
        self.queue = queue
        self.credit = nodes.config.limits.link_credit
        self.temporary = temporary
        self.blocked = False
        self.transactions = transactions
        link.keeps_messages = True
        self._nodes = nodes
        self._rule = rule
        self._placed = rule is not None and rule.wants_all(queue)

    def begin(self) -> int:
        """The link begins to post; the credit that it begins with."""
        queue = self.queue
        queue.producers.add(self)
        return 0 if self._block() else self.credit

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A run of complete messages."""
        if self.queue.deleted:
            self.lose(deliveries, "its queue was deleted")
            self.detach(deleted_error(self.queue))
            return
        for delivery in deliveries:
            if delivery.state is not None:
                self._post_by_state(deliveries)
                return
        self._post_run(deliveries, None)

    def _post_by_state(self, deliveries: list[Delivery]) -> None:
        """Some of the run name transactions: each stretch of one transaction, or of none, for itself."""
        start = 0
        while start < len(deliveries) and not self.ended:
            txn_id = txn_id_of(deliveries[start])
            end = start + 1
            state = deliveries[start].state
            while end < len(deliveries) and (
                deliveries[end].state is state or txn_id_of(deliveries[end]) == txn_id
            ):
                end += 1
            transaction = None
            if txn_id is not None:
                try:
                    transaction = self.transactions.find(txn_id)
                except TransactionError as error:
                    self.detach(error.error())
                    break  # nothing is stored outside of the transaction that was meant
            self._post_run(deliveries[start:end], transaction)
            start = end
        self.lose(deliveries[start:])

    def _post_run(self, deliveries: list[Delivery], transaction: Transaction | None) -> None:
        queue = self.queue
        now_ms = self._nodes.clock.now_ms()
        persistent = queue.persistent
        queue_id = queue.queue_id
        mapped: list[bytes] = []
        try:
            records = [
                record_of(d.payload, d.message_format, now_ms, queue_id, persistent, mapped)
                for d in deliveries
            ]
        except DecodeError:
            self._post_around_malformed(deliveries, now_ms, transaction)
            return
        self._post(deliveries, records, transaction, mapped)

    def _post_around_malformed(
        self, deliveries: list[Delivery], now_ms: int, transaction: Transaction | None
    ) -> None:
        """Messages with malformed sections are refused; what stands between them is taken, in order, as long
        as the link is there.
        """
        queue = self.queue
        begin = 0
        records: list[Record] = []
        mapped: list[bytes] = []
        for at, delivery in enumerate(deliveries):
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
                    self._post(deliveries[begin:at], records, transaction, mapped)
                if not self.ended:
                    self.refuse_each([delivery], malformed_error(error))
                if self.ended:
                    self.lose(deliveries[at + 1 :])
                    return
                begin, records, mapped = at + 1, [], []
        if records:
            self._post(deliveries[begin:], records, transaction, mapped)

    def _post(
        self,
        deliveries: list[Delivery],
        records: list[Record],
        transaction: Transaction | None,
        mapped: list[bytes],
    ) -> None:
        queue = self.queue
        if queue.stores_all:
            store_all(records)
        rule = self._rule
        if rule is not None and (mapped or self._placed):
            if rule.take(self, deliveries, records, transaction):
                return
        if transaction is not None:
            self.transactions.post(transaction, self, deliveries, queue, records)
            return
        connection = self.connection
        posting = Posting(
            self._nodes, queue, records, connection.origin, self, deliveries, account=connection.account
        )
        if posting.durable_count or queue.pending_posts > 1 or queue.events:
            self._nodes.writer.collect(posting)  # nothing overtakes what stands before it in its queue
        else:
            posting.at_once()

    # From any task

    def on_posted(self, posting: Any, error: Exception | None) -> None:
        """A posting was committed, or refused by the store."""
        self.connection.mail.post(self._posted, posting, error)

    def unblock(self) -> None:
        """The queue has room again."""
        self.connection.run_in_turn(self._unblock)

    # In the turn after that

    def _posted(self, posting: Any, error: Exception | None) -> None:
        """Tell the sender, and renew its credit."""
        if not self.attached:
            return
        if error is not None:
            self.refuse(posting.deliveries, error_of(error))
            return
        self.link.settle(posting.deliveries, ACCEPTED)
        self.processed(len(posting.deliveries))

    def processed(self, count: int) -> None:
        """So many deliveries are done with: credit is renewed, unless the queue is full."""
        if not self.attached:
            return
        if not self.blocked and self._block():
            self.link.set_credit(0)
        self.link.processed(count)

    def _block(self) -> bool:
        """Wait for room, if the queue has none."""
        queue = self.queue
        if not queue.full():
            return False
        self.blocked = True
        queue.blocked.append(self)
        return True

    def _unblock(self) -> None:
        if self.attached:
            self.blocked = False
            self.link.set_credit(self.credit)

    def on_leaving(self) -> None:
        """A queue that was made for the link goes with it."""
        self.queue.producers.discard(self)
        if self.temporary:
            self.temporary = False
            self._nodes.drop_temporary(self.queue)

    def on_detached(self) -> None:
        """The link is gone: nobody waits for room."""
        queue = self.queue
        if self in queue.blocked:
            queue.blocked.remove(self)
        if self._rule is not None:
            self._rule.on_detached()


class RelayedSink(QueueSink):
    """One message that came through the anonymous terminus on `relay`, and is for a queue."""

    __slots__ = ("_relay",)

    def __init__(
        self, relay: Sink, queue: Queue, nodes: NodeService, transactions: Transactions, rule: PostRule | None
    ) -> None:
        super().__init__(relay.connection, relay.link, queue, nodes, transactions, rule)
        self._relay = relay

    def processed(self, count: int) -> None:
        """The link's credit does not depend on one queue."""
        if self.attached:
            self.link.processed(count)

    def detach(self, error: Error) -> None:
        """End the link on which the message came."""
        self.ended = True
        self._relay.detach(error)


def txn_id_of(delivery: Delivery) -> object:
    """The transaction that a transfer names (4.5.4), or None."""
    state = delivery.state
    return state.txn_id if isinstance(state, TransactionalState) else None
