"""Nodes that do something with each message and keep none: links to them, and the answers.

transfer --> ControlNodeLink --> node.receive(principal, payload, answer) ... answer(outcome)
                                      --mail--> settled in a turn of the connection's own task
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from amqp_broker.authorisation import Principal
from amqp_broker.frames import Error
from amqp_broker.links import Delivery, ReceiverLink

if TYPE_CHECKING:
    from amqp_broker.connection_task import ConnectionTask


class ControlNode(Protocol):
    """One of the broker's own nodes (its address begins with `$`)."""

    def receive(self, principal: Principal, payload: bytes, answer: Callable[[Any], None]) -> None:
        """Take one message; `answer(outcome)` follows once, now or later, in any task."""


class ControlNodeLink:
    """A link of one connection that sends to a control node."""

    def __init__(self, task: ConnectionTask, node: ControlNode) -> None:
        self._task = task
        self._node = node

    def on_deliveries(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        """Hand each message to the node."""
        for delivery in deliveries:
            if delivery.state is not None:
                description = "expected a message outside of transactions: this node takes part in none"
                link.detach(Error(condition="amqp:not-allowed", description=description))
                return
            answer = partial(self._task.answered, link, delivery)
            self._node.receive(self._task.principal, delivery.payload, answer)

    def on_detached(self, link: ReceiverLink) -> None:
        """Nothing is kept for the link; answers that are under way find it gone."""
