"""What the tests of the coordinator hand in for the broker's own things: plain objects, never looked into."""

from __future__ import annotations

from typing import Any

from amqp_broker.coordinator import Ended, Transaction, TransactionLimits, TransactionTable
from amqp_broker.frames import Accepted, Declare, Discharge, Released, TransactionalState
from amqp_broker.persistence import Record

ACCEPTED = Accepted()
RELEASED = Released()
DECLARE = Declare()


class Delivery:
    """An outgoing delivery: `message` has a body, and what an outcome makes of it a size."""

    def __init__(self, body: bytes = b"x", merged_bytes: int = 0) -> None:
        self.message = Record(0, body)
        self.merged_bytes = merged_bytes


class Posting:
    """An enlisted posting: what it takes of the limits of its transaction."""

    def __init__(self, name: str = "p", operations: int = 1, size: int = 1):
        self.name = name
        self.operations = operations
        self.size_bytes = size



def table(**limits: Any) -> TransactionTable:
    """The transactions of one connection."""
    return TransactionTable("connection", "peer", TransactionLimits(**limits))


def txn(of: TransactionTable, number: int = 1, control: Any = "control", now: float = 0.0) -> Transaction:
    """A transaction that `control` declares."""
    return of.declare(control, DECLARE, number.to_bytes(16, "big"), now)


def state(transaction: Transaction, outcome: Any = ACCEPTED) -> TransactionalState:
    """The state of a disposition in the transaction."""
    return TransactionalState(txn_id=transaction.txn_id, outcome=outcome)


def discharge(of: TransactionTable, transaction: Transaction, fail: bool = False) -> Ended:
    """A discharge by its own control link, whose commit succeeds."""
    request = Discharge(txn_id=transaction.txn_id, fail=fail)
    found = of.discharge(transaction.control, request)
    return found if isinstance(found, Ended) else of.commit_done(found)


def commit_fails(of: TransactionTable, transaction: Transaction) -> Ended:
    """A discharge by its own control link, whose commit fails."""
    found = of.discharge(transaction.control, Discharge(txn_id=transaction.txn_id))
    assert isinstance(found, Transaction)
    return of.commit_failed(found, "the store is full")


def done(ended: Ended) -> list[tuple[str, list[Any], Any, bool]]:
    """The works of an end, readable."""
    return [(work.effect.name, work.items, work.outcome, work.settles) for work in ended.works]


def dispose(of: Any, transaction: Transaction, items: list[Any], outcome: Any = ACCEPTED, **how: Any) -> Any:
    """A disposition of `consumer` in the transaction, unsettled unless said."""
    settled = how.get("settled", False)
    consumer = how.get("consumer", "consumer")
    return of.dispose(consumer, items, state(transaction, outcome), settled, RELEASED)
