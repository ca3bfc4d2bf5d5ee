"""What UPDATE of `$management` changes of a running broker: bounds and tries of a queue, which are kept with
the queue until RESET, and some keys of the configuration, for which the file holds again when it is read.

    values --prepare: what the file says, with what was changed before--> Configure --COMMIT--> they hold
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from amqp_broker.authorisation import Principal
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.configuration_fields import ConfigurationError
from amqp_broker.frames import Error
from amqp_broker.log_setup import write_from
from amqp_broker.management.entity_types import Action, Changes
from amqp_broker.management.errors import Unmanageable
from amqp_broker.operations.operation import Operation, Refused, answer_to
from amqp_broker.persistence import Configure, Unit
from amqp_broker.queue import Queue, deleted_error
from amqp_broker.queues import CHANGED, changed_of

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


RESET: Final = "RESET"
INVALID: Final = "amqp:invalid-field"


class PolicyChange(Operation):
    """Other values of what the configuration says of a queue, or (None) none of those that it had. They are
    kept with the queue, and hold, when their commit has returned; `then` is told.
    """

    def __init__(
        self, nodes: BrokerNodes, queue: Queue, values: Mapping[str, Any] | None,
        then: Callable[[Exception | None], None],
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._queue = queue
        self._values = values
        self._then = then
        self._policy: QueuePolicy | None = None
        self._before: Any = None

    def prepare(self, now_ms: int) -> Unit:
        """Judge them beside what was changed before. What is as the configuration says is no change."""
        queue, queues = self._queue, self._nodes.queues
        if not queues.holds(queue):
            raise Refused(deleted_error(queue))
        configured = queues.configured(queue)
        told = {} if self._values is None else {**changed_of(queue), **self._values}
        changed = {name: value for name, value in told.items() if value != getattr(configured, name)}
        try:
            self._policy = attrs.evolve(configured, **told)
        except ConfigurationError as error:
            reason = "; ".join(str(problem) for problem in error.problems)
            raise Refused(Error(condition=INVALID, description=reason)) from None
        self._before = queue.settings.get(CHANGED)
        self._note(changed)
        return [Configure(queue.queue_id, queue.settings)] if queue.persistent else []

    def _note(self, changed: Any) -> None:
        others = {name: value for name, value in self._queue.settings.items() if name != CHANGED}
        self._queue.settings = {**others, CHANGED: changed} if changed else others

    def undo(self) -> None:
        """What was changed before is what is kept."""
        if self._policy is not None:
            self._policy = None
            self._note(self._before)

    def stored(self) -> None:
        """They hold."""
        nodes, queue = self._nodes, self._queue
        assert self._policy is not None, "it was prepared"
        if nodes.queues.holds(queue):
            nodes.queues.change(queue, self._policy)
            nodes.drained(queue)
        self._then(None)

    def refused(self, error: Exception) -> None:
        """What held before holds."""
        self._then(error)


async def change_policy(nodes: BrokerNodes, queue: Queue, values: Mapping[str, Any] | None) -> None:
    """Give a queue other bounds and tries, or (None) those of the configuration, and wait until that is
    stored. Raises Unmanageable, Refused and StoreError.
    """
    error: Exception | None = await answer_to(
        lambda then: nodes.writer.submit(PolicyChange(nodes, queue, values, then))
    )
    if isinstance(error, Refused) and error.error.condition == INVALID:
        raise Unmanageable(400, str(error.error.description))
    if error is not None:
        raise error


def changed(queue_of: Callable[[T], Queue]) -> dict[str, Callable[[T], Any]]:
    """The attribute that names what was changed of an entity that has a queue."""
    return {CHANGED: lambda thing: [*changed_of(queue_of(thing))]}


def reset_action(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> dict[str, Action[T]]:
    """That nothing of an entity that has a queue is changed any more."""

    def run(thing: T, told: Mapping[str, Any], _: Principal) -> Awaitable[None]:
        return change_policy(nodes, queue_of(thing), None)

    return {RESET: Action(run, "all that UPDATE changed is as the configuration says again")}


def tries(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> dict[str, Callable[[T], Any]]:
    """The attributes TRIES of what has a queue."""

    def reading(name: str) -> Callable[[T], Any]:
        return lambda thing: getattr(nodes.queues.policy_of(queue_of(thing)), name)

    return {name: reading(name) for name in TRIES}


def queue_changes(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> Changes[T]:
    """Of an entity that has a queue."""

    def make(thing: T, values: Mapping[str, Any]) -> Awaitable[None]:
        return change_policy(nodes, queue_of(thing), values)

    meaning = "other bounds and tries, kept as long as the queue; what is there stays, what was tried counts"
    return Changes((*BOUNDS, *TRIES), make, meaning)


def change_configuration(nodes: BrokerNodes, key: str, value: Any) -> None:
    """Give a key of the configuration another value, where that is looked at while the broker runs. Raises
    Unmanageable.
    """
    if key not in LIVE_KEYS:
        keys = ", ".join(LIVE_KEYS)
        raise Unmanageable(
            409,
            f"expected one of {keys}, got {key}: change the file for that, and have it read again",
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
