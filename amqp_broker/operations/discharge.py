"""The commit of one transaction: everything in it is one batch, and its outcome is part of that.

request --Provisional--> outcome that it would have by now; its connection hears nothing meanwhile
postings (room kept, invisible) --discharge--> Discharge: Post ..., Retire, Return ..., Discharged
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from amqp_broker.coordinator import Effect, Transaction, Work
from amqp_broker.frames import Error, Modified
from amqp_broker.links import Delivery, ReceiverLink, in_words
from amqp_broker.message_events import settled
from amqp_broker.operations.operation import Batch, Operation, Refused, error_of
from amqp_broker.operations.posting import retire_verbs, return_verbs
from amqp_broker.persistence import Discharged, Record, Unit
from amqp_broker.queue import Consumer

if TYPE_CHECKING:
    from amqp_broker.connection import Connection
    from amqp_broker.transactions import Transactions


def stored_by(work: Work) -> Unit:
    """What the commit stores for messages that the transaction has acquired or retired.

    Nothing in memory changes yet: the commit may fail, and then nothing has happened.
    """
    queue_id = work.consumer.queue.queue_id
    if work.effect is Effect.RETIRE:
        return retire_verbs(queue_id, records_of(work))
    outcome = work.outcome
    if work.effect is not Effect.RETURN or type(outcome) is not Modified:
        return []
    return return_verbs(queue_id, work.items, outcome)


def events_of(work: Work, txn_id: bytes, now_ms: int) -> Unit:
    """The entries of the journal about a work, for its commit."""
    if work.effect not in (Effect.RETIRE, Effect.RETURN):
        return []
    consumer: Consumer = work.consumer
    container = consumer.connection.container_id
    return settled(consumer.queue, records_of(work), work.outcome, container, now_ms, txn_id)


def records_of(work: Work) -> list[Record]:
    """The messages of a work: those of its deliveries, or, sent settled, the items themselves."""
    return [item if isinstance(item, Record) else item.message for item in work.items]


def refusal(link: ReceiverLink, deliveries: Sequence[Delivery], error: Error) -> str:
    """Which part of a transaction was refused, and why."""
    which = in_words(deliveries[0].delivery_id, deliveries[-1].delivery_id)
    return f"{which} on link {link.name[:64]!r}: {error.condition}: {error.description}"


class Discharge(Batch):
    """A transaction that its controller wants committed. The postings are told by its `transactions`."""

    __slots__ = ("_transactions", "delivery", "link", "transaction")

    def __init__(
        self, transactions: Transactions, transaction: Transaction, link: ReceiverLink, delivery: Delivery
    ) -> None:
        postings: list[Any] = transaction.postings
        super().__init__(postings)
        self._transactions = transactions
        self.transaction = transaction
        self.link = link
        self.delivery = delivery

    def prepare(self, now_ms: int) -> Unit:
        """The postings, then what becomes of messages that it holds, then that it was committed. Raises
        Refused where a part of it can't be.
        """
        transaction = self.transaction
        if transaction.reason is not None:
            raise Refused(transaction.reason.error())
        unit = super().prepare(now_ms)
        for work in transaction.works(True):
            unit.extend(stored_by(work))
            if work.consumer.queue.events:
                unit.extend(events_of(work, transaction.txn_id, now_ms))
        unit.append(Discharged(transaction.txn_id, now_ms))
        return unit

    def stored(self) -> None:
        """The transaction is committed."""
        self._transactions.discharged(self, None)

    def refused(self, error: Exception) -> None:
        """The transaction is rolled back, and its controller is told why."""
        self._transactions.discharged(self, error)

    def asking_connection(self) -> Connection | None:
        """The connection of the controller."""
        return self._transactions.connection


class Provisional(Operation):
    """What would become by now of a request in a transaction, at its place in the order."""

    __slots__ = ("_connection", "_judged", "_refusal", "_request")

    def __init__(self, connection: Connection, request: Any) -> None:
        self._connection = connection
        self._request = request
        self._judged = trio.Event()
        self._refusal: Error | None = None

    async def judged(self) -> Error | None:
        """Why the request can't be done, or None."""
        await self._judged.wait()
        return self._refusal

    def prepare(self, now_ms: int) -> Unit:
        """Nothing is stored before the discharge."""
        self._refusal = self._request.provisional(now_ms)
        return []

    def stored(self) -> None:
        """What the request was judged by is stored."""
        self._judged.set()

    def refused(self, error: Exception) -> None:
        """A fault of the broker met the request."""
        self._refusal = error_of(error)
        self._judged.set()

    def asking_connection(self) -> Connection | None:
        """The connection of the controller."""
        return self._connection
