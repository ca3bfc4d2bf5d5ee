"""The commit of one transaction: everything in it is one batch, and its outcome is part of that.

request --Provisional--> outcome that it would have by now; its connection hears nothing meanwhile
postings (room kept, invisible) --discharge--> Discharge: Post ..., Retire, Return ..., Discharged
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from amqp_broker.coordinator import Effect, Transaction, Work
from amqp_broker.frames import Error, Modified
from amqp_broker.links import Delivery, ReceiverLink, in_words
from amqp_broker.message_events import settled
from amqp_broker.operations.operation import Batch, Operation, Refused, error_of
from amqp_broker.operations.posting import (
    dead_after_tries,
    ended_by,
    letter_of,
    record_of_item,
    retire_verbs,
    return_verbs,
    without,
)
from amqp_broker.persistence import Discharged, Record, Unit
from amqp_broker.queue import Consumer, Queue

if TYPE_CHECKING:
    from amqp_broker.connection import Connection
    from amqp_broker.endings import Letter


def stored_by(work: Work, ended: list[Any]) -> Unit:
    """What the commit stores for messages that the transaction has acquired or retired; `ended` are those
    that nobody has processed.

    Nothing in memory changes yet: the commit may fail, and then nothing has happened.
    """
    queue_id = work.consumer.queue.queue_id
    if work.effect is Effect.RETIRE:
        return retire_verbs(queue_id, records_of(work))
    outcome = work.outcome
    if work.effect is not Effect.RETURN or type(outcome) is not Modified:
        return []
    if not ended:
        return return_verbs(queue_id, work.items, outcome)
    gone = retire_verbs(queue_id, [record_of_item(item) for item in ended])
    return [*gone, *return_verbs(queue_id, without(work.items, ended), outcome)]


def events_of(work: Work, ended: list[Any], txn_id: bytes, now_ms: int) -> Unit:
    """The entries of the journal about a work, for its commit."""
    consumer: Consumer = work.consumer
    container = consumer.connection.container_id
    unit = settled(consumer.queue, records_of(work), work.outcome, container, now_ms, txn_id)
    if ended and work.effect is Effect.RETURN:
        unit.extend(dead_after_tries(consumer.queue, ended, now_ms))
    return unit


def records_of(work: Work) -> list[Record]:
    """The messages of a work: those of its deliveries, or, sent settled, the items themselves."""
    return [record_of_item(item) for item in work.items]


def refusal(link: ReceiverLink, deliveries: Sequence[Delivery], error: Error) -> str:
    """Which part of a transaction was refused, and why."""
    which = in_words(deliveries[0].delivery_id, deliveries[-1].delivery_id)
    return f"{which} on link {link.name[:64]!r}: {error.condition}: {error.description}"


class Discharge(Batch):
    """A transaction that its controller, at the other end of `connection`, wants committed, or, without
    `link` and `delivery`, an administrator. `told` is called with it when that is decided, and with the error
    if it is not; the postings are told by it.
    """

    __slots__ = ("_connection", "_letters", "_told", "delivery", "link", "transaction")

    def __init__(
        self, connection: Connection, transaction: Transaction, link: ReceiverLink | None,
        delivery: Delivery | None, told: Callable[[Discharge, Exception | None], None],
    ) -> None:  # fmt: skip
        postings: list[Any] = transaction.postings
        super().__init__(postings)
        self._connection = connection
        self._told = told
        self._letters: list[Letter] = []
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
            if work.effect is Effect.RETIRE or work.effect is Effect.RETURN:
                unit.extend(self._end_of(work, now_ms))
        unit.append(Discharged(transaction.txn_id, now_ms))
        return unit

    def _end_of(self, work: Work, now_ms: int) -> Unit:
        """The verbs for messages with an outcome, with what is kept of those that nobody has processed."""
        queue: Queue = work.consumer.queue
        ended = ended_by(queue, work.items, work.outcome)
        unit = [*stored_by(work, ended), *work.consumer.outcome_verbs(work.items)]
        if queue.events:
            unit.extend(events_of(work, ended, self.transaction.txn_id, now_ms))
        letter = letter_of(queue, ended, work.outcome) if ended else None
        if letter is not None:
            self._letters.append(letter)
            unit.extend(letter.prepare(now_ms))
        return unit

    def undo(self) -> None:
        """Undo the letters and the postings, the last one first."""
        letters, self._letters = self._letters, []
        for letter in reversed(letters):
            letter.undo()
        super().undo()

    def stored(self) -> None:
        """The transaction is committed."""
        self._told(self, None)
        for letter in self._letters:
            letter.stored()

    def refused(self, error: Exception) -> None:
        """The transaction is rolled back, and its controller is told why."""
        self._told(self, error)

    def asking_connection(self) -> Connection | None:
        """The connection of the controller."""
        return self._connection


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
