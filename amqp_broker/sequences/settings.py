"""What a queue says of sequenced streams: whether it takes them, and when their outcomes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.configuration import SEQUENCE_OFF, SEQUENCE_REQUIRED
from amqp_broker.frames import Error
from amqp_broker.places import Place, Places
from amqp_broker.sequences.fields import place_of

if TYPE_CHECKING:
    from amqp_broker.configuration import QueuePolicy
    from amqp_broker.persistence import Stream
    from amqp_broker.queue import Queue


class QueueSequences(Places):
    """The settings of one queue. `local` has the positions of the streams of a queue that no store knows, by
    name; they live as long as it does.
    """

    __slots__ = ("debounce_ms", "local", "max_delay_ms")

    def __init__(self, policy: QueuePolicy) -> None:
        super().__init__(off=policy.sequence == SEQUENCE_OFF, required=policy.sequence == SEQUENCE_REQUIRED)
        self.debounce_ms = policy.order_debounce_ms
        self.max_delay_ms = policy.order_max_delay_ms
        self.local: dict[str, Stream] = {}

    def place_of(self, body: bytes) -> Place | Error | None:
        """By the fields that the message itself has."""
        return place_of(body, None)


def sequences_of(queue: Queue) -> QueueSequences:
    """The settings of `queue`, which `fill` has given it."""
    found = queue.sequences
    assert isinstance(found, QueueSequences), f"queue {queue.name!r} was made before its streams were known"
    return found


def fill(queue: Queue, policy: QueuePolicy) -> None:
    """A queue was made."""
    queue.sequences = QueueSequences(policy)
