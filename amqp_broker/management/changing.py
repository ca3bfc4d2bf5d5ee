"""What UPDATE of `$management` changes of a running broker: bounds and tries of a queue, some keys of the
configuration. It holds until the broker stops: the next start is as the configuration says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from amqp_broker.configuration import BrokerConfig
from amqp_broker.configuration_fields import ConfigurationError
from amqp_broker.log_setup import write_from
from amqp_broker.management.entity_types import Changes, Unmanageable
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

T = TypeVar("T")

BOUNDS: Final = ("max_messages", "max_bytes", "max_volatile_bytes")
TRIES: Final = (
    "max_deliveries", "redelivery_delay_ms", "redelivery_factor", "redelivery_delay_max_ms",
    "undeliverable_wait_ms",
)  # fmt: skip
"""Of a `[[queue]]`, and looked at whenever something comes or fails; all else decides what a queue is."""
LEVEL: Final = "logging.level"
LIMITS: Final = (
    "max_connections", "max_cursors", "max_half_groups", "max_subscriptions", "max_subscriptions_per_topic",
)
"""Looked at whenever one more of these is to be made."""
LIVE_KEYS: Final = (LEVEL, *(f"limits.{name}" for name in LIMITS))


def tries(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> dict[str, Callable[[T], Any]]:
    """The attributes TRIES of what has a queue."""

    def reading(name: str) -> Callable[[T], Any]:
        return lambda thing: getattr(nodes.queues.policy_of(queue_of(thing)), name)

    return {name: reading(name) for name in TRIES}


def queue_changes(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> Changes[T]:
    """Of an entity that has a queue."""

    def make(thing: T, values: Mapping[str, Any]) -> None:
        queue = queue_of(thing)
        try:
            nodes.queues.change(queue, values)
        except ConfigurationError as error:
            raise Unmanageable(400, "; ".join(str(problem) for problem in error.problems)) from None
        nodes.drained(queue)

    meaning = "other bounds and tries until the broker stops; what is there stays, and what was tried counts"
    return Changes((*BOUNDS, *TRIES), make, meaning)


def change_configuration(nodes: BrokerNodes, key: str, value: Any) -> None:
    """Give a key of the configuration another value, where that is looked at while the broker runs. Raises
    Unmanageable.
    """
    if key not in LIVE_KEYS:
        keys = ", ".join(LIVE_KEYS)
        raise Unmanageable(
            409,
            f"expected one of {keys}, got {key}, which is read at the start only: change the file for that",
        )
    table, _, name = key.partition(".")
    try:
        nodes.config = _evolved(nodes.config, table, name, value)
    except ConfigurationError as error:
        raise Unmanageable(400, "; ".join(str(each) for each in error.within(table).problems)) from None
    if key == LEVEL:
        write_from(value)


def _evolved(config: BrokerConfig, table: str, name: str, value: Any) -> BrokerConfig:
    return attrs.evolve(config, **{table: attrs.evolve(getattr(config, table), **{name: value})})
