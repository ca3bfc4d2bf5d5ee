"""Nodes that do something with each message and keep none: links to them, and the answers.

transfer --> RequestSink.receive(request) ... request.answer(outcome)
                                      --mail--> settled in a turn of the connection
in a transaction: enlist(request, transaction) --> part of its one commit, or why not
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from amqp_broker.authorisation import Principal
from amqp_broker.connection import Connection, Sink
from amqp_broker.coordinator import Transaction, TransactionError
from amqp_broker.frames import Error, Rejected, TransactionalState
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.nodes.node import Attachment, Node

SETTLED_ERROR: Final = Error(
    condition="amqp:not-allowed",
    description="expected an unsettled message: its sender has to learn the answer",
)


class AskAgain(Exception):
    """A request can be judged only when what came before it is stored, or refused. Nothing of it was done."""


class Request:
    """One message that is answered for itself, now or later, in any task. `again`: it was put off once
    (`AskAgain`), and is not a second time.
    """

    __slots__ = ("_sink", "again", "delivery")

    def __init__(self, sink: Sink, delivery: Delivery, *, again: bool = False) -> None:
        self._sink = sink
        self.delivery = delivery
        self.again = again

    @property
    def payload(self) -> bytes:
        """The encoded message."""
        return self.delivery.payload

    @property
    def message_format(self) -> int:
        """The message-format of the message."""
        return self.delivery.message_format

    @property
    def principal(self) -> Principal:
        """The principal that sent the request."""
        return self._sink.connection.principal

    @property
    def container_id(self) -> str:
        """The container-id of the sender."""
        return self._sink.connection.container_id

    def answer(self, outcome: Any) -> None:
        """Called once: the sender is told in the next turn of its connection."""
        self._sink.connection.run_in_turn(self._answer, outcome)

    @property
    def connection(self) -> Connection:
        """The connection of the sender."""
        return self._sink.connection

    def failed(self, error: Exception) -> None:
        """A fault of the broker met the request: nothing was done."""
        described = Error(condition="amqp:internal-error", description="a fault of the broker; see its log")
        self.answer(Rejected(error=described))
        self._sink.connection.fail(error)

    def _answer(self, outcome: Any) -> None:
        sink = self._sink
        if sink.attached:
            settle_answer(sink.link, [self.delivery], outcome)
            sink.processed(1)


def settle_answer(link: ReceiverLink, deliveries: list[Delivery], outcome: Any) -> None:
    """The answer of one of the broker's own nodes."""
    if type(outcome) is Rejected and outcome.error is not None:
        link.reject(deliveries, outcome.error)
    else:
        link.settle(deliveries, outcome)


class RequestSink(Sink):
    """Base: one link to such a node, or one message of a relay's link."""

    unsettled_only = False
    """Whether a message that was sent settled is refused: its sender has to learn the answer."""

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment.connection, attachment.link)
        self.transactions = attachment.transactions
        self._asked_again: Delivery | None = None

    def receive(self, request: Request) -> None:
        """Take one message; `request.answer(outcome)` follows once. Raises AskAgain."""
        raise AssertionError("a node of requests says what it does with them")

    def enlist(self, request: Request, transaction: Transaction) -> Any | Error:
        """One message in a transaction: what becomes part of it, or what the provisional `rejected` says."""
        return Error(
            condition="amqp:not-allowed",
            description="expected a queue: this node of the broker takes part in no transaction",
        )

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take each message for itself."""
        for at, delivery in enumerate(deliveries):
            if self.ended:
                self.lose(deliveries[at:])
                return
            if delivery.settled and self.unsettled_only:
                self.lose([delivery], "it was sent settled")
                self.detach(SETTLED_ERROR)
            elif isinstance(delivery.state, TransactionalState):
                if self.behind_store(deliveries[at:]):
                    return
                self._enlist(delivery, delivery.state.txn_id)
                if self.held(deliveries[at + 1 :]):
                    return
            else:
                try:
                    self.receive(Request(self, delivery, again=delivery is self._asked_again))
                except AskAgain:
                    self._asked_again = delivery
                    self.connection.hold(partial(self._ask_again, deliveries[at:]))
                    return
                if self.held(deliveries[at + 1 :]):
                    return

    async def _ask_again(self, deliveries: list[Delivery]) -> None:
        """What came before is stored now, or refused."""
        await self.transactions.decided()
        self.on_deliveries(deliveries)

    def _enlist(self, delivery: Delivery, txn_id: object) -> None:
        try:
            transaction = self.transactions.find(txn_id)
        except TransactionError as error:
            self.detach(error.error())
            return
        found = self.enlist(Request(self, delivery), transaction)
        self.transactions.post_request(transaction, self.link, delivery, found)
        self.processed(1)


class RequestNode(Node):
    """Base: a node that is sent requests."""

    def sink(self, attachment: Attachment) -> RequestSink:
        """The sink for the requests of one link, or for one request on a relay's link."""
        raise AssertionError("a node of requests has a sink")

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink of any link: what the link may ask for is judged with each request."""
        return self.sink(attachment)

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """The sink for one request that came through the anonymous terminus."""
        return self.sink(attachment)
