"""The work of transactions as values: what is enlisted, and what the broker is told to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amqp_broker.coordinator.effects import Effect, Kind

if TYPE_CHECKING:
    from amqp_broker.coordinator.errors import TransactionError
    from amqp_broker.coordinator.transaction import Transaction


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
        "consumer", "item", "kind", "left", "merged_bytes", "outcome", "settled", "transaction",
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
