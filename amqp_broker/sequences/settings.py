"""What a queue says of sequenced streams: whether it takes them, and when their outcomes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amqp_broker.persistence import Stream

SEQUENCE_OFF: Final = "off"
SEQUENCE_OPTIONAL: Final = "optional"
SEQUENCE_REQUIRED: Final = "required"


class QueueSequences:
    """The settings of one queue. `local` has the positions of the streams of a queue that no store knows, by
    name; they live as long as it does.
    """

    __slots__ = ("debounce_ms", "local", "max_delay_ms", "off", "required")

    def __init__(
        self, sequence: str = SEQUENCE_OPTIONAL, debounce_ms: int = 0, max_delay_ms: int = 100
    ) -> None:
        self.off = sequence == SEQUENCE_OFF
        self.required = sequence == SEQUENCE_REQUIRED
        self.debounce_ms = debounce_ms
        self.max_delay_ms = max_delay_ms
        self.local: dict[str, Stream] = {}
