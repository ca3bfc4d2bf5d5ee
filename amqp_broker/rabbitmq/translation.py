"""What RabbitMQ's clients ask of its management node, as what is asked of `$management`.

    PUT, GET, DELETE /queues/q      CREATE, READ, DELETE with force, of the queue q
    DELETE /queues/q/messages       PURGE, group by group, up to where the queue ended when it began
    PUT, DELETE /exchanges/e        CREATE, DELETE of the topic e, which keeps the type of the exchange
    GET /bindings?..., POST /bindings, DELETE /bindings/src=...   READ, CREATE, DELETE of a binding

Properties of a queue are said by the configuration: what says the same is taken, and what says anything else
is refused, never left out in silence. So are the bindings that it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from amqp_broker.authorisation import MANAGE_WRITE, PURGE
from amqp_broker.configuration import LOG_KIND, QUEUE_KIND, QueuePolicy
from amqp_broker.frames import Array, Uint, Ulong
from amqp_broker.management.core_types import lasting_address
from amqp_broker.management.entity_types import CREATE, DELETE, NODE_TYPE, QUERY, READ
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.node import (
    CREATED,
    NO_CONTENT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    UNAVAILABLE,
    Management,
)
from amqp_broker.management.requests import BAD_REQUEST, Answer, ManagementRequest
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.requests import Request
from amqp_broker.persistence import StoreError
from amqp_broker.rabbitmq.lifetimes import is_auto_delete, make_auto_delete, make_exclusive
from amqp_broker.rabbitmq.requests import Binding, Call, binding_of, fields_of, plain_map
from amqp_broker.topics.topics import DIRECT, ROUTINGS

CONFLICT: Final = 409
VIRTUAL_HOST: Final = "/"

KINDS: Final = {"classic": QUEUE_KIND, "quorum": QUEUE_KIND, "stream": LOG_KIND}
OVERFLOW: Final = "reject-publish"
DROP_HEAD: Final = "drop-head"


def _is_ring(policy: QueuePolicy) -> bool:
    return policy.ring_messages > 0 or policy.ring_bytes > 0


@attrs.frozen
class Argument:
    """An argument of a queue: what a policy has to say so that it holds already, and in which key."""

    key: str
    holds: Callable[[QueuePolicy, Any], bool]


ARGUMENTS: Final = {
    "x-queue-type": Argument("kind", lambda policy, value: policy.kind == KINDS.get(value)),
    "x-max-length": Argument(
        "max_messages, or ring_messages",
        lambda policy, value: value == (policy.ring_messages if _is_ring(policy) else policy.max_messages),
    ),
    "x-max-length-bytes": Argument(
        "max_bytes, or ring_bytes",
        lambda policy, value: value == (policy.ring_bytes if _is_ring(policy) else policy.max_bytes),
    ),
    "x-overflow": Argument(
        "max_messages and max_bytes, or ring_messages and ring_bytes",
        lambda policy, value: value == (DROP_HEAD if _is_ring(policy) else OVERFLOW),
    ),
    "x-delivery-limit": Argument("max_deliveries", lambda policy, value: policy.max_deliveries == value),
    "x-max-priority": Argument("priorities", lambda policy, value: policy.priorities == bool(value)),
    "x-consumer-timeout": Argument(
        "consumer_timeout_ms", lambda policy, value: policy.consumer_timeout_ms == value
    ),
}
"""A full queue refuses; a full ring drops at its head."""


class Translation:
    """The requests of one link, put into words of `$management`."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._routes: dict[tuple[str, str, int], Callable[[Call, Request], Awaitable[Answer]]] = {
            ("GET", "queues", 2): self._read_queue,
            ("PUT", "queues", 2): self._make_queue,
            ("DELETE", "queues", 2): self._delete_queue,
            ("DELETE", "queues", 3): self._purge,
            ("PUT", "exchanges", 2): self._make_topic,
            ("DELETE", "exchanges", 2): self._delete_topic,
            ("GET", "bindings", 1): self._list_bindings,
            ("POST", "bindings", 1): self._bind,
            ("DELETE", "bindings", 2): self._unbind,
            ("PUT", "auth", 2): self._renew_token,
        }

    async def answer(self, call: Call, asked: Request) -> Answer:
        """Do what a call asks for, with the rights of who sent `asked`."""
        route = self._routes.get((call.method, call.segments[0], len(call.segments)))
        try:
            if route is None:
                raise Unmanageable(
                    NOT_IMPLEMENTED,
                    f"expected GET, PUT, POST or DELETE of /queues, /exchanges or /bindings, got "
                    f"{call.method:.20} {'/'.join(['', *call.segments])!r:.120}",
                )
            return await route(call, asked)
        except Unmanageable as refused:
            return Answer(refused.status, str(refused))

    async def _told(
        self, asked: Request, operation: str, kind: str, name: str | None = None, body: Any = None,
        **more: Any,
    ) -> Answer:  # fmt: skip
        """What `$management` answers. Raises Unmanageable with its refusal."""
        told = {"operation": operation, "type": kind, **more} | ({} if name is None else {"name": name})
        answer = await self._management.answer(ManagementRequest(None, None, told, body), asked)
        if answer.status >= BAD_REQUEST:
            raise Unmanageable(answer.status, answer.description)
        return answer

    # Queues

    async def _read_queue(self, call: Call, asked: Request) -> Answer:
        found = await self._told(asked, READ, "queue", call.name)
        return Answer(OK, "", self._queue(found.body))

    async def _make_queue(self, call: Call, asked: Request) -> Answer:
        wanted = call.attributes("durable", "exclusive", "auto_delete", "arguments")
        self._management.check_right(MANAGE_WRITE, "queue", call.name, asked)
        exclusive, auto_delete = bool(wanted.get("exclusive")), bool(wanted.get("auto_delete"))
        if wanted.get("durable") is False and not exclusive:
            raise Unmanageable(NOT_IMPLEMENTED, "expected durable or exclusive: else ask for a dynamic node")
        policy = self._management.nodes.config.policy_of(call.name)
        for name, value in plain_map("arguments", wanted.get("arguments")).items():
            known = ARGUMENTS.get(name)
            if known is None:
                raise Unmanageable(
                    NOT_IMPLEMENTED, f"expected only the arguments {', '.join(ARGUMENTS)}, got {name!r:.80}"
                )
            if not known.holds(policy, value):
                raise Unmanageable(
                    CONFLICT, f"{name} is {value!r:.80}, and the configuration says otherwise: it says what "
                    f"a queue is like, by {known.key} of its [[queue]]"
                )  # fmt: skip
        self._check_same(call.name, asked, exclusive, auto_delete)
        goes = (exclusive or auto_delete) and self._management.nodes.queues.find(call.name) is None
        if goes:
            await self._make_going(call.name, asked, exclusive, auto_delete)
            self._check_same(call.name, asked, exclusive, auto_delete)  # others may have been faster
        made = await self._told(asked, CREATE, "queue", call.name)
        return Answer(CREATED if goes else made.status, "", self._queue(made.body))

    async def _make_going(self, name: str, asked: Request, exclusive: bool, auto_delete: bool) -> None:
        """Make a queue that goes by itself. Raises Unmanageable."""
        nodes = self._management.nodes
        lasting_address(nodes, name, "queue")
        if nodes.queues.is_topic(name):
            raise Unmanageable(CONFLICT, f"{name!r:.80} is a topic")
        try:
            if exclusive:
                await make_exclusive(nodes, name, asked.connection, auto_delete=auto_delete)
            else:
                await make_auto_delete(nodes, name)
        except (NodeRefused, StoreError) as refused:
            status = refused.status if isinstance(refused, Unmanageable) else UNAVAILABLE
            raise Unmanageable(status, str(refused)) from None
        self._management.tell(asked, CREATE, "queue", name)

    def _check_same(self, name: str, asked: Request, exclusive: bool, auto_delete: bool) -> None:
        """Whether a queue that is there is as it is wanted. Raises Unmanageable."""
        self._check_owner(name, asked)
        queue = self._management.nodes.queues.find(name)
        if queue is not None:
            found = (queue.owner is not None, is_auto_delete(queue))
            if found != (exclusive, auto_delete):
                raise Unmanageable(
                    CONFLICT, f"queue {name!r:.80} is there, with exclusive {found[0]} and auto_delete "
                    f"{found[1]}, not {exclusive} and {auto_delete}"
                )  # fmt: skip

    def _check_owner(self, name: str, asked: Request) -> None:
        """Whether a queue is not that of another connection. Raises Unmanageable."""
        queue = self._management.nodes.queues.find(name)
        if queue is not None and queue.owner is not None and queue.owner is not asked.connection:
            raise Unmanageable(CONFLICT, f"queue {name!r:.80} is exclusive: it is of another connection")

    async def _delete_queue(self, call: Call, asked: Request) -> Answer:
        count = 0
        try:
            count = await self._count(call, asked)
            await self._told(asked, DELETE, "queue", call.name, force=True)
        except Unmanageable as refused:
            if refused.status != NOT_FOUND:
                raise
        return Answer(OK, "", {"message_count": Ulong(count)})

    async def _count(self, call: Call, asked: Request) -> int:
        """How many messages a queue has that is about to be deleted; who may not delete it learns nothing."""
        queue = self._management.nodes.queues.find(call.name)
        self._management.check_right("delete", "queue", call.name, asked)
        self._check_owner(call.name, asked)
        return 0 if queue is None else queue.message_count

    async def _purge(self, call: Call, asked: Request) -> Answer:
        if call.segments[2] != "messages":
            raise Unmanageable(NOT_FOUND, f"expected /queues/QUEUE/messages, got {call.segments[2]!r:.80}")
        self._management.check_right(PURGE, "queue", call.name, asked)
        self._check_owner(call.name, asked)
        count, offset, end = 0, 0, None
        while end is None or offset < end:
            done = (await self._told(asked, "PURGE", "queue", call.name, offset=offset)).body
            count += done["messages"]
            offset = done["next_offset"]
            end = done["end_offset"] if end is None else end
        return Answer(OK, "", {"message_count": Ulong(count)})

    def _queue(self, told: dict[str, Any]) -> dict[str, Any]:
        """A queue as these clients know one."""
        home = self._management.nodes.config.container_id
        queue = self._management.nodes.queues.find(told["name"])
        exclusive = queue is not None and queue.owner is not None
        auto_delete = queue is not None and is_auto_delete(queue)
        return {
            "name": told["name"], "vhost": VIRTUAL_HOST, "durable": not told["temporary"],
            "auto_delete": auto_delete, "exclusive": exclusive,
            "type": "stream" if told["kind"] == LOG_KIND else "classic", "arguments": {},
            "message_count": Ulong(told["messages"]), "consumer_count": Uint(told["consumers"]),
            "leader": home, "replicas": Array("string", [home]),
        }  # fmt: skip

    # Exchanges

    async def _make_topic(self, call: Call, asked: Request) -> Answer:
        wanted = call.attributes("durable", "auto_delete", "internal", "type", "arguments")
        if wanted.get("durable") is False or wanted.get("auto_delete"):
            raise Unmanageable(NOT_IMPLEMENTED, "expected durable, and not auto_delete: an exchange stays")
        kind, arguments = wanted.get("type", DIRECT), plain_map("arguments", wanted.get("arguments"))
        if kind not in ROUTINGS or wanted.get("internal") or arguments:
            raise Unmanageable(
                NOT_IMPLEMENTED, f"expected an exchange of type {', '.join(ROUTINGS)}, not internal and "
                f"without arguments, got {kind!r:.80} with {arguments!r:.80}"
            )  # fmt: skip
        await self._told(asked, CREATE, "topic", call.name, {"routing": kind})
        return Answer(NO_CONTENT, "")

    async def _delete_topic(self, call: Call, asked: Request) -> Answer:
        try:
            await self._told(asked, DELETE, "topic", call.name)
        except Unmanageable as refused:
            if refused.status != NOT_FOUND:
                raise
        return Answer(NO_CONTENT, "")

    # Bindings

    async def _list_bindings(self, call: Call, asked: Request) -> Answer:
        binding = binding_of(call.query, "src", "dstq", "key")
        found = await self._is_there(binding, asked) or await self._is_bound(binding, asked)
        return Answer(OK, "", [binding.described] if found else [])

    async def _bind(self, call: Call, asked: Request) -> Answer:
        wanted = call.attributes(
            "source", "destination_queue", "destination_exchange", "binding_key", "arguments"
        )
        binding = binding_of(wanted, "source", "destination_queue", "binding_key")
        bound = await self._is_there(binding, asked) or await self._is_bound(binding, asked)
        if plain_map("arguments", wanted.get("arguments")):
            raise Unmanageable(
                NOT_IMPLEMENTED, "expected a binding without arguments: in $management one has a selector"
            )
        if not bound:
            topic = (await self._told(asked, READ, "topic", binding.source)).body
            told = {
                "topic": binding.pattern(topic["routing"]), "queue": binding.queue,
                "source": binding.source,
            }  # fmt: skip
            await self._told(asked, CREATE, "binding", binding.name, told)
        return Answer(NO_CONTENT, "")

    async def _unbind(self, call: Call, asked: Request) -> Answer:
        fields = fields_of(call.segments[1])
        binding = binding_of(fields, "src", "dstq", "key")
        if fields.get("args"):
            return Answer(NO_CONTENT, "")
        if await self._is_there(binding, asked):
            await self._told(asked, DELETE, "binding", binding.name)
        elif await self._is_bound(binding, asked):
            raise Unmanageable(
                CONFLICT, f"queue {binding.queue!r:.80} is bound to {binding.source!r:.80}, and not by this "
                "node: a [[binding]] stays, and $management deletes others"
            )  # fmt: skip
        return Answer(NO_CONTENT, "")

    async def _is_there(self, binding: Binding, asked: Request) -> bool:
        """Whether this node was asked for the binding."""
        try:
            await self._told(asked, READ, "binding", binding.name)
        except Unmanageable as refused:
            if refused.status != NOT_FOUND:
                raise
            return False
        return True

    async def _is_bound(self, binding: Binding, asked: Request) -> bool:
        """Whether the configuration has this binding, or `$management` made it, for all messages."""
        wanted = [[topic, binding.queue, None] for topic in binding.topics]
        offset = 0
        while True:
            found = await self._told(
                asked, QUERY, NODE_TYPE, entityType="binding", offset=offset,
                body={"attributeNames": ["topic", "queue", "selector"]},
            )  # fmt: skip
            rows = found.body["results"]
            if any(row in wanted for row in rows):
                return True
            if not rows:
                return False
            offset += len(rows)

    # Logins

    async def _renew_token(self, call: Call, asked: Request) -> Answer:
        raise Unmanageable(
            NOT_IMPLEMENTED, "a login has no token here to be renewed: it holds as long as its connection"
        )

