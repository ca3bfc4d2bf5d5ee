"""The place of a message in a stream, as queues and their events know it: nothing of it is known here.

Whoever knows streams gives each queue its own `Places` when the queue is made (`Queues.fillers`).
"""

from __future__ import annotations

from amqp_broker.coordinator.sequences import Numbering
from amqp_broker.frames import Error


class Place:
    """The place that a message has by its fields, which are well-formed (row 0 of the table)."""

    __slots__ = ("numbering", "stream")

    def __init__(self, stream: str, numbering: Numbering) -> None:
        self.stream = stream
        self.numbering = numbering


class Places:
    """What a queue says of places in streams: `off`, nobody looks for them; `required`, each message has one.
    Here is what a queue says where nobody knows streams.
    """

    __slots__ = ("off", "required")

    def __init__(self, *, off: bool = True, required: bool = False) -> None:
        self.off = off
        self.required = required

    def place_of(self, body: bytes) -> Place | Error | None:
        """The place of a message, what is wrong with its fields, or None: it has none."""
        return None
