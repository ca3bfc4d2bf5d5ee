"""The transaction coordinator as a node: what a target of type `coordinator` names (4.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.authorisation import TRANSACT, Principal
from amqp_broker.connection import Sink
from amqp_broker.coordinator import CONTROL_LINK_CREDIT, coordinator_answer
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.transactions import ControlSink

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


class CoordinatorNode(Node):
    """The coordinator, for who has the right to transact; a link to it is never resumed (4.1)."""

    def __init__(self, nodes: BrokerNodes) -> None:
        super().__init__()
        self._nodes = nodes

    def admit(self, principal: Principal) -> None:
        """Admits who has the right to transact."""
        if not self._nodes.authoriser.authorise(principal, TRANSACT):
            raise NodeRefused("amqp:unauthorized-access", f"{principal.rule_name!r} may not transact")

    def check_sink(self, attachment: Attachment) -> None:
        """The target is answered as this coordinator is, whatever was asked for."""
        attachment.answer = coordinator_answer()

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink of one control link."""
        attachment.credit = 2 * CONTROL_LINK_CREDIT
        attachment.transactions.attach()
        return ControlSink(attachment.connection, attachment.link, attachment.transactions)
