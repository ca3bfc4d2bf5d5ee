"""Messages of sequenced streams in a transaction: judged on a tentative state, and at the discharge.

post --> SequencedEnlistment, part of the transaction at once
         TransactionalJudging, a job: where the writer is at it, on the state that the transaction found
         and would leave; the provisional outcomes follow
discharge --> verbs(): the durable state has to be the one that was found, else amqp:transaction:rollback
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from amqp_broker.coordinator import Transaction, TransactionRollback
from amqp_broker.frames import Error, Rejected
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.message_events import Origin, places_of, refused
from amqp_broker.persistence import Record, RowDamaged, Stream, Unit
from amqp_broker.queue import Queue
from amqp_broker.sequences.jobs import Places, advances, judge
from amqp_broker.sequences.positions import TooManyStreams
from amqp_broker.transactional_jobs import TransactionalPosting

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection
    from amqp_broker.sequences.service import SequenceService


class SequencedEnlistment:
    """A run of messages to one queue as part of a transaction. Room for them is kept when they are judged."""

    def __init__(
        self,
        service: SequenceService,
        principal: Principal,
        transaction: Transaction,
        queue: Queue,
        records: Sequence[Record],
        places: Places,
        settled: Sequence[bool],
        container: str = "",
    ) -> None:
        self._service = service
        self._container = container
        self._principal = principal
        self._records = records
        self._places = places
        self._settled = settled
        self._posting: TransactionalPosting | None = None
        self._found: list[Stream] = []  # the streams, as the messages before found them
        self._left: list[Stream] = []  # those that move, as this run leaves them
        self._before: dict[tuple[int, str], Stream] = {}
        self._failure: TransactionRollback | None = None
        self._asked = False  # the store is, or was, at it
        self.transaction = transaction
        self.queue = queue
        self.operations = len(records)
        self.size_bytes = sum([len(record.body) for record in records])
        self.outcomes: list[Any] = []
        self.ended = False

    # Judged, in the writer's order

    def judge(self) -> None:
        """Answer the run on the tentative state of the transaction; nothing if that is over."""
        if self.ended:
            return
        service = self._service
        tentative = service.tentative_of(self.transaction)
        self._before = dict(tentative)
        judging = service.judging(self.queue, self._principal, tentative)
        taken, self.outcomes = judge(judging, self._records, self._places, self._admit)
        self._posting = TransactionalPosting(self.queue, taken, service.nodes)
        if self.queue.events:
            places = places_of(self._records, self._places)
            self._posting.origin = Origin(self._container, self.transaction.txn_id, places)
        self._found = judging.seen
        now_ms = service.now_ms()
        self._left = [stream for stream in judging.changes(now_ms) if _moved(stream, self._found)]
        for stream in self._left:
            tentative[stream.queue_id, stream.stream] = stream
        for name, count in judging.refusals():
            service.positions.count(self.queue, name, count, now_ms)
        for settled, outcome in zip(self._settled, self.outcomes, strict=True):
            if settled and type(outcome) is Rejected and outcome.error is not None:
                error = outcome.error
                self._failure = TransactionRollback(f"{error.condition}: {error.description}")
                break

    def _admit(self, record: Record) -> Rejected | None:
        if self.queue.reserve([record]):
            return None
        return Rejected(
            error=Error(
                condition="amqp:resource-limit-exceeded", description=f"queue {self.queue.name!r} is full"
            )
        )

    def unjudge(self) -> None:
        """The group did not happen: it will be judged once more."""
        if self._posting is not None:
            self._posting.rolled_back()
            self._posting = None
            tentative = self._service.tentative_of(self.transaction)
            tentative.clear()
            tentative.update(self._before)
        self._failure = None
        self._found, self._left, self.outcomes = [], [], []

    # Enlisted

    def verbs(self) -> Unit:
        """The messages and where their streams stand then. Raises TransactionRollback if they can't be."""
        assert self._posting is not None, "a run is judged before its transaction is discharged"
        if self._failure is not None:
            raise self._failure
        positions = self._service.positions
        for found in self._found:
            try:
                now = positions.find(self.queue, found.stream)
            except (RowDamaged, TooManyStreams) as error:
                raise TransactionRollback(
                    f"where stream {found.stream!r} stands is not known: {error}"
                ) from None
            if (now.seq_id, now.seq_no) != (found.seq_id, found.seq_no):
                raise TransactionRollback(
                    f"stream {found.stream!r} was at id {found.seq_id}, number {found.seq_no} for this "
                    f"transaction, and is at id {now.seq_id}, number {now.seq_no} by now"
                )
        self._asked = True
        unit = self._posting.verbs()
        if self.queue.events:
            txn_id, now_ms = self.transaction.txn_id, self._service.now_ms()
            unit.extend(refused(self.queue, self._places, self.outcomes, self._container, now_ms, txn_id))
        for stream in self._left:
            positions.change(self, stream)
        return unit + advances(self.queue, self._left)

    def withdraw(self) -> None:
        """Nothing was stored."""
        if self._asked:
            self._asked = False
            self._service.positions.withdraw(self, self._left)
            if self._posting is not None:
                self._posting.withdraw()

    def committed(self) -> None:
        """The messages are there, and their streams have moved."""
        assert self._posting is not None, "what is committed was judged"
        self._service.positions.stored(self, self.queue, self._left)
        self._posting.committed()
        self._end()
        self._service.nodes.pump(self.queue)

    def rolled_back(self) -> None:
        """The messages never were; their streams are where they were."""
        if self._asked:
            self._service.positions.refused(self, self._left)
        if self._posting is not None:
            self._posting.rolled_back()
        self._end()
        self._service.nodes.drained(self.queue)

    def _end(self) -> None:
        self.ended = True
        self._service.forget_tentative(self.transaction)


class TransactionalJudging:
    """The job in which an enlisted run is judged; `told` is called in a turn of the owner."""

    __slots__ = ("_owner", "_told", "deliveries", "enlistment", "link")

    def __init__(
        self,
        owner: Connection,
        link: ReceiverLink,
        deliveries: list[Delivery],
        enlistment: SequencedEnlistment,
        told: Callable[[TransactionalJudging], None],
    ) -> None:
        self._owner = owner
        self._told = told
        self.link = link
        self.deliveries = deliveries
        self.enlistment = enlistment

    def unit(self) -> Unit:
        self.enlistment.judge()
        return []

    def withdraw(self) -> None:
        """The group did not happen."""
        self.enlistment.unjudge()

    def keeps(self) -> bool:
        """It wants nothing stored."""
        return False

    def finished(self, error: Exception | None) -> None:
        self._owner.run_in_turn(partial(self._told, self))


def _moved(stream: Stream, found: Sequence[Stream]) -> bool:
    """Whether a stream is not where it was found."""
    before = next(each for each in found if each.stream == stream.stream)
    return (stream.seq_id, stream.seq_no) != (before.seq_id, before.seq_no)
