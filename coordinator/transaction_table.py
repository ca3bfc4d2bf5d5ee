"""The transactions of one connection: which there are, what each holds, and how each ends.

A txn-id means something on its own connection only (4.1), so a foreign one is unknown here by construction.
Nothing here waits or answers a peer: an `Ended` or a `Disposed` says what the broker has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from amqp_broker.coordinator.effects import Effect, Given, Kind, given_by
from amqp_broker.coordinator.errors import (
    ControlLinkTerminated,
    NotSupported,
    TransactionError,
    TransactionLimitExceeded,
    TransactionRollback,
    TransactionTimeout,
    UnknownTransaction,
)
from amqp_broker.coordinator.transaction import Disposed, Ended, Enlisted, Held, Transaction, Work
from amqp_broker.coordinator.transaction_states import TransactionInput, TransactionState
from amqp_broker.frames import Declare, Discharge, TransactionalState

# The bounds of transactions; each of the first four is a default that the configuration may change.
LIVE_PER_CONNECTION: Final = 64  # a controller works on a few at a time; a flood of declares ends here
OPERATIONS_PER_TRANSACTION: Final = 10_000  # what one discharge puts into one store commit
BYTES_PER_TRANSACTION: Final = 64 << 20  # messages that only this transaction keeps in memory
TIMEOUT_S: Final = 120.0  # from the declare; what it holds is free again then
REMEMBERED_PER_CONNECTION: Final = 256  # aborted ones whose reason the next use is told
REMEMBERED_S: Final = 600.0  # and for how long: well beyond any controller that is still there
TXN_ID_BYTES: Final = 16  # random, so that nobody guesses one; the standard allows 32 (4.5.4)
CONTROL_LINK_CREDIT: Final = 10  # the least that a control link is kept at

assert REMEMBERED_PER_CONNECTION >= LIVE_PER_CONNECTION, "all that are live may time out at once"
assert REMEMBERED_S > TIMEOUT_S, "who was late is told so for longer than it may be late"
assert TXN_ID_BYTES <= 32, "4.5.4"


class TransactionLimits:
    """The bounds of one broker: counts, octets, and seconds."""

    __slots__ = ("bytes_per_transaction", "live", "operations", "timeout_s")

    def __init__(
        self,
        live: int = LIVE_PER_CONNECTION,
        operations: int = OPERATIONS_PER_TRANSACTION,
        bytes_per_transaction: int = BYTES_PER_TRANSACTION,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.live = live
        self.operations = operations
        self.bytes_per_transaction = bytes_per_transaction
        self.timeout_s = timeout_s


_LIVE = TransactionState.LIVE
_DISCHARGING = TransactionState.DISCHARGING
_ABORTED = TransactionState.ABORTED


class TransactionTable:
    """The transactions of one connection. `connection` and `container_id`, its peer's name, are only kept for
    who asks.
    """

    def __init__(self, connection: Any, container_id: str, limits: TransactionLimits) -> None:
        self.connection = connection
        self.container_id = container_id
        self.limits = limits
        self._live: dict[bytes, Transaction] = {}
        self._aborted: dict[bytes, Transaction] = {}
        self._held: dict[Any, Held] = {}
        self._acquiring: dict[Any, Transaction] = {}

    # --- declare and discharge

    @property
    def full(self) -> bool:
        """Whether the connection has as many live transactions as it may."""
        return len(self._live) >= self.limits.live

    @property
    def discharging(self) -> bool:
        """Whether the commit of one of them is in progress."""
        return any(transaction.state is _DISCHARGING for transaction in self._live.values())

    def declare(self, control: Any, request: Declare, txn_id: bytes, now: float) -> Transaction:
        """A new transaction of control link `control`; `txn_id` is new in the life of the store.

        Raises NotSupported, TransactionLimitExceeded.
        """
        assert txn_id not in self._live and txn_id not in self._aborted, "a txn-id is never used twice"
        if request.global_id is not None:
            raise NotSupported("global-id needs the capability amqp:distributed-transactions (4.5.2)")
        if self.full:
            raise TransactionLimitExceeded(
                f"this connection has {len(self._live)} transactions, and may have {self.limits.live} "
                "(limits.max_transactions)"
            )
        deadline = now + self.limits.timeout_s
        transaction = Transaction(txn_id, self.connection, control, self.container_id, now, deadline)
        transaction.advance(TransactionInput.DECLARE)
        self._live[txn_id] = transaction
        return transaction

    def discharge(
        self, control: Any, request: Discharge, partial_txn_ids: Collection[bytes] = ()
    ) -> Transaction | Ended:
        """A Transaction is to be committed: then call `commit_done` or `commit_failed`. An Ended is over.

        `partial_txn_ids` are those of incomplete deliveries on the connection. Raises UnknownTransaction,
        TransactionTimeout or TransactionRollback, and ControlLinkTerminated (see `failed_answer`).
        """
        txn_id = request.txn_id
        transaction = self._of_control(control, txn_id)
        if transaction.state is _ABORTED:
            return self._discharge_aborted(transaction, bool(request.fail))
        if not request.fail and txn_id in partial_txn_ids:
            raise ControlLinkTerminated("discharge while a delivery in it is incomplete (4.4.1)", control)
        self._clear_acquiring(transaction)
        if request.fail:
            transaction.advance(TransactionInput.DISCHARGE_FAIL)
            return self._end(transaction, False)
        transaction.advance(TransactionInput.DISCHARGE)
        if transaction.state is _DISCHARGING:
            return transaction
        return self._end(transaction, False, _rollback(transaction))

    def commit_done(self, transaction: Transaction) -> Ended:
        """The store's commit of a discharge returned."""
        transaction.advance(TransactionInput.COMMIT_DONE)
        return self._end(transaction, True)

    def commit_failed(self, transaction: Transaction, reason: str) -> Ended:
        """The store stored nothing of a discharge."""
        transaction.advance(TransactionInput.COMMIT_FAILED)
        return self._end(transaction, False, TransactionRollback(reason))

    def find(self, txn_id: object) -> Transaction:
        """The transaction in which work is wanted. Raises UnknownTransaction, TransactionTimeout or
        TransactionRollback: the link that carried the work is detached.
        """
        if isinstance(txn_id, bytes):
            found = self._live.get(txn_id)
            if found is not None and found.state is not _DISCHARGING:
                return found
            aborted = self._aborted.get(txn_id)
            if aborted is not None:
                raise _again(aborted)
        raise _unknown(txn_id)

    # --- posting

    def enlist(self, transaction: Transaction, posting: Enlisted) -> TransactionError | None:
        """Makes a posting part of the transaction, or says why not: the provisional outcome is then
        `rejected`, and where the posting was sent settled `fail` has to follow (4.4.4.1).
        """
        if transaction.state is not _LIVE:
            return _rollback(transaction)
        if not self._fits(transaction, posting.operations, posting.size_bytes):
            error = self._too_much(transaction)
            transaction.fail(error)
            return error
        transaction.enlist(posting)
        return None

    def fail(self, transaction: Transaction, reason: str) -> None:
        """Something of it can't be done: a discharge will be answered amqp:transaction:rollback. Nothing if
        the discharge has come already.
        """
        if transaction.state is _LIVE:
            transaction.fail(TransactionRollback(reason))

    def lose(self, txn_id: object, reason: str) -> None:
        """Work that named `txn_id` can't be done: that transaction can only roll back. Nothing happens where
        it is no live one.
        """
        found = self._live.get(txn_id) if isinstance(txn_id, bytes) else None
        if found is not None:
            self.fail(found, reason)

    def postings(self, txn_id: object) -> Sequence[Any]:
        """The postings that are part of a transaction so far."""
        found = self._live.get(txn_id) if isinstance(txn_id, bytes) else None
        return [] if found is None else found.postings

    def count_held(self, txn_id: object) -> int:
        """How many messages a transaction has acquired or retired so far."""
        found = self._live.get(txn_id) if isinstance(txn_id, bytes) else None
        return 0 if found is None else len(found.held)

    def count_given(self, txn_id: object, outcome: Any, wanted: Callable[[Any], bool]) -> int:
        """How many of the wanted deliveries have this outcome in this transaction."""
        found = self._live.get(txn_id) if isinstance(txn_id, bytes) else None
        held = [] if found is None or outcome is None else found.held.values()
        return sum([each.outcome == outcome and wanted(each.item) for each in held])

    # --- retirement

    @property
    def merged_bytes(self) -> int:
        """The octets that outcomes have made of messages, in all transactions that are not over."""
        return sum([found.merged_bytes for found in self._live.values()])

    @property
    def holds_any(self) -> bool:
        """Whether a plain disposition has to be shown to `dispose_plainly` at all."""
        return bool(self._held)

    def commit_in_progress(self, items: Sequence[Any]) -> bool:
        """Whether a commit that discharges one of these deliveries is in progress: what the peer says of them
        waits for its result.
        """
        if not self._held:
            return False
        found = [self._held[item] for item in items if item in self._held]
        return any(held.transaction.state is _DISCHARGING for held in found)

    def count_before_end(self, items: Sequence[Any], state: Any) -> int:
        """How many of the first of these outcomes there are up to one, with it, that ends a control link: for
        what is held by a live transaction that they do not name. Those behind it are given when that
        has ended, whether they came in one frame with it or in a later one.
        """
        if not self._held:
            return len(items)
        named = None
        if isinstance(state, TransactionalState):
            named = self._live.get(state.txn_id)
            if named is None:  # that ends the link on which they came
                return len(items)
        count = 0
        for item in items:
            count += 1
            held = self._held.get(item)
            if held is not None and held.transaction is not named:
                break
        return count

    def dispose(
        self, consumer: Any, items: Sequence[Any], state: TransactionalState, settled: bool, default: Any
    ) -> Disposed:
        """A disposition in a transaction for a run of deliveries of `consumer`; `default` is the source's
        default outcome, which a settled disposition without an outcome gives.
        """
        disposed = Disposed()
        try:
            transaction = self.find(state.txn_id)
        except TransactionError as error:
            disposed.errors.append(error)
            self._settled_for_nothing(consumer, items, settled, disposed)
            return disposed
        outcome: Any = state.outcome
        if given_by(outcome) is Given.NOTHING:
            outcome = default if settled else None
        fresh = []
        foreign = False
        for item in items:
            held = self._held.get(item)
            if held is None:
                fresh.append(item)
            elif held.transaction is transaction:
                transaction.give(held, outcome, settled)
                if not self._fits(transaction, 0, 0) and transaction.state is _LIVE:
                    transaction.fail(self._too_much(transaction))
            else:
                held.settled = held.settled or settled
                foreign = True
        if fresh and outcome is not None:
            self._retire(transaction, consumer, fresh, outcome, settled, disposed)
        if foreign:
            disposed.errors.append(
                ControlLinkTerminated(
                    "an outcome for a delivery that belongs to another live transaction (4.4.2)",
                    transaction.control,
                )
            )
        return disposed

    def dispose_plainly(self, items: Sequence[Any], state: Any, settled: bool) -> Disposed:
        """A disposition outside of any transaction, as far as `count_before_end` said. An outcome for what a
        live transaction holds MUST be associated with that transaction (4.4.4.3): its control link is
        terminated.
        """
        disposed = Disposed()
        for item in items:
            held = self._held.get(item)
            if held is None:
                disposed.free.append(item)
            else:
                held.settled = held.settled or settled
                text = "an outcome outside of the transaction to which the delivery belongs (4.4.4.3)"
                disposed.errors.append(ControlLinkTerminated(text, held.transaction.control))
        return disposed

    # --- acquisition

    def flow(self, consumer: Any, txn_id: object) -> None:
        """A flow of the receiver: what its link acquires from now on belongs to this transaction, or to none.

        Raises as `find` does: the link is detached.
        """
        if txn_id is None:
            self._acquiring.pop(consumer, None)
        else:
            self._acquiring[consumer] = self.find(txn_id)

    def given(self, item: Any) -> Any:
        """The outcome that a live transaction has for a delivery, if one holds it."""
        held = self._held.get(item)
        return None if held is None else held.outcome

    def acquires(self, consumer: Any) -> bool:
        """Whether what is sent to `consumer` now belongs to a transaction; `acquiring` says to which."""
        return consumer in self._acquiring

    def acquiring(self, consumer: Any) -> Transaction | None:
        """The transaction to which what is sent to `consumer` now belongs.

        Raises TransactionTimeout or TransactionRollback when it ended without the controller's discharge: the
        link is detached, since its controller would take what comes now for transactional.
        """
        if not self._acquiring:
            return None
        transaction = self._acquiring.get(consumer)
        if transaction is not None and transaction.txn_id not in self._live:
            raise _again(transaction)
        return transaction

    def admit(self, transaction: Transaction, sizes_bytes: Sequence[int]) -> int:
        """How many of the next messages, of these sizes, it may still acquire.

        Raises TransactionLimitExceeded if not even one: it can only roll back, and the link is detached.
        """
        count = 0
        size = 0
        for size_bytes in sizes_bytes:
            size += size_bytes
            if not self._fits(transaction, count + 1, size):
                break
            count += 1
        if sizes_bytes and not count:
            error = self._too_much(transaction)
            transaction.fail(error)
            raise error
        return count

    def acquired(self, transaction: Transaction, consumer: Any, items: Sequence[Any], settled: bool) -> None:
        """`items` were sent to `consumer` in the transaction: OutgoingDeliveries, or the messages themselves
        where we sent them settled. Ask `admit` before.
        """
        kind = Kind.ACQUISITION_SETTLED if settled else Kind.ACQUISITION
        for item in items:
            held = Held(transaction, kind, consumer, item)
            self._held[item] = held
            transaction.hold(held, len(item.body if settled else item.message.body))

    def lose_sending(self, item: Any, reason: str) -> bool:
        """The rest of what is being sent can't be had, and it is aborted; whether a transaction holds it. If
        that has acquired it, and nobody gave it an outcome, it returns with the end, however that comes; else
        the transaction can't commit.
        """
        held = self._held.get(item)
        if held is None:
            return False
        if held.kind is Kind.ACQUISITION and held.outcome is None:
            held.lost = True
        else:
            held.settled = True
            self.fail(held.transaction, reason)
        return True

    # --- ends

    def next_deadline(self) -> float | None:
        """When `expired` is worth asking, in seconds of the caller's clock; None is never."""
        for found in self._live.values():  # in the order of their deadlines, since all may last equally long
            if found.state is not _DISCHARGING:
                return found.deadline
        return None

    def expired(self, now: float) -> list[Ended]:
        """Roll back the transactions that lasted too long; their ids are remembered for a while."""
        for txn_id, aborted in list(self._aborted.items()):
            if aborted.deadline + REMEMBERED_S <= now:
                del self._aborted[txn_id]
        late = [found for found in self._live.values() if found.deadline <= now]
        ended = []
        for transaction in late:
            transaction.advance(TransactionInput.TIMEOUT)
            if transaction.state is _ABORTED:
                lasted = f"the transaction lasted longer than {self.limits.timeout_s:g} s"
                ended.append(self._abort(transaction, TransactionTimeout(lasted)))
        return ended

    def force_rollback(self, txn_id: bytes, reason: str) -> Ended | None:
        """An administrator's rollback; None if there is no such transaction, or its commit is in
        progress.
        """
        transaction = self._live.get(txn_id)
        if transaction is None or transaction.state is _DISCHARGING:
            return None
        transaction.advance(TransactionInput.FORCED)
        return self._abort(transaction, TransactionRollback(reason))

    def force_commit(self, txn_id: bytes, partial_txn_ids: Collection[bytes] = ()) -> Transaction | None:
        """An administrator's commit: then call `commit_done` or `commit_failed`. None if there is no such
        transaction, it can't commit, its commit is in progress, or a delivery in it is incomplete.
        """
        transaction = self._live.get(txn_id)
        if transaction is None or transaction.state is not _LIVE or txn_id in partial_txn_ids:
            return None
        self._clear_acquiring(transaction)
        transaction.advance(TransactionInput.DISCHARGE)
        return transaction

    def control_closed(self, control: Any) -> list[Ended]:
        """A control link is gone: what it declared and did not discharge is rolled back at once (4.1)."""
        ended = []
        for transaction in [found for found in self._live.values() if found.control is control]:
            transaction.advance(TransactionInput.CONTROL_CLOSED)
            if transaction.state is not _DISCHARGING:
                transaction.reason = TransactionRollback("its control link was closed (4.1)")
                ended.append(self._end(transaction, False))
        for aborted in [found for found in self._aborted.values() if found.control is control]:
            aborted.advance(TransactionInput.CONTROL_CLOSED)
            del self._aborted[aborted.txn_id]
        return ended

    def consumer_gone(self, consumer: Any, items: Sequence[Any], *, left: bool) -> list[Any]:
        """The link of `consumer` is gone. Those of these deliveries that no transaction holds are the answer;
        the others are as good as settled by the controller and wait for its discharge. `left`: nobody has
        settled them but the end of the link.
        """
        self._acquiring.pop(consumer, None)
        if not self._held:
            return list(items)
        free = []
        for item in items:
            held = self._held.get(item)
            if held is None:
                free.append(item)
            elif not held.settled:
                held.settled = True
                held.left = left
        return free

    def connection_gone(self) -> list[Ended]:
        """The connection is gone: roll back every transaction whose commit is not in progress."""
        ended = []
        for control in [transaction.control for transaction in self._live.values()]:
            ended.extend(self.control_closed(control))
        self._aborted.clear()
        self._acquiring.clear()
        return ended

    def live(self) -> list[Transaction]:
        """All transactions that are not over, the oldest first."""
        return list(self._live.values())

    # --- parts

    def _of_control(self, control: Any, txn_id: bytes) -> Transaction:
        found = self._live.get(txn_id)
        if found is None:
            found = self._aborted.get(txn_id)
        if found is None or found.control is not control or found.state is _DISCHARGING:
            raise _unknown(txn_id)
        return found

    def _discharge_aborted(self, transaction: Transaction, fail: bool) -> Ended:
        """The controller learns what happened, and the id is forgotten."""
        del self._aborted[transaction.txn_id]
        self._clear_acquiring(transaction)
        transaction.advance(TransactionInput.DISCHARGE_FAIL if fail else TransactionInput.DISCHARGE)
        error = None if fail else _again(transaction)
        return Ended(transaction, False, [], [], transaction.consumers, error)

    def _fits(self, transaction: Transaction, operations: int, size_bytes: int) -> bool:
        limits = self.limits
        return (
            transaction.operations + operations <= limits.operations
            and transaction.size_bytes + size_bytes <= limits.bytes_per_transaction
        )

    def _too_much(self, transaction: Transaction) -> TransactionLimitExceeded:
        limits = self.limits
        return TransactionLimitExceeded(
            f"the transaction has {transaction.operations} operations and {transaction.size_bytes} bytes, "
            f"and may have {limits.operations} (limits.transaction_operations) and "
            f"{limits.bytes_per_transaction} (limits.transaction_bytes)"
        )

    def _retire(
        self, transaction: Transaction, consumer: Any, items: list[Any], outcome: Any, settled: bool,
        disposed: Disposed,
    ) -> None:  # fmt: skip
        merged = sum([item.merged_bytes for item in items])
        size = sum([len(item.message.body) for item in items]) + merged
        if transaction.state is _LIVE:
            if self._fits(transaction, len(items), size):
                retirement = Kind.RETIREMENT
                run = {
                    item: Held(transaction, retirement, consumer, item, outcome, settled) for item in items
                }
                transaction.hold_run(run, size, merged)
                self._held.update(run)
                return
            transaction.fail(self._too_much(transaction))
        if settled:  # it will be rolled back, so what the rollback does can be done now
            disposed.works.append(Work(consumer, Effect.APPLY_DEFAULT, items))

    def _settled_for_nothing(
        self, consumer: Any, items: Sequence[Any], settled: bool, disposed: Disposed
    ) -> None:
        """The controller settled deliveries in a transaction that there is not: nobody else ends them."""
        if not settled:
            return
        fresh = []
        for item in items:
            held = self._held.get(item)
            if held is None:
                fresh.append(item)
            else:
                held.settled = True
        if fresh:
            disposed.works.append(Work(consumer, Effect.APPLY_DEFAULT, fresh))

    def _clear_acquiring(self, transaction: Transaction) -> None:
        """4.4.3: "When a transaction is discharged, the txn-id of any link endpoints will be cleared."."""
        consumers = [consumer for consumer, found in self._acquiring.items() if found is transaction]
        for consumer in consumers:
            del self._acquiring[consumer]
        transaction.consumers = consumers

    def _abort(self, transaction: Transaction, reason: TransactionError) -> Ended:
        transaction.reason = reason
        ended = self._end(transaction, False)
        self._aborted[transaction.txn_id] = transaction
        if len(self._aborted) > REMEMBERED_PER_CONNECTION:
            del self._aborted[next(iter(self._aborted))]
        return ended

    def _end(self, transaction: Transaction, committed: bool, error: TransactionError | None = None) -> Ended:
        """Take the work out of a transaction; what it held is free."""
        del self._live[transaction.txn_id]
        works = transaction.works(committed)
        for item in transaction.held:
            del self._held[item]
        ended = Ended(transaction, committed, transaction.postings, works, transaction.consumers, error)
        transaction.held = {}
        transaction.postings = []
        return ended


def _again(transaction: Transaction) -> TransactionError:
    """The reason of a rollback, to be told once more."""
    reason = transaction.reason
    if isinstance(reason, TransactionTimeout):
        return TransactionTimeout(reason.description)
    return TransactionRollback("it was rolled back" if reason is None else reason.description)


def _rollback(transaction: Transaction) -> TransactionRollback:
    """Why a transaction can't commit; one error object for each answer."""
    reason = transaction.reason
    if reason is None:
        return TransactionRollback("it can only be rolled back")
    same = type(reason) is TransactionRollback
    return TransactionRollback(reason.description if same else str(reason))


def _unknown(txn_id: object) -> UnknownTransaction:
    shown = txn_id.hex()[:64] if isinstance(txn_id, bytes) else f"{txn_id!r:.64}"
    return UnknownTransaction(f"expected the txn-id of a live transaction of this connection, got {shown}")
