"""Transactions in plain Python: what each would do to which message, decided by the sentences of 4.4.4.

The model knows no runs, no indexes and no table of effects; it is told what a controller asked for, and
changes the `queues` when the transaction ends. Nothing is a "maybe" here: whoever cuts a connection at a post
or a discharge asks afterwards how it ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Symbol,
    TransactionalState,
    encode_section,
)
from tests.model.queues import ModelMessage, ModelQueue
from tests.promises.messages import Place

if TYPE_CHECKING:
    from tests.model.clients import Client, Control, Receiver

ROLLBACK: Final = "amqp:transaction:rollback"
TIMEOUT: Final = "amqp:transaction:timeout"
UNKNOWN: Final = "amqp:transaction:unknown-id"
NOT_ALLOWED: Final = "amqp:not-allowed"
TOO_MUCH: Final = "amqp:resource-limit-exceeded"

MAX_MESSAGES: Final = 36
MAX_DELIVERIES: Final = 3
LIVE: Final = 4
OPERATIONS: Final = 16
SIZE_BYTES: Final = 400_000
TIMEOUT_S: Final = 100


class Hold:
    """What a transaction knows of one message that it has acquired or retires."""

    def __init__(
        self, message: ModelMessage, receiver: Receiver, delivery_id: int | None, *, acquired: bool
    ) -> None:
        self.message = message
        self.receiver = receiver
        self.delivery_id = delivery_id  # None: it was sent settled
        self.acquired = acquired
        self.outcome: Any = None
        self.settled = False
        self.left = False  # settled by nothing but the end of its link
        self.late: tuple[Any, bool] | None = None


class ModelTransaction:
    """`end` is "" while it is live, "failed" when it can't commit any more, "storing" while the store is at
    it, "timeout" or "forced" when the broker rolled it back and its controller does not know, and "over".
    """

    def __init__(self, txn_id: bytes, control: Control, declared_at: int) -> None:
        self.txn_id = txn_id
        self.control = control
        self.declared_at = declared_at
        self.end = ""
        self.committed = False
        self.timed_out = False
        self.posts: list[tuple[str, ModelMessage]] = []
        self.holds: dict[ModelMessage, Hold] = {}
        self.operations = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<transaction {self.txn_id.hex()[:6]} {self.end or 'live'}>"

    @property
    def open(self) -> bool:
        """Work can be done in it, even if it can't be committed."""
        return self.end in ("", "failed")

    @property
    def holding(self) -> bool:
        """What it holds belongs to it."""
        return self.open or self.end == "storing"

    def fits(self, sizes: list[int]) -> bool:
        """Whether so many operations more are within its bounds."""
        return self.operations + len(sizes) <= OPERATIONS and self.size_bytes + sum(sizes) <= SIZE_BYTES

    def take(self, size: int) -> None:
        """One operation more."""
        self.operations += 1
        self.size_bytes += size


class Books:
    """All queues and transactions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.queues = {name: ModelQueue(name) for name in names}
        self.transactions: list[ModelTransaction] = []
        self.settled: list[tuple[Receiver, int, Any]] = []
        """What the broker has to settle towards receivers, with which state, since the last look."""
        self.buried = 0
        """How many messages were rejected, or failed too often."""
        self.returned = False
        """Whether messages came back since then: several runs of them are served as they come."""

    # What is asked

    def holder_of(self, message: ModelMessage) -> ModelTransaction | None:
        """The transaction that holds a message."""
        for transaction in self.transactions:
            if transaction.holding and message in transaction.holds:
                return transaction
        return None

    def visible(self, message: ModelMessage) -> bool:
        """Whether a browser is shown it: it is available, or a live transaction has acquired it."""
        if message.available:
            return True
        holder = self.holder_of(message)
        return holder is not None and holder.holds[message].acquired

    def why_not(self, transaction: ModelTransaction | None, client: Client) -> str | None:
        """The error for work in this transaction on a connection; None if it can be done."""
        if transaction is None or transaction.control.client is not client:
            return UNKNOWN
        if transaction.end == "timeout":
            return TIMEOUT
        if transaction.end == "forced":
            return ROLLBACK
        return None if transaction.open else UNKNOWN

    def live(self) -> list[ModelTransaction]:
        """All that an administrator sees."""
        return [each for each in self.transactions if each.holding]

    def reserved(self, name: str) -> tuple[int, int]:
        """(messages, octets) that transactions keep room for in a queue."""
        sizes = [message.size for each in self.live() for queue, message in each.posts if queue == name]
        return len(sizes), sum(sizes)

    def room(self, name: str) -> int:
        """How many messages a queue still takes."""
        return max(0, MAX_MESSAGES - len(self.queues[name].messages) - self.reserved(name)[0])

    # Outcomes

    def apply(self, receiver: Receiver, message: ModelMessage, outcome: Any) -> None:
        """What an outcome does to a message, for good (3.4)."""
        queue = self.queues[receiver.queue]
        if isinstance(outcome, (Accepted, Rejected)):
            queue.remove(message)
            self.buried += isinstance(outcome, Rejected)
            return
        if isinstance(outcome, Modified):
            if outcome.delivery_failed and self._failed(queue, message):
                return
            if outcome.undeliverable_here and receiver.attached:
                message.excluded.add(receiver)
            if outcome.message_annotations:
                message.annotations |= outcome.message_annotations
                section = encode_section(
                    "message-annotations", {Symbol(key): each for key, each in message.annotations.items()}
                )
                message.size = message.plain_size + len(section)
        self._give_back(message)

    def _failed(self, queue: ModelQueue, message: ModelMessage) -> bool:
        """A delivery failed; whether it was the last one, so that the message is dead."""
        message.tried(1)
        if max(message.counts) < MAX_DELIVERIES:
            return False
        queue.remove(message)
        self.buried += 1
        return True

    def _give_back(self, message: ModelMessage) -> None:
        assert message.is_only(Place.HELD), f"{message!r} comes back, and nobody held it"
        message.give_back()
        self.returned = True

    def wait_for_the_store(
        self, receiver: Receiver, delivery_ids: list[int], state: Any, settled: bool
    ) -> list[int]:
        """An outcome for deliveries that a discharge decides just now is judged when it has: what it says of
        a delivery that went with the transaction is said of none. Returns the others.
        """
        others = []
        for delivery_id in delivery_ids:
            message = receiver.held[delivery_id]
            holder = self.holder_of(message)
            if holder is not None and holder.end == "storing":
                holder.holds[message].late = (state, settled)
                if settled:
                    del receiver.held[delivery_id]
            else:
                others.append(delivery_id)
        return others

    def dispose_plainly(
        self, receiver: Receiver, delivery_ids: list[int], outcome: Any, settled: bool
    ) -> list[Control]:
        """Outcomes outside of any transaction; the control links of those that hold the deliveries are
        terminated (4.4.4.3).
        """
        controls: list[Control] = []
        for delivery_id in delivery_ids:
            message = receiver.held[delivery_id]
            holder = self.holder_of(message)
            if settled:
                del receiver.held[delivery_id]
            if holder is None:
                if not settled:
                    del receiver.held[delivery_id]
                    self.settled.append((receiver, delivery_id, outcome))
                self.apply(receiver, message, outcome)
            else:
                holder.holds[message].settled |= settled
                if holder.control not in controls:
                    controls.append(holder.control)
        return controls

    def dispose(
        self,
        transaction: ModelTransaction,
        receiver: Receiver,
        delivery_ids: list[int],
        outcome: Any,
        settled: bool,
    ) -> bool:
        """Outcomes in a transaction (4.4.2); True when a delivery belongs to another one, so that the control
        link is terminated.
        """
        foreign = False
        fresh = []
        if outcome is None and settled:
            outcome = receiver.default
        for delivery_id in delivery_ids:
            message = receiver.held[delivery_id]
            holder = self.holder_of(message)
            if settled:
                del receiver.held[delivery_id]
            if holder is None:
                fresh.append((delivery_id, message))
            elif holder is transaction:
                holder.holds[message].outcome = outcome
                holder.holds[message].settled |= settled
            else:
                holder.holds[message].settled |= settled
                foreign = True
        if outcome is not None:
            self._retire(transaction, receiver, fresh, outcome, settled)
        return foreign

    def _retire(
        self,
        transaction: ModelTransaction,
        receiver: Receiver,
        fresh: list[tuple[int, ModelMessage]],
        outcome: Any,
        settled: bool,
    ) -> None:
        if transaction.end == "" and not transaction.fits([message.size for _, message in fresh]):
            transaction.end = "failed"
        for delivery_id, message in fresh:
            if transaction.end == "":
                hold = Hold(message, receiver, delivery_id, acquired=False)
                hold.outcome = outcome
                hold.settled = settled
                transaction.holds[message] = hold
                transaction.take(message.size)
            elif settled:  # "the outcome is not applied", and nobody can say another one
                self.apply(receiver, message, receiver.default)

    def dispose_in_none(self, receiver: Receiver, delivery_ids: list[int], settled: bool) -> None:
        """Outcomes in a transaction that there is not: what was settled gets the default outcome, unless
        another transaction holds it.
        """
        for delivery_id in delivery_ids if settled else []:
            message = receiver.held.pop(delivery_id)
            holder = self.holder_of(message)
            if holder is not None:
                holder.holds[message].settled = True
            else:
                self.apply(receiver, message, receiver.default)

    def refuse(self, receiver: Receiver, delivery_ids: list[int], settled: bool) -> None:
        """Outcomes that the source does not offer; the link ends. What was settled by them comes back."""
        for delivery_id in delivery_ids if settled else []:
            message = receiver.held.pop(delivery_id)
            holder = self.holder_of(message)
            if holder is not None:
                holder.holds[message].settled = True
            else:
                self._give_back(message)

    # Ends

    def leave(self, receiver: Receiver, message: ModelMessage) -> None:
        """Its link is gone without a word of it: only what the client may have died of counts as a try."""
        if isinstance(receiver.default, (Accepted, Rejected)):
            self.apply(receiver, message, receiver.default)
        else:
            self.apply(receiver, message, Modified(delivery_failed=message is receiver.suspect))

    def receiver_gone(self, receiver: Receiver, *, broken: bool = False) -> None:
        """A link is gone, so that all its deliveries are as good as settled (2.6.12). `broken`: and with it
        the connection, without a close.
        """
        silent = [delivery_id for delivery_id in receiver.held if delivery_id not in receiver.said]
        if broken and silent:
            receiver.suspect = receiver.held[min(silent)]
        receiver.attached = False
        receiver.acquiring = None
        queue = self.queues[receiver.queue]
        for message in queue.messages.values():
            message.excluded.discard(receiver)
        for message in list(receiver.held.values()):
            holder = self.holder_of(message)
            if holder is None:
                self.leave(receiver, message)
                continue
            hold = holder.holds[message]
            if hold.late is not None and isinstance(hold.late[0], TransactionalState):
                hold.late = (hold.late[0], True)
            else:
                hold.settled = hold.left = True
        receiver.held.clear()

    def commit(self, transaction: ModelTransaction) -> list[tuple[Hold, Any, bool]]:
        """A discharge that was accepted; returns the late dispositions, which count now."""
        assert transaction.end in ("", "storing"), f"{transaction!r} was committed"
        transaction.end = "over"
        transaction.committed = True
        self.clear_acquiring(transaction)
        for name, message in transaction.posts:
            self.queues[name].post(message)
        late: list[tuple[Hold, Any, bool]] = []
        for hold in transaction.holds.values():
            if hold.delivery_id is None:
                self.queues[hold.receiver.queue].remove(hold.message)
            elif hold.outcome is not None:
                self._settle(hold, TransactionalState(txn_id=transaction.txn_id, outcome=hold.outcome))
                self.apply(hold.receiver, hold.message, hold.outcome)
            late += self._end(hold, decided=hold.delivery_id is None or hold.outcome is not None)
        return late

    def _end(self, hold: Hold, *, decided: bool) -> list[tuple[Hold, Any, bool]]:
        """What the discharge has not `decided` ends as if there had been no transaction; a disposition that
        came late counts now. What it has decided stays: who said something else can't be committed.
        """
        if not decided and hold.left:
            self.leave(hold.receiver, hold.message)
        elif not decided and hold.settled:
            self.apply(hold.receiver, hold.message, hold.receiver.default)
        elif not decided and hold.late is not None:
            return [(hold, *hold.late)]
        if hold.late is not None:
            state, settled = hold.late
            if isinstance(state, TransactionalState) and (state.outcome is not None or settled):
                self.fail(state.txn_id)
        return []

    def fail(self, txn_id: bytes) -> None:
        """A part of a transaction can't be done."""
        for transaction in self.transactions:
            if transaction.txn_id == txn_id and transaction.end == "":
                transaction.end = "failed"

    def lose_unknown(self, session: Any, delivery_ids: set[int], state: Any, settled: bool) -> None:
        """An outcome for deliveries that are not unsettled on their session. Said again of what has it in the
        same transaction already, it is no other part.
        """
        if not isinstance(state, TransactionalState) or (state.outcome is None and not settled):
            return
        for transaction in self.transactions:
            if transaction.txn_id == state.txn_id and state.outcome is not None:
                delivery_ids = delivery_ids - {
                    hold.delivery_id for hold in transaction.holds.values()
                    if hold.receiver.link.session is session and hold.outcome == state.outcome
                }  # fmt: skip
        if delivery_ids:
            self.fail(state.txn_id)

    def roll_back(self, transaction: ModelTransaction, end: str = "over") -> list[tuple[Hold, Any, bool]]:
        """Everything else; returns the late dispositions, which count now."""
        assert transaction.holding, f"{transaction!r} was rolled back"
        transaction.end = end
        transaction.timed_out = end == "timeout"
        late: list[tuple[Hold, Any, bool]] = []
        for hold in transaction.holds.values():
            if hold.acquired:
                if hold.delivery_id is not None:
                    self._settle(hold, Released())
                queue = self.queues[hold.receiver.queue]
                if hold.message is not hold.receiver.suspect or not self._failed(queue, hold.message):
                    self._give_back(hold.message)
            late += self._end(hold, decided=hold.acquired)
        return late

    def _settle(self, hold: Hold, state: Any) -> None:
        """The broker settles what the controller did not."""
        assert hold.delivery_id is not None
        if hold.receiver.held.pop(hold.delivery_id, None) is not None:
            self.settled.append((hold.receiver, hold.delivery_id, state))

    def clear_acquiring(self, transaction: ModelTransaction) -> None:
        """4.4.3: "When a transaction is discharged, the txn-id of any link endpoints will be cleared"."""
        for receiver in transaction.control.client.receivers:
            if receiver.acquiring is transaction:
                receiver.acquiring = None

    def restart(self) -> None:
        """Only what is stored is left: presumed abort."""
        for transaction in self.transactions:
            transaction.end = "over"
        for queue in self.queues.values():
            queue.restart()
        self.settled.clear()
