"""All transactions of the broker that are not over, by txn-id: for an administrator, and for who asks how one
ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from amqp_broker.coordinator import Transaction


@attrs.frozen
class LiveTransaction:
    """What an administrator sees of one transaction. Ages are seconds, sizes octets of message bodies.

    `state` is LIVE, ROLLBACK_ONLY (it can't commit any more; `reason` says why) or DISCHARGING (its
    commit is in progress).
    """

    txn_id: bytes
    container_id: str
    principal: str
    state: str
    age_s: float
    timeout_in_s: float
    posted: int
    retired: int
    acquired: int
    size_bytes: int
    reason: str | None


class Transactional(Protocol):
    """The transactions of one connection, as an administrator reaches them."""

    def describe(self, transaction: Transaction) -> LiveTransaction:
        """What an administrator sees of it."""

    def force_rollback(self, txn_id: bytes, reason: str) -> bool:
        """Roll it back now; False while its commit is in progress, or when it is over."""

    def force_commit(self, txn_id: bytes, reason: str, then: Callable[[Exception | None], None]) -> bool:
        """Commit it now; `then` is called when that is decided. False where it can't be."""


class LiveTransactions:
    """The directory; each connection enters its own."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[Transaction, Transactional]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, transaction: Transaction, transactions: Transactional) -> None:
        """A transaction was declared."""
        self._entries[transaction.txn_id] = (transaction, transactions)

    def leave(self, transaction: Transaction) -> None:
        """A transaction is over; harmless when called twice."""
        self._entries.pop(transaction.txn_id, None)

    def find(self, txn_id: bytes) -> Transaction | None:
        """The transaction of this id, unless it is over."""
        entry = self._entries.get(txn_id)
        return None if entry is None else entry[0]

    def describe(self) -> list[LiveTransaction]:
        """All transactions that are not over, the oldest first."""
        return [transactions.describe(transaction) for transaction, transactions in self._entries.values()]

    def force_rollback(self, txn_id: bytes, reason: str) -> bool:
        """Roll one back by hand; False if there is none of this id, or its commit is in progress."""
        entry = self._entries.get(txn_id)
        return entry is not None and entry[1].force_rollback(txn_id, reason)

    def force_commit(self, txn_id: bytes, reason: str, then: Callable[[Exception | None], None]) -> bool:
        """Commit one by hand: `then` is called when it is decided, with why it rolled back. False if there is
        none of this id, it can't commit, its commit is in progress, or a message in it has not come wholly.
        """
        entry = self._entries.get(txn_id)
        return entry is not None and entry[1].force_commit(txn_id, reason, then)
