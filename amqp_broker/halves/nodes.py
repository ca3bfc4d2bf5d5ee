"""The nodes to which half messages and resolutions are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.addresses import Address
from amqp_broker.authorisation import HALF_CHECK, HALF_PUT, HALF_RESOLVE, MANAGE_READ, SEND, Principal
from amqp_broker.control_nodes import ControlPost
from amqp_broker.coordinator import (
    HalfAnswer,
    HalfGroup,
    Transaction,
    decide_half,
)
from amqp_broker.frames import DecodeError, Error, Rejected
from amqp_broker.half_sets.nodes import SetRequests, is_about_sets
from amqp_broker.half_sets.staging import TRANSACTION_ERROR
from amqp_broker.halves.addresses import CHECK, PARKED, PUT, RESOLVE, SET, HalfAddress, parse_half_address
from amqp_broker.halves.destinations import check_destination
from amqp_broker.halves.operations import HalfChange, HalfPut
from amqp_broker.halves.requests import HalfRefused, read_put, read_resolution, resolution_by_bytes
from amqp_broker.registry import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.half_sets.service import SetService
    from amqp_broker.halves.service import HalfService
    from amqp_broker.node_service import NodeService
    from amqp_broker.queue import Queue

HALF_MESSAGES: Final = "half-messages"  # the terminus capability
HALF_VERSION: Final = 1  # the link property half-version
HALF_PROPERTIES: Final[dict[str, Any]] = {"half-version": HALF_VERSION}


class HalfPutNode:
    """`$half/<group>/<destination>`: each message is prepared, and nobody sees it until it is committed."""

    unsettled_only = True

    def __init__(self, service: HalfService, group: HalfGroup, destination: Queue) -> None:
        self.service = service
        self._group = group
        self._destination = destination

    def receive(self, post: ControlPost) -> None:
        """Answered after the commit."""
        operation = self._operation(post)
        if isinstance(operation, Error):
            post.answer(Rejected(error=operation))
        else:
            operation.answer, operation.asker = post.answer, post.connection
            self.service.submit(operation)

    def enlist(self, post: ControlPost, transaction: Transaction) -> Any | Error:
        """Prepared at the discharge; the timers start then."""
        operation = self._operation(post)
        if isinstance(operation, Error):
            return operation
        found = self.service.known(self._group, operation.half_id)
        if found is not None:
            answer, _ = decide_half(found.state, operation.same_as(found))
            if answer not in (HalfAnswer.DONE, HalfAnswer.REPEAT):
                return found.refusal(answer)
        queue = self._destination
        if queue.deleted:
            return Error(condition="amqp:resource-deleted", description=f"queue {queue.name!r} was deleted")
        if not operation.reserve():
            return Error(
                condition="amqp:resource-limit-exceeded", description=f"queue {queue.name!r} is full"
            )
        operation.txn_id = transaction.txn_id
        return operation

    def _operation(self, post: ControlPost) -> HalfPut | Error:
        return self.operation(post.payload, post.message_format, post.principal, post.container_id)

    def operation(
        self, payload: bytes, message_format: int, principal: Principal, container_id: str
    ) -> HalfPut | Error:
        """What a message asks for, or what its sender is told."""
        try:
            request = read_put(payload, self._group.settings)
        except HalfRefused as refused:
            return refused.error
        except DecodeError as error:
            return Error(condition=error.condition, description=error.description)
        return HalfPut(self.service, self._group, request, self._destination, message_format, container_id)


class HalfResolveNode:
    """`$half-resolve/<group>`: commit or roll back, confirmed; and what is asked of sets."""

    unsettled_only = True

    def __init__(self, service: HalfService, sets: SetRequests, group: HalfGroup) -> None:
        self.service = service
        self._sets = sets
        self._group = group

    def receive(self, post: ControlPost) -> None:
        """Answered after the commit."""
        if self._sets.take(self._group.name, post):
            return
        operation = self._operation(post)
        if isinstance(operation, Error):
            post.answer(Rejected(error=operation))
        else:
            operation.answer, operation.asker = post.answer, post.connection
            self.service.submit(operation)

    def enlist(self, post: ControlPost, transaction: Transaction) -> Any | Error:
        """Provisional, applied at the discharge; what only the store knows is judged there."""
        if is_about_sets(post):
            return TRANSACTION_ERROR
        operation = self._operation(post)
        if isinstance(operation, Error):
            return operation
        found = self.service.known(self._group, operation.half_id)
        if found is not None:
            answer, _ = decide_half(found.state, operation.what)
            if answer not in (HalfAnswer.DONE, HalfAnswer.REPEAT):
                return found.refusal(answer)
        operation.txn_id = transaction.txn_id
        return operation

    def _operation(self, post: ControlPost) -> HalfChange | Error:
        try:
            asked = read_resolution(post.payload)
        except HalfRefused as refused:
            return refused.error
        except DecodeError as error:
            return Error(condition=error.condition, description=error.description)
        return HalfChange.of(self.service, self._group, asked, post.principal.name, post.container_id)

    def operation(
        self, payload: bytes, message_format: int, principal: Principal, container_id: str
    ) -> HalfChange | None:
        """What a message asks for, if it is a resolution of the usual layout."""
        try:
            asked = resolution_by_bytes(payload)
        except DecodeError:
            return None
        if asked is None:
            return None
        return HalfChange.of(self.service, self._group, asked, principal.name, container_id)


class HalfNodes:
    """From an address of half messages to its node, if the principal may."""

    def __init__(self, nodes: NodeService, service: HalfService, sets: SetService) -> None:
        self._nodes = nodes
        self._service = service
        self._sets = SetRequests(nodes, sets)

    def address(self, name: str) -> HalfAddress:
        """The parts of an address. Raises NodeRefused: amqp:not-found."""
        parsed = parse_half_address(name)
        if parsed is None:
            raise NodeRefused(
                "amqp:not-found",
                "expected $half/<group>/<destination>, $half-resolve/<group>, "
                "$half-check/<group>[/by-outcome], $half-parked/<group> or "
                "$half-set/<group>/<producer>/<epoch>/<set>/<destination>, "
                f"got {name!r:.120}",
            )
        return parsed

    def group(self, principal: Principal, address: HalfAddress) -> HalfGroup:
        """The group, if the principal has the right for what the address is for; else the same answer as for
        no group. Raises NodeRefused.
        """
        authorise = self._nodes.authoriser.authorise
        node = Address(address.group)
        if address.kind in (PUT, SET):
            allowed = authorise(principal, HALF_PUT, node)
        elif address.kind == RESOLVE:
            allowed = authorise(principal, HALF_RESOLVE, node)
        elif address.kind == CHECK:
            allowed = authorise(principal, HALF_CHECK, node)
            if address.by_outcome:
                allowed = allowed and authorise(principal, HALF_RESOLVE, node)
        else:
            assert address.kind == PARKED, f"no address: {address!r}"
            allowed = authorise(principal, MANAGE_READ)
        group = self._service.group(address.group) if allowed else None
        if group is None:
            raise NodeRefused("amqp:not-found", f"no group of half messages {address.group!r} for you")
        return group

    async def target(self, principal: Principal, name: str) -> HalfPutNode | HalfResolveNode:
        """The node that a link sends to; a destination is made on first use like any queue. Raises
        NodeRefused.
        """
        address = self.address(name)
        group = self.group(principal, address)
        if address.kind == RESOLVE:
            return HalfResolveNode(self._service, self._sets, group)
        if address.kind != PUT:
            raise NodeRefused("amqp:not-allowed", f"{name!r:.120} is received from, not sent to")
        destination = await self._nodes.node_for(principal, address.destination, SEND)
        check_destination(self._nodes, destination)
        if not destination.persistent:  # it may go before its half messages are decided
            await self._nodes.make_dead_letters()
        return HalfPutNode(self._service, group, destination)

    def relayed(self, principal: Principal, name: str) -> HalfPutNode | HalfResolveNode:
        """The same for a message through the anonymous terminus, to what exists. Raises NodeRefused."""
        address = self.address(name)
        group = self.group(principal, address)
        if address.kind == RESOLVE:
            return HalfResolveNode(self._service, self._sets, group)
        if address.kind == SET:
            raise NodeRefused("amqp:not-allowed", "what is staged in a set needs its own link")
        if address.kind != PUT:
            raise NodeRefused("amqp:not-allowed", f"{name!r:.120} is received from, not sent to")
        destination = self._nodes.existing(principal, address.destination, SEND)
        if not destination.persistent:
            raise NodeRefused("amqp:not-allowed", "half messages for a temporary queue need their own link")
        check_destination(self._nodes, destination)
        return HalfPutNode(self._service, group, destination)
