"""One transaction: its place in the table of states, the work that was enlisted, and as values what the
broker is told to do with it.
"""

from __future__ import annotations

from typing import Any, Protocol

from amqp_broker.coordinator.effects import Effect, Kind, decide, given_by
from amqp_broker.coordinator.errors import TransactionError
from amqp_broker.coordinator.transaction_states import TRANSACTION_TABLE, TransactionInput, TransactionState
from amqp_broker.frames import Accepted, Released, TransactionalState


class Enlisted(Protocol):
    """An operation that is part of a transaction, as the broker hands it in: how much of its limits it takes.
    The broker has it stored, or refused, when the transaction has ended.
    """

    operations: int
    """How many messages."""
    size_bytes: int


class Held:
    """One message that a transaction has acquired or retires. `item` is the OutgoingDelivery, or the message
    itself when it was sent settled; `consumer` outlives its link here.
    """

    __slots__ = (
        "consumer", "item", "kind", "left", "lost", "merged_bytes", "outcome", "settled", "transaction",
    )  # fmt: skip

    def __init__(
        self,
        transaction: Transaction,
        kind: Kind,
        consumer: Any,
        item: Any,
        outcome: Any = None,
        settled: bool = False,
    ) -> None:
        self.transaction = transaction
        self.kind = kind
        self.consumer = consumer
        self.item = item
        self.outcome: Any = outcome
        self.settled = settled or kind is Kind.ACQUISITION_SETTLED
        self.merged_bytes = 0  # counted for what the outcome makes of the message
        self.left = False  # settled by the end of its link, and not by the controller
        self.lost = False  # aborted before all of it was sent: nobody has got it


class Work:
    """What to do with a run of `items` of one consumer: the effect, and then our settled disposition if
    `settles`.

    `outcome` is the given one, for RETIRE and RETURN.
    """

    __slots__ = ("consumer", "effect", "items", "outcome", "settles")

    def __init__(
        self, consumer: Any, effect: Effect, items: list[Any], outcome: Any = None, settles: bool = False
    ) -> None:
        self.consumer = consumer
        self.effect = effect
        self.items = items
        self.outcome = outcome
        self.settles = settles

    def __repr__(self) -> str:
        settles = ", settles" if self.settles else ""
        return f"<Work {self.effect.value}, {len(self.items)} items, {self.outcome!r:.60}{settles}>"


class Ended:
    """A transaction is over: the `postings` are stored or refused, then `works` are done, then it is
    answered.

    `consumers` had the txn-id on their link endpoints, which is cleared now; their credit stays (4.4.3).
    `error` None: a discharge is answered `accepted`; else with the error.
    """

    __slots__ = ("committed", "consumers", "error", "postings", "transaction", "works")

    def __init__(
        self, transaction: Transaction, committed: bool, postings: list[Any], works: list[Work],
        consumers: list[Any], error: TransactionError | None = None,
    ) -> None:  # fmt: skip
        self.transaction = transaction
        self.committed = committed
        self.postings = postings
        self.works = works
        self.consumers = consumers
        self.error = error


class Disposed:
    """The answer to a disposition: `works` to do now, `free` items to which the outcome applies outside of
    transactions, and `errors`: of each ControlLinkTerminated its `control` ends, for others the link that
    carried it.
    """

    __slots__ = ("errors", "free", "works")

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.free: list[Any] = []
        self.errors: list[TransactionError] = []


class Transaction:
    """Times are seconds of the caller's monotonic clock, sizes octets of message bodies.

    `connection` is whose it is, `control` the link that declared it; both are opaque here. `reason` says why
    it can't commit. `merged_bytes` is the part of `size_bytes` that outcomes have made of messages.
    """

    __slots__ = (
        "_accepted", "acquired", "connection", "consumers", "container_id", "control", "deadline",
        "declared_at", "held", "merged_bytes", "operations", "posted", "postings", "reason", "retired",
        "size_bytes", "state", "txn_id",
    )  # fmt: skip

    def __init__(
        self, txn_id: bytes, connection: Any, control: Any, container_id: str, declared_at: float,
        deadline: float,
    ) -> None:  # fmt: skip
        self.txn_id = txn_id
        self.connection = connection
        self.control = control
        self.container_id = container_id
        self.declared_at = declared_at
        self.deadline = deadline
        self.state = TransactionState.UNDECLARED
        self.reason: TransactionError | None = None
        self.postings: list[Any] = []
        self.held: dict[Any, Held] = {}
        self.consumers: list[Any] = []
        """Those whose link endpoints had its txn-id when it was discharged."""
        self.operations = 0
        self.size_bytes = 0
        self.merged_bytes = 0
        self.posted = 0
        self.retired = 0
        self.acquired = 0
        self._accepted: TransactionalState | None = None  # once it was asked for

    def __repr__(self) -> str:
        return (
            f"<Transaction {self.txn_id.hex()} {self.state.value}: {self.posted} posted, {self.retired} "
            f"retired, {self.acquired} acquired, {self.size_bytes} bytes>"
        )

    def state_of(self, outcome: Any) -> TransactionalState:
        """What is told of an outcome in it (4.5.8): most are accepted, and share one."""
        if type(outcome) is not Accepted:
            return TransactionalState(txn_id=self.txn_id, outcome=outcome)
        if self._accepted is None:
            self._accepted = TransactionalState(txn_id=self.txn_id, outcome=outcome)
        return self._accepted

    def advance(self, what: TransactionInput) -> None:
        """One step in the table of states; a forbidden one is our own bug."""
        following = TRANSACTION_TABLE[self.state][what]
        assert following is not None, f"{what.value} on {self!r}"
        self.state = following

    def fail(self, reason: TransactionError) -> None:
        """The transaction can only be rolled back from now on; the first reason is kept."""
        if self.state is not TransactionState.DISCHARGING:  # else its discharge looks at the reason
            self.advance(TransactionInput.FAIL)
        if self.reason is None:
            self.reason = reason

    def enlist(self, posting: Enlisted) -> None:
        """Make a posting part of the transaction."""
        self.advance(TransactionInput.ENLIST)
        self.postings.append(posting)
        self.operations += posting.operations
        self.posted += posting.operations
        self.size_bytes += posting.size_bytes

    def hold(self, held: Held, size_bytes: int) -> None:
        """Make a message that is acquired or retired part of the transaction."""
        self.advance(TransactionInput.ENLIST)
        self.held[held.item] = held
        self.operations += 1
        self.size_bytes += size_bytes
        if held.kind is Kind.RETIREMENT:
            self.retired += 1
        else:
            self.acquired += 1

    def hold_run(self, held: dict[Any, Held], size_bytes: int, merged_bytes: int) -> None:
        """Make a run of messages that are retired part of the transaction; `merged_bytes` of the size are
        merged.
        """
        self.advance(TransactionInput.ENLIST)
        self.held.update(held)
        self.operations += len(held)
        self.size_bytes += size_bytes
        self.retired += len(held)
        if merged_bytes:
            self.merged_bytes += merged_bytes
            for each in held.values():
                each.merged_bytes = each.item.merged_bytes

    def give(self, held: Held, outcome: Any, settled: bool) -> None:
        """An outcome for what it holds: the last one wins, and settling is for good."""
        if held.outcome is None and outcome is not None and held.kind is not Kind.RETIREMENT:
            self.retired += 1
        more = held.item.merged_bytes - held.merged_bytes
        self.size_bytes += more
        self.merged_bytes += more
        held.merged_bytes += more
        held.outcome = outcome
        held.settled = held.settled or settled

    def works(self, committed: bool) -> list[Work]:
        """What a commit or a rollback does with the messages that it holds, in runs, in their order.

        A pure function of what it holds: for the verbs of a commit it is asked before, to act on afterwards.
        """
        runs: dict[tuple[int, Effect, int, bool], Work] = {}
        works: list[Work] = []
        last: Held | None = None
        items: list[Any] = []
        for held in self.held.values():
            if (
                last is not None
                and held.outcome is last.outcome
                and held.consumer is last.consumer
                and held.settled is last.settled
                and held.left is last.left
                and held.lost is last.lost
                and held.kind is last.kind
            ):
                items.append(held.item)
                continue
            effect, settles = decide(
                held.kind, given_by(held.outcome), held.settled, committed, held.left
            )
            if held.lost:
                effect, settles = Effect.RELEASE, False
            outcome = held.outcome if effect in (Effect.RETIRE, Effect.RETURN) else None
            if held.kind is Kind.ACQUISITION_SETTLED and effect is Effect.RETIRE:
                outcome = Accepted()
            key = (id(held.consumer), effect, _likeness(outcome), settles)
            run = runs.get(key)
            if run is None:
                run = runs[key] = Work(held.consumer, effect, [], outcome, settles)
                works.append(run)
            items = run.items
            items.append(held.item)
            last = held
        return works

    def age(self, now: float) -> float:
        """The seconds since the declare."""
        return now - self.declared_at


def _likeness(outcome: object) -> int:
    """What is equal for outcomes that are alike: those without fields, else only an outcome and itself."""
    if type(outcome) is Accepted:
        return 1
    if type(outcome) is Released:
        return 2
    return 0 if outcome is None else id(outcome)
