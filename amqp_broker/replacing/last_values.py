"""The queues that replace, and their keys after a start: all that such a queue has is read once, before
anybody is served. How much that is, is bounded by what may wait there (`LAST_VALUES_MAX`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.replacing.replacing import Replacing
from amqp_broker.replacing.ring import Ring

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.configuration import QueuePolicy
    from amqp_broker.persistence import Store
    from amqp_broker.queue import Queue


class LastValues:
    """One for each broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self._nodes = nodes
        self._unread: list[Replacing] | None = []  # until the start is over

    def fill(self, queue: Queue, policy: QueuePolicy) -> None:
        """A queue was made."""
        if not policy.replaces or not isinstance(queue, JudgedQueue):
            return
        ring = None
        if policy.ring_messages or policy.ring_bytes:
            ring = Ring(self._nodes, queue, policy.ring_messages, policy.ring_bytes)
        if policy.ring_bytes:
            queue.counts_held(policy.ring_bytes)
        rule = Replacing(self._nodes, queue, ring, policy.last_value_key or "")
        queue.rules.append(rule)
        if policy.last_value_key and self._unread is not None:
            self._unread.append(rule)

    async def read(self) -> None:
        """Read the keys of what is stored."""
        unread, self._unread = self._unread or [], None
        for rule in unread:
            await self._through(rule.take_up)
            if rule.any_older:
                await self._through(rule.clean_up)

    async def _through(self, step: Callable[[int, Store], int]) -> None:
        """Page by page, each between two commits."""
        at = 0
        while at >= 0:
            at = await self._nodes.writer.ask(partial(step, at))
