"""Half messages as nodes: where they are put, resolved, asked about, and looked at while they are parked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from amqp_broker.addresses import Address
from amqp_broker.authorisation import HALF_CHECK, HALF_PUT, HALF_RESOLVE, MANAGE_READ, SEND, Principal
from amqp_broker.connection import Source
from amqp_broker.coordinator import HalfGroup, Transaction
from amqp_broker.frames import DecodeError, Error, Rejected, Released
from amqp_broker.half_sets.nodes import SetRequests, is_about_sets
from amqp_broker.half_sets.staging import TRANSACTION_ERROR
from amqp_broker.halves.addresses import CHECK, PARKED, PUT, RESOLVE, SET, HalfAddress, parse_half_address
from amqp_broker.halves.checking import CheckBackSource, ParkedSource
from amqp_broker.halves.destinations import check_destination
from amqp_broker.halves.operations import HalfChange, HalfPut
from amqp_broker.halves.requests import read_put, read_resolution, resolution_by_bytes
from amqp_broker.halves.runs import HalfSink
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.requests import Request, RequestNode, RequestSink
from amqp_broker.nodes.termini import COPY, MOVE, OUTCOMES, source_answer
from amqp_broker.queue import full_error

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.half_sets.half_sets import HalfSets
    from amqp_broker.halves.halves import Halves
    from amqp_broker.nodes.registry import Registry
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Site

HALF_MESSAGES: Final = "half-messages"  # the terminus capability
HALF_VERSION: Final = 1  # the link property half-version
HALF_PROPERTIES: Final[dict[str, Any]] = {"half-version": HALF_VERSION}


class HalfNode(Node):
    """Base: an address of half messages, and the group in it. Who lacks the right that it needs is answered
    as if there were no such group.
    """

    is_received_from = True
    capabilities = (HALF_MESSAGES,)
    properties: ClassVar[dict[str, Any] | None] = HALF_PROPERTIES

    def __init__(self, half_nodes: HalfNodes, name: str, address: HalfAddress) -> None:
        super().__init__(name)
        self.half_nodes = half_nodes
        self.address = address

    def admit(self, principal: Principal) -> None:
        """Admits who has the right that the address is for, in its group."""
        self.half_nodes.group(principal, self.address)

    def group(self, principal: Principal) -> HalfGroup:
        """The group of the address. Raises NodeRefused."""
        return self.half_nodes.group(principal, self.address)


class PutNode(HalfNode, RequestNode):
    """`$half/<group>/<destination>`: a destination is made on first use like any queue."""

    unsettled_only = True

    def check(self, principal: Principal) -> None:
        """Admits who may also send to the destination, which has to take half messages."""
        nodes = self.half_nodes.nodes
        destination = nodes.site(principal, self.address.destination, SEND)
        check_destination(destination)
        self.sites = (destination, nodes.dead_letter_site) if _may_go(destination) else (destination,)

    async def make(self, attachment: Attachment) -> None:
        """The destination may be made by somebody else meanwhile, as one that goes by itself."""
        await super().make(attachment)
        if self.sites and _may_go(self.sites[0]):  # none where it was attached to receive
            await self.half_nodes.nodes.dead_letter_site.make()

    def sink(self, attachment: Attachment) -> RequestSink:
        """The sink for puts."""
        group = self.group(attachment.principal)
        return PutSink(attachment, self.half_nodes.halves, group, self.sites[0].made)


def _may_go(destination: Site) -> bool:
    """Whether the destination may go by itself before its half messages are decided."""
    queue = destination.queue
    return not destination.persistent or (queue is not None and queue.lifetime is not None)


class ResolveNode(HalfNode, RequestNode):
    """`$half-resolve/<group>`: half messages are committed or rolled back, and sets are sealed and decided.
    """

    unsettled_only = True

    def sink(self, attachment: Attachment) -> RequestSink:
        """The sink for resolutions."""
        group = self.group(attachment.principal)
        return ResolveSink(attachment, self.half_nodes.halves, self.half_nodes.sets, group)


class ReceivedFrom(HalfNode):
    """Base: an address that nobody sends to."""

    def check(self, principal: Principal) -> None:
        """Nobody may send here."""
        raise NodeRefused("amqp:not-allowed", f"{self.name!r:.120} is received from, not sent to")


class CheckNode(ReceivedFrom):
    """`$half-check/<group>[/by-outcome]`: half messages are asked about."""

    unsettled_only = True

    def check_source(self, attachment: Attachment) -> None:
        """Each check-back goes to one link, which answers it as it likes."""
        answer = attachment.answer = source_answer(attachment.source, self.name)
        answer.distribution_mode = MOVE
        answer.default_outcome = Released()
        answer.outcomes = tuple(OUTCOMES.values())

    async def open_source(self, attachment: Attachment) -> Source:
        """The source of a link that is asked, and may resolve by its outcomes."""
        group = self.group(attachment.principal)
        return CheckBackSource(
            attachment.connection, self.half_nodes.halves, group, attachment.link, self.address.by_outcome
        )


class ParkedNode(ReceivedFrom):
    """`$half-parked/<group>`: half messages that nobody could decide are looked at."""

    def check_source(self, attachment: Attachment) -> None:
        """The half messages stay where they are: the link is shown copies."""
        super().check_source(attachment)
        if attachment.source.distribution_mode != COPY:
            raise NodeRefused("amqp:not-allowed", "expected distribution-mode copy: it is to look at them")

    async def open_source(self, attachment: Attachment) -> Source:
        """The source that shows an administrator parked half messages."""
        group = self.group(attachment.principal)
        return ParkedSource(attachment.connection, self.half_nodes.halves, group, attachment.link)


class PutSink(HalfSink):
    """Each message is prepared, and nobody sees it until it is committed."""

    def __init__(
        self, attachment: Attachment, halves: Halves, group: HalfGroup, destination: Queue
    ) -> None:
        super().__init__(attachment, halves)
        self.link.keeps_messages = True
        self._group = group
        self._destination = destination

    def receive(self, request: Request) -> None:
        """Have one half message put; it is answered after the commit."""
        operation = self._operation(request)
        if isinstance(operation, Error):
            request.answer(Rejected(error=operation))
        else:
            operation.answer, operation.asker = request.answer, request.connection
            self.halves.submit(operation)

    def enlist(self, request: Request, transaction: Transaction) -> Any | Error:
        """Have one half message put at the discharge; its timers start then."""
        operation = self._operation(request)
        if isinstance(operation, Error):
            return operation
        queue = self._destination
        if queue.deleted:
            return Error(condition="amqp:resource-deleted", description=f"queue {queue.name!r} was deleted")
        if not operation.reserve():
            return full_error(queue)
        operation.txn_id = transaction.txn_id
        return operation

    def _operation(self, request: Request) -> HalfPut | Error:
        return self.operation(
            request.payload, request.message_format, request.principal, request.container_id
        )

    def operation(
        self, payload: bytes, message_format: int, principal: Principal, container_id: str
    ) -> HalfPut | Error:
        """What a message asks for, or what its sender is told."""
        try:
            request = read_put(payload, self._group.settings)
        except (NodeRefused, DecodeError) as refused:
            return refusal_of(refused)
        return HalfPut(self.halves, self._group, request, self._destination, message_format, container_id)


class ResolveSink(HalfSink):
    """Commit or roll back, confirmed; and what is asked of sets."""

    def __init__(
        self, attachment: Attachment, halves: Halves, sets: SetRequests, group: HalfGroup
    ) -> None:
        super().__init__(attachment, halves)
        self._sets = sets
        self._group = group

    def receive(self, request: Request) -> None:
        """Have one resolution done; it is answered after the commit."""
        if self._sets.take(self._group.name, request):
            return
        operation = self._operation(request)
        if isinstance(operation, Error):
            request.answer(Rejected(error=operation))
        else:
            operation.answer, operation.asker = request.answer, request.connection
            self.halves.submit(operation)

    def enlist(self, request: Request, transaction: Transaction) -> Any | Error:
        """Enlist one resolution: the answer is provisional, and what only the store knows is judged at the
        discharge.
        """
        if is_about_sets(request):
            return TRANSACTION_ERROR
        operation = self._operation(request)
        if isinstance(operation, Error):
            return operation
        operation.txn_id = transaction.txn_id
        return operation

    def _operation(self, request: Request) -> HalfChange | Error:
        try:
            asked = read_resolution(request.payload)
        except (NodeRefused, DecodeError) as refused:
            return refusal_of(refused)
        return HalfChange.of(self.halves, self._group, asked, request.principal.name, request.container_id)

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
        return HalfChange.of(self.halves, self._group, asked, principal.name, container_id)


Kind = type[PutNode] | type[ResolveNode] | type[CheckNode] | type[ParkedNode]
KINDS: Final[dict[str, Kind]] = {PUT: PutNode, RESOLVE: ResolveNode, CHECK: CheckNode, PARKED: ParkedNode}


class HalfNodes:
    """From an address of half messages to its node, if the principal may."""

    def __init__(self, nodes: BrokerNodes, halves: Halves, sets: HalfSets) -> None:
        self.nodes = nodes
        self.halves = halves
        self.sets = SetRequests(nodes, sets)

    def register(self, registry: Registry) -> None:
        """For all addresses but those of sets."""
        for first in KINDS:
            registry.register(first, self.node, below=True)

    def node(self, name: str) -> Node:
        """The node of an address. Raises NodeRefused: amqp:not-found."""
        address = self.address(name)
        return KINDS[address.kind](self, name, address)

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
        authorise = self.nodes.authoriser.authorise
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
        group = self.halves.group(address.group) if allowed else None
        if group is None:
            raise NodeRefused("amqp:not-found", f"no group of half messages {address.group!r} for you")
        return group
