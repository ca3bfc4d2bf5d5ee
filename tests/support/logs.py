"""Queues that are logs: each message is archived when it becomes available, and read by offset."""

from __future__ import annotations

from typing import Any

import attrs

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.persistence.questions import PageOf
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import at_rest, bodies, counts, receive
from tests.support.retained import DAY_MS, offset_of, read


def log_policy(pattern: str, **changes: Any) -> QueuePolicy:
    """One that keeps a day, unless `changes` say otherwise."""
    return QueuePolicy(pattern=pattern, kind="log", **{"retention_ms": DAY_MS, **changes})


def logs(*patterns: str, events: bool = False, **changes: Any) -> BrokerConfig:
    """A broker in memory whose queues of these patterns are logs; no connection dies of idleness."""
    policies = tuple(log_policy(pattern, events=events) for pattern in patterns)
    limits = BrokerLimits(idle_time_out_ms=2**32 - 1, **changes.pop("limits", {}))
    return memory_config(queue_policies=policies, limits=limits, **changes)


def with_policies(config: BrokerConfig, *policies: QueuePolicy) -> BrokerConfig:
    """The same broker with other queues."""
    return attrs.evolve(config, queue_policies=policies)


def all_of(session: PeerSession, address: str, count: int) -> list[bytes]:
    """What a reader from the first on gets: so many messages, with dense offsets, and no more."""
    found = receive(read(session, address, "first", until=count, credit=count + 1), count)
    assert [offset_of(each) for each in found] == list(range(count))
    return bodies(found)


def nothing_waits(broker: RunningBroker, address: str) -> bool:
    """Whether the broker holds nothing of it, in memory or for consumers on disk."""

    async def there(running: Broker) -> tuple[int, int, int]:
        queue = running.nodes.queues._queues[address]
        page = await running.writer.ask(PageOf(queue.queue_id, 0, 10, 1 << 20))
        return queue.backlog.available(), queue.backlog.memory_bytes(), len(page.records)

    at_rest(broker)
    return counts(broker, address) == (0, 0) and broker.call(there) == (0, 0, 0)
