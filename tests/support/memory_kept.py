"""What the accountant of a broker says, and what the broker has: at rest the two agree to the octet.
And what queues have counted is what became of their messages.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.broker import Broker
from amqp_broker.counts import (
    ACCEPTED,
    ARRIVED,
    COUNTS,
    EXPIRED,
    FAILED,
    REJECTED,
    REMOVED,
    UNDELIVERABLE,
)
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.links import OutgoingDelivery
from amqp_broker.log import Log
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.queue import Queue

EVERYTHING: Final = 1_000_000
_LEFT: Final = (ACCEPTED, REJECTED, FAILED, UNDELIVERABLE, EXPIRED, REMOVED)


def memory_faults(broker: Broker) -> list[str]:
    """What does not agree. To be asked at rest: no operation waits, and nothing is half received."""
    faults: list[str] = []
    memory = broker.memory
    queues = broker.nodes.queues.queues()
    for queue in queues:
        faults += _faults_of(queue)
    copies = sum(queue.cached_bytes for queue in queues)
    if not broker.config.memory:
        copies += broker.features.halves._body_bytes
    sets = broker.features.half_sets
    parts = [part for staged in sets.sets() if not staged.store for part in staged.parts.values()]
    stored = broker.writer._store.kept_bytes
    if broker.config.memory:
        stored += sum(part.byte_count + part.count * RECORD_OVERHEAD_BYTES for part in parts)
    pages = sum(
        sum(len(record.body) + RECORD_OVERHEAD_BYTES for record in consumer.pending)
        for queue in queues for consumer in queue.consumers if consumer.browser
    )  # fmt: skip
    if memory.cache.used_bytes != copies:
        faults.append(f"the cache has {memory.cache.used_bytes} octets, queues and half messages {copies}")
    posted = [
        posting.operations * RECORD_OVERHEAD_BYTES + posting.size_bytes
        for task in broker._connections
        for transaction in task.transactions._table.live()
        for posting in transaction.postings
    ]
    merged = [
        item.merged_bytes
        for task in broker._connections
        for transaction in task.transactions._table.live()
        for item in transaction.held
        if isinstance(item, OutgoingDelivery)
    ]
    own = [task._kept_bytes for task in broker._connections]
    expected = sum(queue._kept.used_bytes for queue in queues) + copies + sum(own) + sum(posted)
    expected += sum(merged) + stored + pages
    judged = [queue for queue in queues if isinstance(queue, JudgedQueue)]
    expected += sum(rule.kept_bytes() for queue in judged for rule in queue.rules)
    if memory.used_bytes != expected:
        faults.append(
            f"{memory.used_bytes} octets are used, and {expected} kept: {copies} copies, {sum(own)} of "
            f"{len(own)} connections, {sum(posted)} + {sum(merged)} in transactions, {stored} that only the "
            f"store has, {pages} on their way to browsers"
        )
    return faults


def count_faults(broker: Broker) -> list[str]:
    """What was counted of queues that were empty at the start: what arrived has left, or is there."""
    faults = []
    for queue in broker.nodes.queues.queues():
        left = sum(queue.counts[why] for why in _LEFT)
        if not isinstance(queue, Log) and queue.counts[ARRIVED] != left + queue.message_count:
            counted = dict(zip(COUNTS, queue.counts, strict=True))
            faults.append(f"{queue.name} has {queue.message_count} messages, and counted {counted}")
    return faults


def _faults_of(queue: Queue) -> list[str]:
    everything = queue.byte_count + queue.message_count * RECORD_OVERHEAD_BYTES
    kept = everything if queue.in_memory else queue._volatile_bytes
    faults: list[str] = []
    if queue._kept.used_bytes != kept:
        faults.append(f"{queue.name} keeps {kept} octets, and counts {queue._kept.used_bytes}")
    loaded = queue.backlog.peek(0, EVERYTHING)
    copies = sum(len(record.body) + RECORD_OVERHEAD_BYTES for record in loaded if record.durable)
    if queue.in_memory:
        copies = 0
    held = queue.cached_bytes - copies
    if held < 0 or (held and not queue.consumers and not queue._in_sight):
        faults.append(f"{queue.name} has copies of {copies} octets, and counts {queue.cached_bytes}")
    return faults
