"""Messages of sequenced streams in a transaction: judged on a tentative state, and at the discharge.

post --> SequencedEnlistment, part of the transaction at once
         TransactionalJudging, an operation: when the writer makes its group, on the state that the
         transaction found and would leave; the provisional outcomes follow
discharge --> prepare(): the durable state has to be the one that was found, else amqp:transaction:rollback
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.coordinator import Transaction, TransactionRollback
from amqp_broker.coordinator.sequences import SequenceAnswer
from amqp_broker.frames import Error, Rejected
from amqp_broker.links import Account, Delivery, ReceiverLink
from amqp_broker.message_events import places_of, refused
from amqp_broker.operations.discharge import refusal
from amqp_broker.operations.operation import Operation, Refused
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import Origin
from amqp_broker.persistence import Record, RowDamaged, Stream, Unit
from amqp_broker.queue import Queue, deleted_error, full_error
from amqp_broker.sequences.operations import Places, advances, judge, tell_rejected
from amqp_broker.sequences.positions import TooManyStreams

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection
    from amqp_broker.sequences.sequences import Sequences


ROLLED_BACK: Final = TransactionRollback("it was rolled back")
ORDER_REFUSALS: Final = frozenset(answer.value for answer in SequenceAnswer)
"""The conditions of the dialogue about the order."""


class SequencedEnlistment(Operation):
    """A run of messages to one queue as part of a transaction. Room for them is kept when they are judged."""

    def __init__(
        self,
        sequences: Sequences,
        principal: Principal,
        transaction: Transaction,
        queue: Queue,
        records: Sequence[Record],
        places: Places,
        link: ReceiverLink,
        deliveries: Sequence[Delivery],
        container: str = "",
    ) -> None:
        self._sequences = sequences
        self._container = container
        self._principal = principal
        self._records = records
        self._places = places
        self._link = link
        self._deliveries = deliveries
        self._posting: Posting | None = None
        self._admitted: list[Record] = []  # room is kept for them, and no posting has it yet
        self._account: Account = transaction.connection.account
        self._counts: list[tuple[str, int]] = []  # refusals, by stream
        self._found: list[Stream] = []  # the streams, as the messages before found them
        self._left: list[Stream] = []  # those that move, as this run leaves them
        self._begun = 0  # of them, those that begin
        self._made = 0  # the same, while they are counted
        self._tentative = sequences.tentative_of(transaction)
        self._before: dict[tuple[int, str], Stream] = {}
        self.failure: TransactionRollback | None = None
        """A message was refused, and not for its place in its stream, which its sender can answer by sending
        again from there; or its sender does not hear of it: the transaction can't commit.
        """
        self.transaction = transaction
        self.queue = queue
        self.operations = len(records)
        self.size_bytes = sum([len(record.body) for record in records])
        self.outcomes: list[Any] = []
        self.ended = False

    # Judged, in the writer's order

    def judge(self, now_ms: int) -> None:
        """Answer the run on the tentative state of the transaction; also where that is over by now, which it
        was not when the run came.
        """
        sequences = self._sequences
        tentative = self._tentative
        self._before = dict(tentative)
        judging = sequences.judging(self.queue, self._principal, tentative)
        try:
            taken, self.outcomes = judge(judging, self._records, self._places, self._admit)
            places = places_of(self._records, self._places) if self.queue.events else None
            origin = Origin(self._container, self.transaction.txn_id, places)
            self._posting = Posting(
                sequences.nodes, self.queue, taken, origin, reserved=True, account=self._account
            )
            self._admitted = []
        except Exception:  # a fault of the broker
            admitted, self._admitted = self._admitted, []
            self.queue.unreserve(len(admitted), sum([len(record.body) for record in admitted]))
            raise
        self._found = judging.seen
        self._counts = judging.refusals()
        self._left = [stream for stream in judging.changes(now_ms) if _moved(stream, self._found)]
        self._begun = judging.made if self.queue.persistent else 0
        for stream in self._left:
            tentative[stream.queue_id, stream.stream] = stream
        for delivery, outcome in zip(self._deliveries, self.outcomes, strict=True):
            if type(outcome) is Rejected and outcome.error is not None:
                error = outcome.error
                if delivery.settled or error.condition not in ORDER_REFUSALS:
                    self.failure = TransactionRollback(refusal(self._link, [delivery], error))
                    break

    def _admit(self, record: Record) -> Rejected | None:
        if self.queue.reserve([record]):
            self._admitted.append(record)
            return None
        return Rejected(error=full_error(self.queue))

    def unjudge(self) -> None:
        """The group did not happen: the run will be judged once more."""
        if self._posting is not None:
            posting, self._posting = self._posting, None
            self.queue.unreserve(posting.operations, posting.size_bytes)
        self._tentative.clear()
        self._tentative.update(self._before)
        self.failure = None
        self._found, self._left, self.outcomes, self._counts = [], [], [], []

    def judged(self) -> None:
        """The judgement is stored: what was refused is counted."""
        counts, self._counts = self._counts, []
        for name, count in counts:
            self._sequences.positions.count(self.queue, name, count, self._sequences.now_ms())
        if counts:
            tell_rejected(self._sequences.nodes.writer.watcher, self._records, self.outcomes)
        if self.ended:
            self._give_up(ROLLED_BACK)

    def _give_up(self, error: Exception) -> None:
        """Give back the room that is kept for the messages."""
        posting, self._posting = self._posting, None
        if posting is not None:
            posting.refused(error)

    def fail(self, error: Exception) -> None:
        """The run could not be judged."""
        self.failure = TransactionRollback(str(error))
        self.outcomes = [Rejected(error=self.failure.error())] * len(self._records)
        if self._posting is None:
            origin = Origin(self._container, self.transaction.txn_id)
            self._posting = Posting(self._sequences.nodes, self.queue, [], origin, reserved=True)

    # Enlisted

    def obstacle(self) -> Error | None:
        """Why the run can't be stored any more: the queue may have gone meanwhile."""
        return deleted_error(self.queue) if self.queue.deleted else None

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that store the messages, and where their streams stand then. Raises TransactionRollback
        if they can't be.
        """
        assert self._posting is not None, "a run is judged before its transaction is discharged"
        if self.failure is not None:
            raise Refused(self.failure.error())
        positions = self._sequences.positions
        for found in self._found:
            try:
                now = positions.find(self.queue, found.stream)
            except (RowDamaged, TooManyStreams) as error:
                raise _moved_on(f"where stream {found.stream!r} stands is not known: {error}") from None
            if (now.seq_id, now.seq_no) != (found.seq_id, found.seq_no):
                raise _moved_on(
                    f"stream {found.stream!r} was at id {found.seq_id}, number {found.seq_no} for this "
                    f"transaction, and is at id {now.seq_id}, number {now.seq_no} by now"
                )
        try:
            positions.check_room(self._begun)
        except TooManyStreams as error:
            raise _moved_on(str(error)) from None
        unit = self._posting.prepare(now_ms)
        self._made = self._begun
        positions.make(self._made)
        if self.queue.events:
            txn_id = self.transaction.txn_id
            unit.extend(refused(self.queue, self._places, self.outcomes, self._container, now_ms, txn_id))
        for stream in self._left:
            positions.change(self, stream)
        return unit + advances(self.queue, self._left)

    def undo(self) -> None:
        """The offsets are free again, and the streams stand where they stood."""
        self._sequences.positions.undo(self, self._left)
        made, self._made = self._made, 0
        self._sequences.positions.make(-made)
        if self._posting is not None:
            self._posting.undo()

    def stored(self) -> None:
        """The messages are there, and their streams have moved."""
        assert self._posting is not None, "what is committed was judged"
        self._sequences.positions.stored(self, self.queue, self._left)
        self._posting.stored()
        self._sequences.nodes.writer.watcher.stored(self._records)
        self._end()
        self._sequences.nodes.pump(self.queue)

    def refused(self, error: Exception) -> None:
        """The messages never were; their streams stand where they stood."""
        self._give_up(error)
        self._sequences.nodes.writer.watcher.refused(self._records, error)
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._sequences.forget_tentative(self.transaction)


class TransactionalJudging(Operation):
    """The operation in which an enlisted run is judged; `then` is called in a turn of the connection."""

    __slots__ = ("_connection", "_then", "deliveries", "enlistment", "link")

    def __init__(
        self,
        connection: Connection,
        link: ReceiverLink,
        deliveries: list[Delivery],
        enlistment: SequencedEnlistment,
        then: Callable[[TransactionalJudging], None],
    ) -> None:
        self._connection = connection
        self._then = then
        self.link = link
        self.deliveries = deliveries
        self.enlistment = enlistment

    def prepare(self, now_ms: int) -> Unit:
        """Judge the run; nothing is stored of that."""
        self.enlistment.judge(now_ms)
        return []

    def undo(self) -> None:
        """The run will be judged once more."""
        self.enlistment.unjudge()

    def stored(self) -> None:
        """The sender is told the provisional outcomes."""
        self.enlistment.judged()
        self._connection.run_in_turn(partial(self._then, self))

    def refused(self, error: Exception) -> None:
        """A fault of the broker; the transaction can't be committed."""
        self.enlistment.fail(error)
        self._connection.run_in_turn(partial(self._then, self))

    def asking_connection(self) -> Connection | None:
        """The sender's connection."""
        return self._connection


def _moved_on(description: str) -> Refused:
    return Refused(TransactionRollback(description).error())


def _moved(stream: Stream, found: Sequence[Stream]) -> bool:
    """Whether a stream is not where it was found."""
    before = next(each for each in found if each.stream == stream.stream)
    return (stream.seq_id, stream.seq_no) != (before.seq_id, before.seq_no)
