"""Tests of sets that look into the broker, and that make changes meet in one group of the writer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Header, encode_message
from amqp_broker.half_sets.administration import HalfSetInfo
from amqp_broker.operations.posting import Step
from amqp_broker.persistence import Event, Journal
from amqp_broker.testing.peer import PeerSender
from tests.support.half_sets import half_sets
from tests.support.jumping_broker import JumpingBroker


def sets_of(broker: RunningBroker) -> dict[str, HalfSetInfo]:
    """What an administrator sees, by set."""
    return {each.set_id: each for each in half_sets(broker)}


def next_offset(broker: RunningBroker, name: str = "q") -> int:
    """The number that the next message of a queue gets."""

    def there(running: Broker) -> int:
        return running.nodes.queues._queues[name].next_offset

    found = broker.call(there)
    assert isinstance(found, int)
    return found


def nothing_is_held(broker: RunningBroker) -> None:
    """No change is on its way, and the figures are the sums of what is there."""

    def there(running: Broker) -> tuple[Any, ...]:
        service = running.features.half_sets
        staged = service.sets()
        assert not any(each.under_way or each.unstored for each in staged)
        assert not any(producer.decided for producer in service.producers.values())
        assert not any(queue.pending_posts for queue in running.nodes.queues.queues())
        assert service.part_count == sum([len(each.parts) for each in staged])
        assert service.byte_count == sum([each.byte_count for each in staged])
        assert all(producer.sets for producer in service.producers.values())
        return ()

    broker.call(there)


def durable(body: bytes) -> bytes:
    """A durable message."""
    return encode_message(header=Header(durable=True), body=body)


def together(broker: JumpingBroker, *asked: tuple[PeerSender, bytes]) -> list[Any]:
    """Requests of several connections, judged in one group; their outcomes."""
    with broker.faults.held_commits():
        broker.call(_something_else)
        numbers = []
        for sender, payload in asked:
            numbers.append(sender.send(payload))
            sender.session.connection.flush()
            broker.call(_arrived(len(numbers)))
    told = []
    for (sender, _), number in zip(asked, numbers, strict=True):
        sender.session.connection.pump_until(partial(sender.outcomes.__contains__, number))
        told.append(sender.outcomes[number])
    return told


async def _something_else(broker: Broker) -> None:
    """Its commit holds the writer: what comes meanwhile shares the next group."""
    broker.writer.submit(Step([Journal(Event("test", 0, {}))]))
    while not broker.writer._in_worker:
        await trio.sleep(0)


def _arrived(count: int) -> Callable[[Broker], Any]:
    async def there(broker: Broker) -> None:
        while len(broker.writer._waiting) < count:
            await trio.sleep(0)

    return there
