"""The journal of a running broker, as tests look at it."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Header, Properties, encode_message
from amqp_broker.persistence import Event, Store
from amqp_broker.persistence.questions import PageOf
from amqp_broker.testing import memory_config
from tests.support.broker_clients import at_rest

EVENTS: Final = QueuePolicy(pattern="e.**", events=True)
"""Queues whose names begin with `e.` have events."""


def config_with_events(**settings: Any) -> BrokerConfig:
    """In memory, with queues that have events and queues that have none."""
    return memory_config(queue_policies=(EVENTS, *settings.pop("queue_policies", ())), **settings)


def log_of(broker: RunningBroker) -> list[Event]:
    """All of it, once the broker is at rest."""
    at_rest(broker)

    async def there(running: Broker) -> list[Event]:
        return await running.half_messages.events(0, 1_000_000)

    found = broker.call(there)
    assert isinstance(found, list)
    return found


def told(events: list[Event], kind: str, *names: str) -> list[tuple[object, ...]]:
    """Of the events of one kind: the values of these fields, None for one that is not there."""
    return [tuple(event.fields.get(name) for name in names) for event in events if event.kind == kind]


def kinds(events: list[Event]) -> list[str]:
    """Of all, in order; a run of the same kind once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.kind:
            found.append(event.kind)
    return found


def queue_offsets(broker: RunningBroker, name: str) -> list[int]:
    """Of all the messages that a queue has, in memory and on disk; nobody may hold one that is in memory
    only.
    """

    async def there(running: Broker) -> list[int]:
        queue = running.nodes.queues._queues[name]
        found = {record.offset for record in queue.backlog.peek(0, queue.message_count + 1)}

        def look(store: Store) -> None:
            page = store.ask(PageOf(queue.queue_id, 0, queue.message_count + 1, 1 << 30))
            found.update([record.offset for record in page.records])

        if queue.persistent:
            running.writer.read(look)
            await running.nodes.store_step([])
        assert len(found) == queue.message_count, f"{queue.message_count} messages, but {sorted(found)}"
        return sorted(found)

    at_rest(broker)
    offsets = broker.call(there)
    assert isinstance(offsets, list)
    return offsets


def named(message_id: Any, body: bytes = b"body", durable: bool = True, **properties: Any) -> bytes:
    """A message with an id."""
    return encode_message(
        header=Header(durable=durable), properties=Properties(message_id=message_id, **properties), body=body
    )
