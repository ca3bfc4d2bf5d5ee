"""What memory no longer has leaves the store: a queue that was deleted, a subscription that has ended."""

from __future__ import annotations

from collections.abc import Callable

from amqp_broker.frames import Error
from amqp_broker.operations.operation import Operation, error_of
from amqp_broker.persistence import Unit

Then = Callable[[Error | None], None]
"""Is told once how something ended: None is well."""


class Removal(Operation):
    """The verbs by which it leaves. On a full disk it waits for room."""

    def __init__(self, verbs: Unit, then: Then) -> None:
        self._verbs = verbs
        self._then = then

    def prepare(self, now_ms: int) -> Unit:
        """The verbs."""
        return self._verbs

    def stored(self) -> None:
        """It is gone."""
        self._then(None)

    def refused(self, error: Exception) -> None:
        """A fault of the broker: a start may find it again."""
        self._then(error_of(error))

    def judges(self) -> bool:
        """Its end is decided."""
        return False

    def waits_for_space(self) -> bool:
        """In memory it is gone already."""
        return True
