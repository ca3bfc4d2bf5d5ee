"""All queues by address: made on first use, at the start or for one link, and forgotten with that.

    address --site--> Site, every reason against it --make--> Queue

A site is what can be said of a queue before there is one. `Site.make` is the only way to a queue by its
address, and it is a coroutine: what judges an attach is none, so nothing is made before all is judged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from amqp_broker.addresses import TEMPORARY_PREFIX, Address
from amqp_broker.configuration import (
    SEQUENCE_REQUIRED,
    STRICT,
    TRANSACTION_MESSAGES,
    BrokerConfig,
    QueuePolicy,
)
from amqp_broker.configuration_fields import ConfigurationError
from amqp_broker.counts import COUNTS, REMOVED, added
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.links import MemoryBudget
from amqp_broker.log import Log
from amqp_broker.log_setup import logger
from amqp_broker.message_groups import MessageGroups
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.persistence import CreateNode, DeleteNode, NodeExists, RecoveredNode, StoreFull, Unit
from amqp_broker.priorities import PriorityBacklog
from amqp_broker.queue import Queue, QueueLimits, why_full

QUEUE = "queue"
CHANGED: Final = "changed"  # of the settings of a queue: what an operator changed of its policy, by name
UNBOUNDED = 2**62  # a capacity of 0 in the configuration: only the disk is the bound
PLACES_ONLY: Final = "takes messages with a place in a stream only"


class NoRoom(NodeRefused):
    """A queue is full: what waits for its commit may make room."""

    def __init__(self, queue: Queue) -> None:
        super().__init__("amqp:resource-limit-exceeded", why_full(queue))


StoreStep = Callable[[Unit, Callable[[], None]], Awaitable[None]]
"""Stores verbs and waits; the second argument is called once they are stored, whoever still waits."""


class Site:
    """Where a queue stands, or would stand: what can be said of it before there is one. `persistent`: it is,
    or would be, one that the store knows; `configured` is the policy that the configuration has for it, and
    `policy` what holds.
    """

    __slots__ = ("_queues", "configured", "name", "persistent", "policy")

    def __init__(self, queues: Queues, name: str, policy: QueuePolicy, *, persistent: bool) -> None:
        self._queues = queues
        self.name = name
        self.policy = self.configured = policy
        self.persistent = persistent

    @property
    def queue(self) -> Queue | None:
        """The queue that stands there now, if there is one."""
        return self._queues.find(self.name)

    @property
    def made(self) -> Queue:
        """The queue that `make` made there. Raises NodeRefused: it was temporary, and is gone again."""
        queue = self.queue
        if queue is None:
            raise NodeRefused("amqp:resource-deleted", f"queue {self.name!r} was deleted")
        return queue

    @property
    def archives(self) -> bool:
        """Whether the queue is a log, or would be one."""
        return self.policy.archives and self.persistent

    @property
    def retains(self) -> bool:
        """Whether the queue keeps settled messages, or would."""
        return self.policy.retains and self.persistent

    @property
    def judges(self) -> bool:
        """Whether the queue has rules about what comes, or would have."""
        return self.policy.judges and self.persistent

    def check_messages(self) -> None:
        """Whether the queue takes messages that are no half messages. Raises NodeRefused."""
        if self.policy.message_type == TRANSACTION_MESSAGES:
            raise NodeRefused(
                "amqp:not-allowed",
                f"queue {self.name!r} has message_type transaction: it takes half messages only "
                f"($half/<group>/{self.name})",
            )

    def check_replies(self) -> None:
        """Whether the queue takes messages of the broker itself. Raises NodeRefused."""
        self.check_messages()
        if self.policy.sequence == SEQUENCE_REQUIRED:
            raise NodeRefused("amqp:not-allowed", f"queue {self.name!r} {PLACES_ONLY}")

    async def make(self) -> Queue:
        """Make the queue if it is not there. Raises NodeRefused where there is no room for it."""
        queue = self.queue
        if queue is not None:
            return queue
        if not self.persistent:
            return self._queues.create_temporary(self.name)
        try:
            return await self._queues.create(self.name)
        except StoreFull as full:
            description = f"the queue could not be made: {full}"
            raise NodeRefused("amqp:resource-limit-exceeded", description) from full


class Queues:
    """All queues of the broker. `fillers` are called with each that is made, before anybody uses it, and
    `changers` when its policy was changed by hand; `is_topic` says which names are those of nodes that copy,
    and `needs` why a queue can't be deleted by hand (empty: it can). `leaving` are called with each that
    goes: what else has to be stored then. `outliving` say whether something waits for a queue that goes to
    the dead letters when the queue is gone.
    """

    def __init__(self, config: BrokerConfig, store_step: StoreStep, memory: MemoryBudget) -> None:
        self.fillers: list[Callable[[Queue, QueuePolicy], None]] = []
        self.is_topic: Callable[[str], bool] = lambda name: False
        self.changers: list[Callable[[Queue, QueuePolicy], None]] = []
        self.needs: list[Callable[[Queue], str]] = []
        self.leaving: list[Callable[[Queue], Unit]] = []
        self.outliving: list[Callable[[Queue], bool]] = []
        self.former_counts = [0] * len(COUNTS)  # of queues that are gone
        self._config = config
        self._dead_letter_addresses = config.dead_letter_addresses()  # what a start made for them stays that
        self._memory = memory
        self._store_step = store_step
        self._queues: dict[str, Queue] = {}
        self._sites: dict[str, Site] = {}  # of the queues that there are
        self._last_temporary_id = 0
        self.creating = trio.Lock()
        """Held while a queue is made, whose policy stays what it was."""

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up the queues that the store has; nodes of other kinds are not theirs."""
        for node in nodes:
            if node.kind != QUEUE:
                continue
            self.adopt(node, self._config.policy_of(node.name))

    def adopt(self, node: RecoveredNode, policy: QueuePolicy) -> Queue:
        """Take up a queue that the store has, with what was changed of its policy."""
        queue = self.enter(node.name, node.queue_id, policy, settings=node.settings)
        queue.recover(node.first_offset, node.next_offset, node.message_count, node.byte_count)
        return queue

    def queues(self) -> list[Queue]:
        """Every queue there is."""
        return list(self._queues.values())

    def find(self, name: str) -> Queue | None:
        """The queue of this name, if it exists."""
        return self._queues.get(name)

    def holds(self, queue: Queue) -> bool:
        """Whether `queue` still exists."""
        return self._queues.get(queue.name) is queue

    def site(self, address: Address, may_create: Callable[[], bool]) -> Site:
        """Where the queue of this address stands, or would be made on first use. Raises NodeRefused where
        there is none, and none is made.
        """
        name = address.name
        if address.reserved:
            raise NodeRefused("amqp:not-found", f"no node {name!r}: '$' names the broker's own nodes")
        site = self._sites.get(name)
        if site is not None:
            return site
        if self.is_topic(name):
            raise NodeRefused("amqp:not-allowed", f"{name!r} is a topic, and only a queue can be had here")
        if name.startswith(TEMPORARY_PREFIX):
            raise NodeRefused("amqp:not-found", f"no queue {name!r}: it was a dynamic node, and is gone")
        policy = self._config.policy_of(name)
        if policy.create == STRICT:
            raise NodeRefused(
                "amqp:not-found", f"no queue {name!r}, and its policy does not make queues on first use"
            )
        if not may_create():
            raise NodeRefused("amqp:not-found", f"no queue {name!r}, and no right to create it")
        self.check_room()
        return Site(self, name, policy, persistent=True)

    def site_of_dynamic(self, name: str) -> Site:
        """Where a queue would stand that lives in memory only, for a dynamic terminus (3.5.3). Raises
        NodeRefused.
        """
        assert name.startswith(TEMPORARY_PREFIX), f"{name!r} would be taken for another queue"
        self.check_room()
        return Site(self, name, self._config.policy_of(name), persistent=False)

    def site_by_name(self, name: str) -> Site:
        """Where a queue of the broker itself stands, or would."""
        return self._sites.get(name) or Site(self, name, self._config.policy_of(name), persistent=True)

    async def create(self, name: str, settings: dict[str, object] | None = None) -> Queue:
        """Make a durable queue, or find that somebody else just made it. Raises NodeRefused at the bound of
        nodes.
        """
        async with self.creating:
            if name in self._queues:
                return self._queues[name]
            self.check_room()
            verb = self.creation(name)
            verb.settings.update(settings or {})
            try:
                await self._store_step([verb], partial(self.created, verb))
            except NodeExists:
                if name not in self._queues:  # the broker itself has not just made it
                    raise
            return self._queues[name]

    def creation(self, name: str) -> CreateNode:
        """What makes the store know a queue; then `created` has to follow."""
        policy = self._config.policy_of(name)
        return CreateNode(name, QUEUE, keep_ms=policy.retention_ms, keep_bytes=policy.retention_bytes)

    def created(self, verb: CreateNode) -> None:
        """The store knows the queue."""
        self.enter(verb.name, verb.queue_id, self._config.policy_of(verb.name), settings=verb.settings)

    async def create_in_memory(self, name: str, settings: dict[str, object]) -> Queue | None:
        """Make a queue that lives in memory only under a name that was chosen; None where somebody else has
        just made one. Raises NodeRefused at the bound of nodes.
        """
        async with self.creating:
            return None if name in self._queues else self.create_temporary(name, settings=settings)

    def create_temporary(
        self, name: str, policy: QueuePolicy | None = None, settings: dict[str, object] | None = None
    ) -> Queue:
        """Make a queue that lives in memory only, for a dynamic terminus (3.5.3). Its id is below 0: no store
        knows it.
        """
        self.check_room()
        self._last_temporary_id -= 1
        policy = policy or self._config.policy_of(name)
        return self.enter(name, self._last_temporary_id, policy, persistent=False, settings=settings)

    def remove(self, queue: Queue) -> Unit:
        """Forget a queue; returns what has to be stored for it."""
        verbs: Unit = [DeleteNode(queue.queue_id)] if queue.persistent else []
        if self._queues.pop(queue.name, None) is not None:
            queue.counts[REMOVED] += queue.message_count
            added(self.former_counts, queue.counts)
            for leave in self.leaving:
                verbs.extend(leave(queue))
        self._sites.pop(queue.name, None)
        return verbs

    def check_room(self) -> None:
        """Whether there may be one more node. Raises NodeRefused."""
        most = self._config.limits.max_nodes
        if len(self._queues) >= most:
            raise NodeRefused(
                "amqp:resource-limit-exceeded",
                f"the broker has {most} nodes, as many as max_nodes allows",
                limit="max_nodes",
            )

    def policy_of(self, queue: Queue) -> QueuePolicy:
        """What holds for a queue now."""
        return self._sites[queue.name].policy

    def configured(self, queue: Queue) -> QueuePolicy:
        """What the configuration says of a queue."""
        return self._sites[queue.name].configured

    def change(self, queue: Queue, policy: QueuePolicy) -> None:
        """Another policy holds for a queue from now on: bounds, and what features look at each time."""
        self._sites[queue.name].policy = policy
        queue.limits = _limits(policy)
        for change in self.changers:
            change(queue, policy)
        queue.count_credit()

    def reconfigure(self, config: BrokerConfig, policies: Mapping[str, QueuePolicy]) -> list[Queue]:
        """The configuration was read again, and says something else of these queues. What an operator changed
        of one goes before that. Returns those for which another policy holds now.
        """
        before, self._config = self._config, config
        windows = ("queue_window_messages", "queue_window_bytes")
        if any(getattr(before.limits, name) != getattr(config.limits, name) for name in windows):
            for queue in self._queues.values():
                self._set_window(queue)
        changed = []
        for name, policy in policies.items():
            site, found = self._sites.get(name), self._queues.get(name)
            if site is not None and found is not None:
                site.configured = policy
                self.change(found, _as_changed(name, policy, found.settings))
                changed.append(found)
        return changed

    def _set_window(self, queue: Queue) -> None:
        queue.backlog.window_messages = self._config.limits.queue_window_messages
        queue.backlog.window_bytes = self._config.limits.queue_window_bytes

    def enter(
        self, name: str, queue_id: int, policy: QueuePolicy, *, persistent: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> Queue:  # fmt: skip
        """The queue of a node that was made or recovered with these settings, which is there from now on."""
        site = Site(self, name, policy, persistent=persistent)
        settings = {} if settings is None else settings
        site.policy = policy = _as_changed(name, policy, settings)
        kind = Log if site.archives else JudgedQueue if site.judges else Queue
        queue = kind(name, queue_id, _limits(policy), persistent=persistent, memory=self._memory)
        self._queues[name] = queue
        self._sites[name] = site
        queue.settings = settings
        queue.in_memory = self._config.memory
        queue.retains = site.retains
        queue.stores_all = (policy.retains or policy.events) and persistent
        queue.events = policy.events
        if policy.groups:
            queue.groups = MessageGroups(queue, policy.max_groups, rebalances=policy.group_rebalance)
        if policy.priorities and name not in self._dead_letter_addresses:
            queue.backlog = PriorityBacklog()
        self._set_window(queue)
        for fill in self.fillers:
            fill(queue, policy)
        return queue


def changed_of(queue: Queue) -> dict[str, Any]:
    """What an operator changed of the policy of a queue: attributes with their values."""
    settings: dict[str, Any] = queue.settings
    found: dict[str, Any] = settings.get(CHANGED, {})
    return found


def _as_changed(name: str, policy: QueuePolicy, settings: dict[str, Any]) -> QueuePolicy:
    """The policy with what its node's settings say that an operator changed. What the configuration no longer
    allows is in force no more, and the log says so.
    """
    changed = settings.get(CHANGED)
    if not changed:
        return policy
    try:
        return attrs.evolve(policy, **changed)
    except (ConfigurationError, TypeError) as error:
        del settings[CHANGED]
        logger("queues").warning("queue.change_given_up", queue=name, changed=[*changed], reason=str(error))
        return policy


def _limits(policy: QueuePolicy) -> QueueLimits:
    return QueueLimits(
        policy.max_messages or UNBOUNDED, policy.max_bytes or UNBOUNDED, policy.max_volatile_bytes
    )
