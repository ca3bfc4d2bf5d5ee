"""Take orders, write invoices, each pair in one transaction: `in_transactions.py amqp://127.0.0.1:5672`.

An order leaves its queue if and only if its invoice is there. When the answer to a discharge is lost, the
node `$transactions` knows how it ended. (python-qpid-proton; any client with transactions does the same.)
"""

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

ORDERS, INVOICES = "orders", "invoices"


class Invoicing(MessagingHandler, TransactionHandler):
    """Works through `count` orders, one transaction for each, and keeps the txn-ids."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.left = url, count
        self.txn_ids: list[bytes] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="ANONYMOUS")
        self.invoices = event.container.create_sender(self.connection, INVOICES)
        self.orders = event.container.create_receiver(self.connection, ORDERS)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.txn_ids.append(bytes(event.transaction.id))
        self.orders.flow(1)

    def on_message(self, event: Any) -> None:
        self.transaction.send(self.invoices, Message(body=f"invoice for {event.message.body}", durable=True))
        self.transaction.accept(event.delivery)
        self.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.left -= 1
        if self.left:
            self.container.declare_transaction(self.connection, handler=self)
        else:
            self.connection.close()


def outcome_of(url: str, txn_id: bytes) -> str:
    """What became of a transaction: committed, not-committed, pending (ask again) or live."""
    connection = BlockingConnection(url, allowed_mechs="ANONYMOUS")
    try:
        replies = connection.create_receiver(None, dynamic=True)
        question = Message(correlation_id=txn_id, reply_to=replies.link.remote_source.address)
        connection.create_sender("$transactions").send(question)
        reply = replies.receive(timeout=5)
        replies.accept()
        return str(reply.body)
    finally:
        connection.close()


def main(url: str) -> None:
    """Three orders, three invoices."""
    connection = BlockingConnection(url, allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(ORDERS)
    for number in range(1, 4):
        sender.send(Message(body=f"order {number}", durable=True))
    connection.close()
    invoicing = Invoicing(url, 3)
    Container(invoicing).run()
    for txn_id in invoicing.txn_ids:
        print(txn_id.hex(), outcome_of(url, txn_id))


if __name__ == "__main__":
    main(sys.argv[1])
