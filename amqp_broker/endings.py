"""What becomes of messages that nobody accepts, and when one that failed is offered again: a hook of queues.

Without a feature that fills it, what is rejected or expires is gone with its commit, a message may fail for
ever, and what failed is offered again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from amqp_broker.compilation import mypyc_attr
from amqp_broker.persistence import Record, Unit

REJECTED: Final = "rejected"
TRIED_TOO_OFTEN: Final = "max-deliveries"
EXPIRED: Final = "expired"
UNDELIVERABLE: Final = "undeliverable-here"


class Departed:
    """A message that leaves its queue, as its last outcome made it: the message itself stays as it was, since
    the outcome may be one of a transaction that rolls back.
    """

    __slots__ = ("body", "delivery_count", "record")

    def __init__(self, record: Record, delivery_count: int, body: bytes) -> None:
        self.record = record
        self.delivery_count = delivery_count
        self.body = body


def as_it_is(record: Record) -> Departed:
    """A message that no outcome has changed."""
    return Departed(record, record.delivery_count, record.body)


@mypyc_attr(allow_interpreted_subclasses=True)
class Letter:
    """What is stored elsewhere of messages that leave their queue, in the same commit: a part of an
    Operation, which calls it as the writer calls the operation itself.
    """

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call `then`, which submits an operation of the broker's own, as soon as there is a place for the
        messages.
        """
        then()

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that store the messages there. Raises NotYet where there is no place."""
        return []

    def undo(self) -> None:
        """Take back what `prepare` changed. Harmless when nothing was, or twice."""

    def stored(self) -> None:
        """The messages are there."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Endings:
    """The rules of one queue."""

    def __init__(self) -> None:
        self.max_deliveries = 0
        """So many deliveries of a message may fail; 0 is any number."""

    def make_ready(self) -> None:
        """Have a place made for what outcomes end; their operations are submitted after that."""

    def letter(self, reason: str, text: str, departed: Sequence[Departed]) -> Letter | None:
        """What is stored of messages that leave the queue for this reason, with `text` for people. None: they
        are gone.
        """
        return None

    def put_off(self, record: Record) -> bool:
        """Whether a message whose delivery failed is given back later; then it is done by who says so."""
        return False

    def excluded(self, record: Record) -> None:
        """A link said undeliverable-here of a message that is about to come back."""


GONE: Final = Endings()
