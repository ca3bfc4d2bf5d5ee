"""The settings of a queue's node, what the store keeps of it beside its messages: whether something in it
expires, until when a subscription waits, what an operator changed. Who changes some of them changes
`Queue.settings`, and has them kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amqp_broker.operations.posting import Step
from amqp_broker.persistence import Configure, Unit

if TYPE_CHECKING:
    from amqp_broker.queue import Queue


class SettingsStep(Step):
    """All settings as they are when the group is made: what others changed before it stays. `then` is as that
    of a `Step`.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue, then: Callable[[Exception | None], None] | None = None) -> None:
        super().__init__([], then)
        self._queue = queue

    def prepare(self, now_ms: int) -> Unit:
        """The verb that keeps them."""
        return [Configure(self._queue.queue_id, self._queue.settings)]

    def judges(self) -> bool:
        """An operation before it may have changed some, and be undone."""
        return True
