"""The transactions of one connection, with what became of each kept for the check to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from client import TIMEOUT_S, Client, expect
from cproton import pn_disposition_data
from proton import Data, Delivery, Described, Message, symbol, ulong
from proton.handlers import TransactionalClientHandler
from proton.reactor import Transaction

DECLARED, DECLARE_FAILED = "declared", "on_transaction_declare_failed"
COMMITTED, ABORTED, COMMIT_FAILED = "committed", "aborted", "on_transaction_commit_failed"
ACCEPTED = Described(ulong(0x24), [])
REJECTED = Described(ulong(0x25), [])
RELEASED = Described(ulong(0x26), [])
TRANSACTIONAL_STATE = 0x34
"""What proton gives as the number of a delivery state that it does not know itself (part 4.5.6)."""


class Controller(TransactionalClientHandler):
    """Declares and discharges on the control link that proton keeps for the connection.

    proton leaves the outcomes of the control link's source unset: a failed request is answered with rejected.
    ``excludes_rejected``: the source names accepted alone, and the link is detached then (part 4.2, 4.3).
    """

    def __init__(self, client: Client, excludes_rejected: bool = False) -> None:
        super().__init__(prefetch=0)
        self._client = client
        self._excludes_rejected = excludes_rejected
        self._results: dict[Transaction, str] = {}
        self.error: str | None = None
        """The condition with which the broker detached the control link."""

    # --- what proton calls

    def on_transaction_declared(self, event: Any) -> None:
        # proton 0.40.0 keeps a view into the delivery's memory as the id, and uses that memory again once the
        # delivery is settled: with several transactions at a time, one would get another's id.
        event.transaction.id = bytes(event.transaction.id)
        self._results[event.transaction] = DECLARED

    def on_transaction_declare_failed(self, event: Any) -> None:
        self._results[event.transaction] = self._failure(event, DECLARE_FAILED)

    def on_transaction_committed(self, event: Any) -> None:
        self._results[event.transaction] = COMMITTED

    def on_transaction_aborted(self, event: Any) -> None:
        self._results[event.transaction] = ABORTED

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._results[event.transaction] = self._failure(event, COMMIT_FAILED)

    def on_link_error(self, event: Any) -> None:
        self.error = event.link.remote_condition.name

    def on_link_closing(self, _: Any) -> None:
        self.error = "none given"

    def _failure(self, event: Any, method: str) -> str:
        condition = event.delivery.remote.condition
        return f"{method}: {condition.name if condition else None}"

    # --- what a check calls

    def declare(self, settle_before_discharge: bool = False) -> Transaction:
        transaction = self.ask(settle_before_discharge)
        expect("declare", DECLARED, self.result(transaction))
        return transaction

    def ask(self, settle_before_discharge: bool = False) -> Transaction:
        """A transaction whose declare is on its way."""
        connection = self._client.connection
        transaction = connection.container.declare_transaction(connection.conn, self, settle_before_discharge)
        if self._excludes_rejected:
            transaction.txn_ctrl.source.outcomes.put_object(symbol("amqp:accepted:list"))
            self._excludes_rejected = False
        return transaction

    def result(self, transaction: Transaction) -> str:
        """What became of the last request: one of the words above, or the error of the control link."""
        self._wait(
            lambda: transaction in self._results or self.error is not None, "no answer by the coordinator"
        )
        return self._results.get(transaction, f"control link: {self.error}")

    def discharge(self, transaction: Transaction, fail: bool) -> str:
        self.begin_discharge(transaction, fail)
        return self.result(transaction)

    def begin_discharge(self, transaction: Transaction, fail: bool) -> None:
        self._results.pop(transaction, None)
        transaction.discharge(fail)

    def commit(self, transaction: Transaction) -> None:
        expect("commit", COMMITTED, self.discharge(transaction, fail=False))

    def abort(self, transaction: Transaction) -> None:
        expect("abort", ABORTED, self.discharge(transaction, fail=True))

    def end(self, transaction: Transaction, fail: bool) -> None:
        expect("discharge", ABORTED if fail else COMMITTED, self.discharge(transaction, fail))

    def send(self, transaction: Transaction, sender: Any, messages: Iterable[Message]) -> None:
        """Sends and checks what is answered before the discharge: this transaction, accepted (part 4.4.1)."""
        for delivery in self.post(transaction, sender, messages):
            state, outcome = provisional(transaction, delivery)
            expect("answer to a send in a transaction", (TRANSACTIONAL_STATE, 0x24), (state, outcome))
            delivery.settle()

    def post(self, transaction: Transaction, sender: Any, messages: Iterable[Message]) -> list[Delivery]:
        """Sends and returns the deliveries once the broker has settled them all."""
        deliveries = [transaction.send(sender.link, message) for message in messages]
        for delivery in deliveries:
            self._wait(lambda delivery=delivery: delivery.settled, "a send in a transaction was not answered")
        return deliveries

    def forget(self) -> None:
        """Lets the next declare attach a control link: proton goes on with the old one, though detached."""
        del self._client.connection.conn._txn_ctrl
        self.error = None

    def _wait(self, condition: Any, what: str) -> None:
        self._client.connection.wait(condition, timeout=TIMEOUT_S, msg=what)


def provisional(transaction: Transaction, delivery: Delivery) -> tuple[int, int | None]:
    """The descriptors of a delivery's state and of the outcome in it; its id must be the transaction's."""
    if delivery.remote_state != TRANSACTIONAL_STATE:
        return int(delivery.remote_state), None
    data = delivery.remote.data
    expect("txn-id of the state", transaction.id, bytes(data[0]))
    return TRANSACTIONAL_STATE, int(data[1].descriptor) if len(data) > 1 else None


def update(transaction: Transaction, delivery: Delivery, outcome: Any) -> None:
    """Any outcome in a transaction; ``Transaction.update`` gives outcomes without their fields only."""
    # proton 0.40.0 writes the state of a second update behind that of the first, into a malformed frame.
    Data(pn_disposition_data(delivery.local._impl)).clear()
    delivery.local.data = [transaction.id, outcome]
    delivery.update(TRANSACTIONAL_STATE)
