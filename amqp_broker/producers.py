"""One link on which a client posts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.frames import Error
from amqp_broker.links import ReceiverLink
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.link_owner import LinkOwner


class Producer:
    """A receiving link of ours and the queue it feeds; `queue` None is the anonymous terminus (each message
    names its node).
    """

    __slots__ = ("blocked", "credit", "ended", "link", "owner", "placed", "queue", "stream", "temporary")

    def __init__(
        self, owner: LinkOwner, link: ReceiverLink, queue: Queue | None, credit: int, temporary: bool
    ) -> None:
        self.owner = owner
        self.link = link
        self.queue = queue
        self.credit = credit
        self.temporary = temporary
        self.blocked = False
        self.ended = False
        self.stream: str | None = None  # that the link named for its messages
        self.placed = queue is not None and queue.sequences.required  # each message has its place in a stream

    def name_stream(self, stream: str | None) -> None:
        """What the link's attach says of its messages."""
        self.stream = stream
        self.placed = self.placed or stream is not None

    def detach(self, error: Error) -> None:
        """End the link: nothing more that arrived on it is taken.

        What the peer sent before a detach of its own is taken, although the link is gone by then.
        """
        self.ended = True
        self.link.detach(error)
