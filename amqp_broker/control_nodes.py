"""Nodes that do something with each message and keep none: links to them, and the answers.

transfer --> ControlNodeLink --> node.receive(post) ... post.answer(outcome)
                                      --mail--> settled in a turn of the connection's own task
in a transaction: node.enlist(post, transaction) --> part of its one commit, or why not
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from amqp_broker.authorisation import Principal
from amqp_broker.coordinator import Transaction, TransactionError
from amqp_broker.frames import Error, Rejected, TransactionalState
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.operations.operation import Owner

if TYPE_CHECKING:
    from amqp_broker.link_owner import LinkOwner


class ControlPost:
    """One message for a control node. `answer(outcome)` is called once, now or later, in any task."""

    __slots__ = ("answer", "connection", "container_id", "message_format", "payload", "principal")

    def __init__(
        self, principal: Principal, container_id: str, payload: bytes, message_format: int,
        answer: Callable[[Any], None], connection: Owner | None = None,
    ) -> None:  # fmt: skip
        self.principal = principal
        self.container_id = container_id
        self.payload = payload
        self.message_format = message_format
        self.answer = answer
        self.connection = connection

    def failed(self, error: Exception) -> None:
        """A fault of the broker met it: nothing was done."""
        described = Error(condition="amqp:internal-error", description="a fault of the broker; see its log")
        self.answer(Rejected(error=described))
        if self.connection is not None:
            self.connection.fail(error)


class ControlNode(Protocol):
    """One of the broker's own nodes (its address begins with `$`)."""

    unsettled_only: bool
    """Whether a message that was sent settled is refused: its sender has to learn the answer."""

    def receive(self, post: ControlPost) -> None:
        """Take one message; `post.answer(outcome)` follows once."""

    def enlist(self, post: ControlPost, transaction: Transaction) -> Any | Error:
        """One message in a transaction: what becomes part of it, or what the provisional `rejected` says."""


class NoTransactions:
    """Base of control nodes that take part in no transaction, and say so."""

    unsettled_only = False

    def enlist(self, post: ControlPost, transaction: Transaction) -> Any | Error:
        """A provisional `rejected`."""
        return Error(
            condition="amqp:not-allowed",
            description="expected a queue: this node of the broker takes part in no transaction",
        )


class HoldingNode(NoTransactions):
    """Base of control nodes that are made for one link and hold something for it."""

    def detached(self) -> None:
        """The link is gone: give it back."""


SETTLED_ERROR = Error(
    condition="amqp:not-allowed",
    description="expected an unsettled message: its sender has to learn the answer",
)


class ControlNodeLink:
    """A link of one connection that sends to a control node."""

    def __init__(self, task: LinkOwner, node: ControlNode) -> None:
        self._task = task
        self._node = node
        self._ended = False

    def on_deliveries(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        """Hand each message to the node, or have it enlisted."""
        for delivery in deliveries:
            if self._ended:
                return
            if delivery.settled and self._node.unsettled_only:
                self._end(link, SETTLED_ERROR)
            elif isinstance(delivery.state, TransactionalState):
                self._enlist(link, delivery, delivery.state.txn_id)
            else:
                self._node.receive(control_post(self._task, link, delivery))

    def _enlist(self, link: ReceiverLink, delivery: Delivery, txn_id: object) -> None:
        transactions = self._task.dispatcher.transactions
        try:
            transaction = transactions.find(txn_id)
        except TransactionError as error:
            self._end(link, error.error())
            return
        transactions.post_to_node(transaction, link, delivery, self._node)
        link.processed(1)

    def _end(self, link: ReceiverLink, error: Error) -> None:
        self._ended = True
        link.detach(error)

    def on_detached(self, link: ReceiverLink) -> None:
        """Answers that are under way find the link gone."""
        if isinstance(self._node, HoldingNode):
            self._node.detached()


def control_post(task: LinkOwner, link: ReceiverLink, delivery: Delivery) -> ControlPost:
    """The message of a delivery, whose answer goes back to its link."""
    answer = partial(task.answered, link, delivery)
    payload, message_format = delivery.payload, delivery.message_format
    return ControlPost(task.principal, task.container_id, payload, message_format, answer, task)
