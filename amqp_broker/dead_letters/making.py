"""A queue of dead letters is made when the first message has to go there."""

from __future__ import annotations

from collections.abc import Callable

from amqp_broker.operations.operation import Operation
from amqp_broker.persistence import CreateNode, Unit
from amqp_broker.queues import Queues


class Making(Operation):
    """A queue of dead letters is made, unless it was there before. `then` is called when it is there, or
    can't be made: what waits for it is refused then, and waits no more.
    """

    def __init__(self, queues: Queues, name: str, then: Callable[[], None]) -> None:
        self._queues = queues
        self._name = name
        self._then = then
        self._verb: CreateNode | None = None

    def prepare(self, now_ms: int) -> Unit:
        """The verb, if the queue is not there."""
        self._verb = None
        if self._queues.find(self._name) is not None:
            return []
        self._verb = self._queues.creation(self._name)
        return [self._verb]

    def stored(self) -> None:
        """The queue is there."""
        if self._verb is not None:
            self._queues.created(self._verb)
        self._then()

    def refused(self, error: Exception) -> None:
        """A link made it in the same group; else it is made when the next message has to go there."""
        self._then()

    def waits_for_space(self) -> bool:
        """What has to go there waits behind it, and would come back to its receivers meanwhile."""
        return True
