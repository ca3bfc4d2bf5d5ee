"""What the core of the broker has to manage: itself, queues, connections, links and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from amqp_broker.addresses import RESERVED_PREFIX, TEMPORARY_PREFIX, Address, AddressError, parse_address
from amqp_broker.authorisation import Principal
from amqp_broker.counts import COUNTS
from amqp_broker.frames import Source, Target
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.links import ReceiverLink, SenderLink, Session
from amqp_broker.live_transactions import LiveTransaction
from amqp_broker.log import Log
from amqp_broker.management.changing import BOUNDS, changed, queue_changes, reset_action, tries
from amqp_broker.management.configured import configuration_type
from amqp_broker.management.entity_types import DELETE, REASON, Action, EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.queue_operations import deletion, message_actions
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.operation import answer_to, error_of
from amqp_broker.peers import product_properties
from amqp_broker.queue import Queue
from amqp_broker.queues import UNBOUNDED

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.connection_task import Connections, ConnectionTask

T = TypeVar("T")

COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
BY_HAND: Final = "an administrator ended it"


@attrs.frozen
class ManagedLink:
    """One attached link, and the connection that it is on."""

    task: ConnectionTask
    link: ReceiverLink | SenderLink

    @property
    def identity(self) -> str:
        """Its connection, its direction as seen from the broker, and its name."""
        return f"{self.task.number}/{self.direction}/{self.link.name}"

    @property
    def direction(self) -> str:
        """`in`: the peer sends on it; `out`: it receives."""
        return "in" if isinstance(self.link, ReceiverLink) else "out"

    @property
    def address(self) -> str | None:
        """The address of the broker's terminus, as the peer wrote it; None where it has none."""
        ours: Any = self.link.target if isinstance(self.link, ReceiverLink) else self.link.source
        return ours.address if isinstance(ours, Source | Target) else None

    @property
    def unsettled(self) -> int:
        """Deliveries that one side has not settled."""
        if isinstance(self.link, ReceiverLink):
            return self.link.flow_state.unsettled
        return self.link.unsettled_count

    @property
    def credit(self) -> int:
        """What the receiver has granted and is not used."""
        if isinstance(self.link, ReceiverLink):
            return self.link.flow_state.outstanding
        return self.link.credit


@attrs.frozen
class ManagedSession:
    """One session, and the connection that it is on."""

    task: ConnectionTask
    session: Session


def core_types(nodes: BrokerNodes, connections: Connections) -> list[EntityType[Any]]:
    """The types of one broker."""
    return [
        _broker(nodes, connections), _queue(nodes), _connection(connections), _session(connections),
        _link(nodes, connections), _transaction(nodes), configuration_type(nodes),
    ]  # fmt: skip


def _broker(nodes: BrokerNodes, connections: Connections) -> EntityType[BrokerNodes]:
    return EntityType(
        "broker", "the broker itself; there is one, with the identity `self`",
        lambda: [nodes], lambda _: "self",
        {
            "product": lambda _: product_properties()["product"],
            "version": lambda _: product_properties()["version"],
            "container_id": lambda of: of.config.container_id,
            "store_id": lambda of: of.store_id,
            "memory_only": lambda of: of.config.memory,
            "memory_used_bytes": lambda of: of.memory.used_bytes,
            "memory_limit_bytes": lambda of: of.memory.limit_bytes,
            "memory_cache_bytes": lambda of: of.memory.cache.used_bytes,
            "memory_own_bytes": lambda of: of.memory.own.used_bytes,
            "memory_pressed": lambda of: len(of.memory.pressed),
            "disk_free_bytes": lambda of: None if of.config.memory else of.writer.space.free_bytes,
            "disk_refusing": lambda of: of.writer.space.refusing,
            "commits": lambda of: of.writer.counts.seconds.count,
            "commit_seconds": lambda of: of.writer.counts.seconds.sum,
            "commit_operations": lambda of: round(of.writer.counts.operations.sum),
            "connections": lambda _: sum(1 for _ in connections()),
            "queues": lambda of: len(_queues(of)),
            "messages": lambda of: sum(queue.message_count for queue in of.queues.queues()),
            "bytes": lambda of: sum(queue.byte_count for queue in of.queues.queues()),
            "transactions": lambda of: len(of.live_transactions),
            "refusals": lambda of: dict(of.refusals.counts),
            "trace_spans": lambda of: dict(of.writer.watcher.counts()),
            **_counted(_count_of_all),
        },
    )  # fmt: skip


def counted(queue_of: Callable[[T], Queue]) -> dict[str, Callable[[T], Any]]:
    """What came to the queue of an entity since the broker started, and what became of it."""
    return _counted(lambda thing, at: queue_of(thing).counts[at])


def _counted(count: Callable[[T, int], int]) -> dict[str, Callable[[T], Any]]:
    def reading(at: int) -> Callable[[T], Any]:
        return lambda thing: count(thing, at)

    return {name: reading(at) for at, name in enumerate(COUNTS)}


def _count_of_all(nodes: BrokerNodes, at: int) -> int:
    """Of all queues, subscriptions too, and of those that are gone."""
    queues = nodes.queues
    return queues.former_counts[at] + sum(queue.counts[at] for queue in queues.queues())


def bounds(queue_of: Callable[[T], Queue]) -> dict[str, Callable[[T], Any]]:
    """What the queue of an entity can hold; 0 is no bound."""

    def reading(name: str) -> Callable[[T], Any]:
        return lambda thing: _bound(getattr(queue_of(thing).limits, name))

    return {name: reading(name) for name in BOUNDS}


def _bound(limit: int) -> int:
    return 0 if limit >= UNBOUNDED else limit


def _replacing(nodes: BrokerNodes) -> dict[str, Callable[[Queue], Any]]:
    """By what new messages put older ones out of a queue; 0 and null: they don't."""

    def reading(name: str) -> Callable[[Queue], Any]:
        off = None if name == "last_value_key" else 0

        def read(queue: Queue) -> Any:
            return getattr(nodes.queues.policy_of(queue), name) if isinstance(queue, JudgedQueue) else off

        return read

    return {name: reading(name) for name in ("last_value_key", "ring_messages", "ring_bytes")}


def _queues(nodes: BrokerNodes) -> list[Queue]:
    """The queues that have addresses; the others belong to features."""
    return [queue for queue in nodes.queues.queues() if not queue.name.startswith(RESERVED_PREFIX)]


def _oldest_age_ms(nodes: BrokerNodes, queue: Queue) -> int | None:
    """Since when the first available message is there; None where none is, or it is on disk only."""
    record = queue.backlog.oldest()
    return None if record is None else max(0, nodes.clock.now_ms() - record.enqueued_at_ms)


def _queue(nodes: BrokerNodes) -> EntityType[Queue]:
    return EntityType(
        "queue", "a queue or log, by its address; bounds of 0 are none",
        partial(_queues, nodes), lambda queue: queue.name,
        {
            "kind": lambda queue: "log" if isinstance(queue, Log) else "queue",
            "temporary": lambda queue: not queue.persistent,
            "messages": lambda queue: queue.message_count,
            "bytes": lambda queue: queue.byte_count,
            "available": lambda queue: queue.backlog.available(),
            "oldest_age_ms": partial(_oldest_age_ms, nodes),
            "consumers": lambda queue: len(queue.consumers),
            "senders": lambda queue: len(queue.producers),
            "next_offset": lambda queue: queue.next_offset,
            "full": lambda queue: queue.full(),
            **bounds(lambda queue: queue),
            "retains": lambda queue: queue.retains,
            "events": lambda queue: queue.events,
            **tries(nodes, lambda queue: queue),
            **changed(lambda queue: queue),
            **counted(lambda queue: queue),
            "dropped": lambda queue: queue.dropped if isinstance(queue, JudgedQueue) else 0,
            "duplicates": lambda queue: queue.duplicates if isinstance(queue, JudgedQueue) else 0,
            "replaced": lambda queue: queue.replaced if isinstance(queue, JudgedQueue) else 0,
            **_replacing(nodes),
        },
        {
            **reset_action(nodes, lambda queue: queue), **message_actions(nodes, lambda queue: queue),
            DELETE: deletion(nodes),
        },
        find=lambda name: None if name.startswith(RESERVED_PREFIX) else nodes.queues.find(name),
        named_by_address=True, make=partial(_make_queue, nodes),
        changes=queue_changes(nodes, lambda queue: queue),
    )  # fmt: skip


async def _make_queue(nodes: BrokerNodes, name: str, told: Mapping[str, Any]) -> bool:
    """Make a queue, as its policy says; False if it was there. Raises Unmanageable, NodeRefused and
    StoreError.
    """
    address = lasting_address(nodes, name, "queue")
    if nodes.queues.find(address.name) is not None:
        return False
    if nodes.queues.is_topic(address.name):
        raise Unmanageable(409, f"{name!r} is a topic")
    await nodes.queues.site_by_name(address.name).make()
    return True


def _connection(connections: Connections) -> EntityType[ConnectionTask]:
    def close(task: ConnectionTask, told: Mapping[str, Any], principal: Principal) -> None:
        task.stop("closed by hand", f"{told['reason'] or BY_HAND} ({principal.rule_name})")

    return EntityType(
        "connection", "an open connection, by its number since the broker started",
        connections, lambda task: str(task.number),
        {
            "container_id": lambda task: task.connection.container_id,
            "peer": lambda task: task.peer.address,
            "tls": lambda task: task.peer.tls,
            "user": lambda task: task.connection.principal.rule_name,
            "mechanism": lambda task: task.connection.principal.mechanism,
            "sessions": lambda task: len(task.engine.sessions),
            "links": lambda task: len(task.connection.links),
            "memory_bytes": lambda task: task.connection.account.used_bytes,
            "received": lambda task: task.connection.received,
            "sent": lambda task: task.connection.sent,
        },
        {DELETE: Action(close, "it is closed, and its client told the reason", (REASON,))},
    )  # fmt: skip


def _sessions(connections: Connections) -> Iterable[ManagedSession]:
    for task in connections():
        for session in task.engine.sessions.values():
            yield ManagedSession(task, session)


def _session(connections: Connections) -> EntityType[ManagedSession]:
    return EntityType(
        "session", "a session: number of its connection, and the channel on which the broker sends",
        partial(_sessions, connections), lambda one: f"{one.task.number}/{one.session.channel}",
        {
            "connection": lambda one: str(one.task.number),
            "container_id": lambda one: one.task.connection.container_id,
            "channel": lambda one: one.session.channel,
            "remote_channel": lambda one: one.session.remote_channel,
            "state": lambda one: one.session.state.name,
            "links": lambda one: len(one.session.input_links),
            "unsettled_out": lambda one: len(one.session.unsettled_out),
        },
    )  # fmt: skip


def _links(connections: Connections) -> Iterable[ManagedLink]:
    for task in connections():
        for link in task.connection.links:
            yield ManagedLink(task, link)


def _link(nodes: BrokerNodes, connections: Connections) -> EntityType[ManagedLink]:
    def named(one: ManagedLink) -> str | None:
        written = one.address
        return None if written is None else nodes.names.of(written, receives=one.direction == "out")[0]

    return EntityType(
        "link", "an attached link: number of its connection, `in` or `out` as the broker sees it, name",
        partial(_links, connections), lambda one: one.identity,
        {
            "connection": lambda one: str(one.task.number),
            "container_id": lambda one: one.task.connection.container_id,
            "link_name": lambda one: one.link.name,
            "direction": lambda one: one.direction,
            "address": named,
            "credit": lambda one: one.credit,
            "unsettled": lambda one: one.unsettled,
        },
    )  # fmt: skip


def _transaction(nodes: BrokerNodes) -> EntityType[LiveTransaction]:
    def roll_back(live: LiveTransaction, told: Mapping[str, Any], principal: Principal) -> None:
        reason = f"{told['reason'] or 'an administrator rolled it back'} ({principal.rule_name})"
        if not nodes.live_transactions.force_rollback(live.txn_id, reason):
            raise Unmanageable(409, "its commit is in progress")

    async def commit(live: LiveTransaction, told: Mapping[str, Any], principal: Principal) -> None:
        reason = f"{told['reason'] or 'an administrator committed it'} ({principal.rule_name})"

        def begin(then: Callable[[Exception | None], None]) -> None:
            if not nodes.live_transactions.force_commit(live.txn_id, reason, then):
                raise Unmanageable(
                    409, "it can only be rolled back, its commit is in progress, or a message in it is "
                    "incomplete"
                )  # fmt: skip

        error = await answer_to(begin)
        if error is not None:
            raise Unmanageable(409, f"it was rolled back: {error_of(error).description}")

    return EntityType(
        "transaction", "a transaction that is not over, by its txn-id in hex digits",
        nodes.live_transactions.describe, lambda live: live.txn_id.hex(),
        {
            "container_id": lambda live: live.container_id,
            "user": lambda live: live.principal,
            "state": lambda live: live.state,
            "age_s": lambda live: live.age_s,
            "timeout_in_s": lambda live: live.timeout_in_s,
            "posted": lambda live: live.posted,
            "retired": lambda live: live.retired,
            "acquired": lambda live: live.acquired,
            "bytes": lambda live: live.size_bytes,
            "reason": lambda live: live.reason,
        },
        {
            ROLLBACK: Action(
                roll_back, "it is rolled back; its controller is told when it uses it next", (REASON,)
            ),
            COMMIT: Action(
                commit, "what is in it so far is committed; its controller knows it no more", (REASON,)
            ),
        },
    )  # fmt: skip


def lasting_address(nodes: BrokerNodes, name: str, kind: str) -> Address:
    """The address of a node of this name, if one of this kind can have it and links would find it there.
    Raises Unmanageable.
    """
    try:
        address = parse_address(name, nodes.config.limits.address_bytes)
    except AddressError as error:
        raise Unmanageable(400, str(error)) from None
    if address.reserved or name.startswith(TEMPORARY_PREFIX):
        raise Unmanageable(403, f"{name!r} is no name for a {kind} that lasts")
    try:
        found, _ = nodes.names.of(name)
    except NodeRefused as refused:
        raise Unmanageable(409, str(refused)) from None
    if found != name:
        raise Unmanageable(409, f"expected a name that leads to itself, and {name!r} leads to {found!r}")
    return address
