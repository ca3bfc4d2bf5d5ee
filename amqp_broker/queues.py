"""All queues by address: made on first use, at the start or for one link, and forgotten with that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import trio

from amqp_broker.addresses import Address
from amqp_broker.configuration import STRICT, BrokerConfig
from amqp_broker.configuration_tables import QueuePolicy
from amqp_broker.frames import Error
from amqp_broker.links import MemoryBudget
from amqp_broker.log import Log
from amqp_broker.persistence import CreateNode, DeleteNode, RecoveredNode, Unit
from amqp_broker.queue import Queue, QueueLimits

QUEUE = "queue"
UNBOUNDED = 2**62  # a capacity of 0 in the configuration: only the disk is the bound


class NodeRefused(Exception):
    """There is no such node, or it can't be had as asked: `error` is what its asker is told."""

    def __init__(self, condition: str, description: str, info: dict[str, Any] | None = None) -> None:
        super().__init__(description)
        self.error = Error(condition=condition, description=description, info=info)


StoreStep = Callable[[Unit, Callable[[], None]], Awaitable[None]]
"""Stores verbs and waits; the second argument is called once they are stored, whoever still waits."""


class Queues:
    """All queues of the broker. `fillers` are called with each that is made, before anybody uses it."""

    def __init__(self, config: BrokerConfig, store_step: StoreStep, memory: MemoryBudget) -> None:
        self.fillers: list[Callable[[Queue, QueuePolicy], None]] = []
        self._config = config
        self._memory = memory
        self._store_step = store_step
        self._queues: dict[str, Queue] = {}
        self._last_temporary_id = 0
        self._creating = trio.Lock()

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up the queues that the store has; nodes of other kinds are not theirs."""
        for node in nodes:
            if node.kind != QUEUE:
                continue
            queue = self._new_queue(node.name, node.queue_id)
            queue.recover(node.first_offset, node.next_offset, node.message_count, node.byte_count)

    def queues(self) -> list[Queue]:
        """Every queue there is."""
        return list(self._queues.values())

    def find(self, address: Address) -> Queue | None:
        """The queue of this address, if it exists."""
        return self._queues.get(address.name)

    def holds(self, queue: Queue) -> bool:
        """Whether `queue` still exists."""
        return self._queues.get(queue.name) is queue

    async def resolve(self, address: Address, *, may_create: bool) -> Queue:
        """The queue of this address, made on first use where the policy allows it. Raises NodeRefused."""
        queue = self._queues.get(address.name)
        if queue is not None:
            return queue
        if address.reserved:
            raise NodeRefused("amqp:not-found", f"no node {address.name!r}: '$' names the broker's own nodes")
        if self._config.policy_of(address.name).create == STRICT:
            raise NodeRefused(
                "amqp:not-found",
                f"no queue {address.name!r}, and its policy does not make queues on first use",
            )
        if not may_create:
            raise NodeRefused("amqp:not-found", f"no queue {address.name!r}, and no right to create it")
        return await self.create(address.name)

    async def create(self, name: str) -> Queue:
        """Make a durable queue, or find that somebody else just made it. Raises NodeRefused at the bound of
        nodes.
        """
        async with self._creating:
            if name in self._queues:
                return self._queues[name]
            self._check_room()
            policy = self._config.policy_of(name)
            verb = CreateNode(name, QUEUE, keep_ms=policy.retention_ms, keep_bytes=policy.retention_bytes)
            await self._store_step([verb], partial(self._created, verb))
            return self._queues[name]

    def _created(self, verb: CreateNode) -> None:
        self._new_queue(verb.name, verb.queue_id)

    def create_temporary(self, name: str) -> Queue:
        """Make a queue that lives in memory only, for a dynamic terminus (3.5.3). Its id is below 0: no store
        knows it.
        """
        self._check_room()
        self._last_temporary_id -= 1
        return self._new_queue(name, self._last_temporary_id, persistent=False)

    def remove(self, queue: Queue) -> Unit:
        """Forget a queue; returns what has to be stored for it."""
        self._queues.pop(queue.name, None)
        return [DeleteNode(queue.queue_id)] if queue.persistent else []

    def _check_room(self) -> None:
        most = self._config.limits.max_nodes
        if len(self._queues) >= most:
            raise NodeRefused(
                "amqp:resource-limit-exceeded", f"the broker has {most} nodes, as many as max_nodes allows"
            )

    def _new_queue(self, name: str, queue_id: int, *, persistent: bool = True) -> Queue:
        policy = self._config.policy_of(name)
        limits = QueueLimits(
            policy.max_messages or UNBOUNDED, policy.max_bytes or UNBOUNDED, policy.max_volatile_bytes
        )
        kind = Log if policy.archives and persistent else Queue
        queue = kind(name, queue_id, limits, persistent=persistent, memory=self._memory)
        self._queues[name] = queue
        queue.in_memory = self._config.memory
        queue.retains = policy.retains and persistent
        queue.stores_all = (policy.retains or policy.events) and persistent
        queue.events = policy.events
        queue.backlog.window_messages = self._config.limits.queue_window_messages
        queue.backlog.window_bytes = self._config.limits.queue_window_bytes
        for fill in self.fillers:
            fill(queue, policy)
        return queue
