"""What all connections share beyond queues: the services, and the broker's own nodes (`$...`) by address."""

from __future__ import annotations

from amqp_broker.addresses import Address, AddressError, parse_address
from amqp_broker.authorisation import SEND, Principal
from amqp_broker.control_nodes import ControlNode
from amqp_broker.frames import Error, Message
from amqp_broker.half_sets.administration import SetAdministration
from amqp_broker.half_sets.service import SetService
from amqp_broker.halves.addresses import is_half_address
from amqp_broker.halves.administration import HalfAdministration
from amqp_broker.halves.nodes import HalfNodes
from amqp_broker.halves.service import HalfService
from amqp_broker.node_service import NodeService
from amqp_broker.outcome_questions import OUTCOME_ADDRESS, OutcomeQuestions
from amqp_broker.queue import Queue
from amqp_broker.registry import NodeRefused
from amqp_broker.retained.node import RETAINED_ADDRESS, RetainedNode
from amqp_broker.retained.service import RetainedService
from amqp_broker.sequences.administration import SequenceAdministration
from amqp_broker.sequences.service import SequenceService


class Services:
    """Made once for each broker, on top of its queues (`nodes`)."""

    def __init__(self, nodes: NodeService) -> None:
        self.nodes = nodes
        self.sequences = SequenceService(nodes)
        self.sequence_administration = SequenceAdministration(nodes, self.sequences)
        self.retained = RetainedService(nodes)
        self.halves = HalfService(nodes)
        self.half_administration = HalfAdministration(nodes, self.halves)
        self.half_sets = SetService(nodes, self.halves)
        self.half_set_administration = SetAdministration(self.half_sets)
        self.half_nodes = HalfNodes(nodes, self.halves, self.half_sets)
        self._outcome_questions = OutcomeQuestions(nodes)

    # The broker's own nodes

    async def control_node(self, principal: Principal, address: str) -> ControlNode | None:
        """The broker's own node that a link sends to; None if the address is no such. Raises NodeRefused."""
        if address == OUTCOME_ADDRESS:
            return self._outcome_questions
        if address == RETAINED_ADDRESS:
            return RetainedNode(self.retained)
        if is_half_address(address):
            return await self.half_nodes.target(principal, address)
        return None

    def relayed_node(self, principal: Principal, address: Address) -> ControlNode:
        """The same for a message through the anonymous terminus. Raises NodeRefused."""
        if address.name == OUTCOME_ADDRESS:
            return self._outcome_questions
        if address.name == RETAINED_ADDRESS:
            return RetainedNode(self.retained, relayed=True)
        if is_half_address(address.name):
            return self.half_nodes.relayed(principal, address.name)
        raise NodeRefused("amqp:not-found", f"no node {address.name!r}: '$' names the broker's own nodes")

    def relay_target(self, principal: Principal, payload: bytes) -> Queue | ControlNode | Error:
        """Where a message sent through the anonymous terminus goes, or why it goes nowhere. Raises
        DecodeError.
        """
        properties = Message(payload).properties
        address = None if properties is None else properties.to
        if address is None:
            return Error(
                condition="amqp:invalid-field",
                description="properties.to is missing: the anonymous terminus needs it",
            )
        try:
            parsed = parse_address(address, self.nodes.config.limits.address_bytes)
        except AddressError as error:
            return Error(condition="amqp:invalid-field", description=str(error))
        if parsed.reserved:
            try:
                return self.relayed_node(principal, parsed)
            except NodeRefused as refused:
                return Error(condition=refused.condition, description=refused.description)
        if not self.nodes.authoriser.authorise(principal, SEND, parsed):
            return Error(
                condition="amqp:unauthorized-access",
                description=f"{principal.rule_name!r} may not send to {parsed.name!r}",
            )
        queue = self.nodes.registry.find(parsed)
        if queue is None:
            return Error(condition="amqp:not-found", description=f"no queue {parsed.name!r}")
        if queue.full():
            return Error(
                condition="amqp:resource-limit-exceeded", description=f"queue {parsed.name!r} is full"
            )
        return queue
