"""The node `$management`: what there is, and what can be done with it, asked by message.

    READ, DELETE, PURGE, ... of an entity    type, and its name or identity
    UPDATE                                   and in the body a map of attributes with their new values
    CREATE                                   type and a name: made as the configuration says
    QUERY                                    entityType, offset, count; body: attributeNames;
                                             orderBy, contains
    GET-TYPES, GET-ATTRIBUTES, GET-OPERATIONS, GET-MGMT-NODES   what there is to ask for

Reading needs the right `manage-read`, making and changing `manage-write`, and every action the right that its
table names, at the address of the entity, or at `$management` where it has none. Every change is logged with
who asked for it. Requests of one connection are answered in their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from amqp_broker.addresses import AddressError
from amqp_broker.authorisation import MANAGE_READ, MANAGE_WRITE
from amqp_broker.frames import DecodeError, Rejected, plain_value
from amqp_broker.links import RIGHTS
from amqp_broker.log_setup import logger
from amqp_broker.management.entity_types import (
    CREATE,
    DELETE,
    NODE_TYPE,
    QUERY,
    READ,
    UPDATE,
    Action,
    EntityType,
)
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.ordering import check_order, containing, ordered
from amqp_broker.management.requests import (
    BAD_REQUEST,
    Answer,
    Asker,
    ManagementRequest,
    read_request,
    reply_message,
)
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.requests import Request, RequestNode, RequestSink
from amqp_broker.operations.operation import Refused
from amqp_broker.persistence import StoreError
from amqp_broker.replies import PendingReply

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

OK, CREATED, NO_CONTENT = 200, 201, 204
FORBIDDEN, NOT_FOUND, NOT_IMPLEMENTED, UNAVAILABLE = 403, 404, 501, 503
STATUS_WORDS: Final = {OK: "OK", CREATED: "Created", NO_CONTENT: "No Content"}
ATTRIBUTES_ASKED_MAX: Final = 256  # of one QUERY; all types together have fewer
RESULTS_AT_ONCE: Final = 1_000  # rows of one QUERY, read in one turn


class Management:
    """All types of entities of one broker, and what is asked of them."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self._types: dict[str, EntityType[Any]] = {}
        self._log = logger("audit")
        self._asks: dict[str, Callable[[ManagementRequest], Awaitable[Answer]]] = {
            QUERY: self._query,
            "GET-TYPES": partial(self._get, lambda _: []),
            "GET-ATTRIBUTES": partial(self._get, EntityType.attribute_names),
            "GET-OPERATIONS": partial(self._get, EntityType.operations),
            "GET-MGMT-NODES": self._get_nodes,
        }

    def add(self, *types: EntityType[Any]) -> None:
        """Types that can be asked for from now on."""
        self._types.update({each.name: each for each in types})

    def extend(self, name: str, actions: Mapping[str, Action[Any]]) -> None:
        """What a feature can do with the entities of a type of others."""
        known = self._types[name]
        self._types[name] = attrs.evolve(known, actions={**known.actions, **actions})

    @property
    def types(self) -> list[EntityType[Any]]:
        """All types, in the order in which they were added."""
        return [*self._types.values()]

    async def answer(self, request: ManagementRequest, asked: Asker) -> Answer:
        """Do what is asked for: one way for all who ask, with the rights of who sent `asked`."""
        try:
            return await self._answer(request, asked)
        except Unmanageable as refused:
            if refused.status == FORBIDDEN:
                self.nodes.refusals.met(RIGHTS)
                self._log.warning(
                    "audit.refused", reason=str(refused), principal=asked.principal.rule_name,
                    container_id=asked.container_id,
                )  # fmt: skip
            return Answer(refused.status, str(refused))
        except (NodeRefused, Refused) as refused:
            if isinstance(refused, NodeRefused) and refused.limit:
                self.nodes.refusals.met(refused.limit)
            else:
                self.nodes.refusals.told(refused.error.condition)
            return Answer(UNAVAILABLE, str(refused))
        except StoreError as error:
            return Answer(UNAVAILABLE, f"it could not be stored: {error}")

    async def _answer(self, request: ManagementRequest, asked: Asker) -> Answer:
        operation = request.wanted("operation")
        kind = request.text("type") or NODE_TYPE
        if kind == NODE_TYPE:
            ask = self._asks.get(operation)
            if ask is None:
                names = ", ".join(self._asks)
                raise Unmanageable(NOT_IMPLEMENTED, f"expected one of {names}, got {operation!r:.80}")
            self._may_read(asked)
            return await ask(request)
        entity_type = self._type(kind)
        if operation == CREATE and entity_type.make is not None:
            return await self._made(entity_type, entity_type.make, request, asked)
        if operation == UPDATE and entity_type.changes is not None:
            return await self._changed(entity_type, request, asked)
        if operation == READ:
            self._may_read(asked)
            described = entity_type.described(await entity_type.found(request.identity))
            return _answered(OK, described)
        return await self._act(entity_type, operation, request, asked)

    def _type(self, name: str) -> EntityType[Any]:
        found = self._types.get(name)
        if found is None:
            names = ", ".join(self._types)
            raise Unmanageable(BAD_REQUEST, f"expected one of the types {names}, got {name!r:.80}")
        return found

    def check_right(self, right: str, kind: str, identity: str, asked: Asker) -> None:
        """Whether who asked has this right where an entity is, or would be. Raises Unmanageable."""
        self._may(right, asked, self._type(kind), identity)

    def _may_read(self, asked: Asker) -> None:
        if not self.nodes.authoriser.authorise(asked.principal, MANAGE_READ):
            raise Unmanageable(FORBIDDEN, f"{asked.principal.rule_name!r} may not {MANAGE_READ}")

    def _may(self, right: str, asked: Asker, entity_type: EntityType[Any], identity: str) -> None:
        """Whether who asked has this right where the entity is. Raises Unmanageable."""
        try:
            address = entity_type.address_of(identity)
        except AddressError as error:
            raise Unmanageable(BAD_REQUEST, str(error)) from None
        if not self.nodes.authoriser.authorise(asked.principal, right, address):
            raise Unmanageable(
                FORBIDDEN, f"{asked.principal.rule_name!r} may not {right} at {address.name!r}"
            )

    async def _act(
        self, entity_type: EntityType[Any], operation: str, request: ManagementRequest, asked: Asker
    ) -> Answer:
        action = entity_type.actions.get(operation)
        if action is None:
            names = ", ".join(entity_type.operations())
            raise Unmanageable(
                NOT_IMPLEMENTED, f"expected one of {names} for a {entity_type.name}, got {operation!r:.80}"
            )
        identity = request.identity
        self._may(action.right, asked, entity_type, identity)
        arguments = {one.name: request.argument(one) for one in action.arguments}
        thing = await entity_type.found(identity)
        done = action.run(thing, arguments, asked.principal)
        if isinstance(done, Awaitable):
            done = await done
        if not action.reads:
            self.tell(asked, operation, entity_type.name, identity)
        return _answered(NO_CONTENT if operation == DELETE else OK, done or {})

    async def _made(
        self, entity_type: EntityType[Any], make: Callable[[str, Mapping[str, Any]], Awaitable[bool]],
        request: ManagementRequest, asked: Asker,
    ) -> Answer:  # fmt: skip
        name = request.wanted("name")
        self._may(MANAGE_WRITE, asked, entity_type, name)
        unknown = [each for each in request.attributes if each not in entity_type.made_of]
        if unknown:
            allowed = f"only the attributes {', '.join(entity_type.made_of)}" if entity_type.made_of else (
                "no attributes: its policy says them"
            )  # fmt: skip
            raise Unmanageable(BAD_REQUEST, f"expected {allowed}, got {', '.join(unknown):.120}")
        made = await make(name, plain_value(request.attributes))
        if made:
            self.tell(asked, CREATE, entity_type.name, name)
        described = entity_type.described(await entity_type.found(name))
        return _answered(CREATED if made else OK, described)

    async def _changed(
        self, entity_type: EntityType[Any], request: ManagementRequest, asked: Asker
    ) -> Answer:
        identity = request.identity
        self._may(MANAGE_WRITE, asked, entity_type, identity)
        thing = await entity_type.found(identity)
        values = await entity_type.changed(thing, plain_value(request.attributes))
        if values:
            shown = ", ".join(f"{name} = {value!r:.80}" for name, value in values.items())
            self.tell(asked, UPDATE, entity_type.name, identity, changed=shown)
        return _answered(OK, entity_type.described(await entity_type.found(identity)))

    def tell(self, asked: Asker, operation: str, kind: str, identity: str, **more: str) -> None:
        """Log what was done, and by whom."""
        self._log.info(
            "audit.done", operation=operation, type=kind, identity=identity[:255],
            principal=asked.principal.rule_name, container_id=asked.container_id, **more,
        )  # fmt: skip

    async def _query(self, request: ManagementRequest) -> Answer:
        wanted = request.text("entityType")
        types = self.types if wanted is None else [self._type(wanted)]
        names = request.attributes.get("attributeNames") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Unmanageable(BAD_REQUEST, f"attributeNames: expected a list of strings, got {names!r:.80}")
        names = [*dict.fromkeys(names)]
        if len(names) > ATTRIBUTES_ASKED_MAX:
            raise Unmanageable(
                BAD_REQUEST, f"attributeNames: expected at most {ATTRIBUTES_ASKED_MAX}, got {len(names)}"
            )
        if not names:
            names = [*dict.fromkeys(name for each in types for name in each.attribute_names())]
        offset = request.number("offset", 0)
        count = min(request.number("count", RESULTS_AT_ONCE), RESULTS_AT_ONCE)
        words, order = request.text("contains"), request.text("orderBy")
        check_order(types, order)
        found = [(each, thing) for each in types for thing in await each.all()]
        found = containing(found, words)
        rows = []
        for each, thing in (await ordered(found, order, offset + count))[offset:]:
            described = each.said(thing, names)
            rows.append([described.get(name) for name in names])
        body: dict[str, Any] = {"attributeNames": names, "results": rows}
        if words or order:
            body["found"] = len(found)
        return _answered(OK, body, count=len(rows))

    async def _get(self, what: Callable[[EntityType[Any]], Any], request: ManagementRequest) -> Answer:
        wanted = request.text("entityType")
        types = self.types if wanted is None else [self._type(wanted)]
        return _answered(OK, {each.name: what(each) for each in types})

    async def _get_nodes(self, request: ManagementRequest) -> Answer:
        return _answered(OK, [])


def _answered(status: int, body: Any, **more: int) -> Answer:
    return Answer(status, STATUS_WORDS[status], body, more)


class ManagementNode(RequestNode):
    """The node `$management`; rights are asked for with each request."""

    def __init__(self, management: Management, name: str) -> None:
        super().__init__(name)
        self._management = management

    def sink(self, attachment: Attachment) -> ManagementRequests:
        """The sink for the requests of one link."""
        return ManagementRequests(self._management, attachment)


class ManagementRequests(RequestSink):
    """One link to the node `$management`."""

    def __init__(self, management: Management, attachment: Attachment) -> None:
        super().__init__(attachment)
        self._management = management

    def receive(self, request: Request) -> None:
        """Take one request; what comes behind it on its connection waits."""
        try:
            asked = read_request(request.payload)
            pending = PendingReply(self._management.nodes, request, asked.reply_to)
        except (NodeRefused, DecodeError) as refused:
            request.answer(Rejected(error=refusal_of(refused)))
        else:
            self.connection.hold(partial(self._answer, asked, request, pending))

    async def _answer(self, asked: ManagementRequest, request: Request, pending: PendingReply) -> None:
        try:
            answer = await self._management.answer(asked, request)
        except Exception as fault:
            pending.failed(fault)
            return
        pending.send(reply_message(asked.correlation_id, answer))
