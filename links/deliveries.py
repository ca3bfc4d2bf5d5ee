"""Deliveries in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.frames.hot_frames import Sendable
from amqp_broker.links.output import Piece

if TYPE_CHECKING:
    from amqp_broker.links.sender_link import SenderLink


class OutgoingDelivery:
    """A delivery that we sent unsettled. `state` is the last delivery-state that the receiver told, or None;
    `decided` is the caller's: what becomes of the message is settled, and no later state changes it (3.4).
    `merged` is the caller's, too: message-annotations as outcomes make them, each with its outcome.

    `number` is the delivery-id before it is cut to 32 bits; it only grows within a session. `message` is the
    Sendable that the caller gave.
    """

    __slots__ = ("decided", "merged", "number", "link", "message", "state")

    def __init__(self, number: int, link: SenderLink, message: Any) -> None:
        self.number = number
        self.link = link
        self.message = message
        self.state: object = None
        self.decided = False
        self.merged: list[tuple[Any, bytes]] | None = None

    @property
    def merged_bytes(self) -> int:
        """What `merged` takes."""
        return 0 if self.merged is None else sum([len(section) for _, section in self.merged])

    def merged_by(self, outcome: Any) -> bytes | None:
        """The annotations that this very outcome makes."""
        for given, section in self.merged or ():
            if given is outcome:
                return section
        return None

    @property
    def delivery_id(self) -> int:
        """The wire's number (2.8.8)."""
        return self.number & 0xFFFFFFFF

    @property
    def delivery_tag(self) -> bytes:
        """What the link's tags begin with, and the delivery-id as four bytes."""
        return self.link.tag_prefix + (self.number & 0xFFFFFFFF).to_bytes(4, "big")

    def __repr__(self) -> str:
        return f"<OutgoingDelivery {self.delivery_id} on {self.link.name!r}>"


class TaggedDelivery(OutgoingDelivery):
    """One whose delivery-tag was known before it was sent: it was unsettled when its link was resumed
    (2.6.13), or the store has its tag.
    """

    __slots__ = ("_tag",)

    def __init__(self, number: int, link: SenderLink, message: Any, delivery_tag: bytes) -> None:
        super().__init__(number, link, message)
        self._tag = delivery_tag

    @property
    def delivery_tag(self) -> bytes:
        """That which it was given."""
        return self._tag


class SentCopy:
    """What is left of a message once a copy of it was sent: whoever reads by offset may still tell which."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class PartialDelivery:
    """An incoming delivery that is not complete yet: the first transfer's fields and the chunks so far."""

    __slots__ = (
        "number", "delivery_id", "delivery_tag", "message_format", "settled", "sent_settled", "state",
        "rcv_settle_mode", "batchable", "chunks", "size_bytes", "kept_chunks", "resumed", "begun_at",
        "last_at", "taken_bytes", "told", "stream",
    )  # fmt: skip

    def __init__(self, number: int, delivery_tag: bytes, message_format: int, rcv_settle_mode: int) -> None:
        self.number = number
        self.delivery_id = number & 0xFFFFFFFF
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = False
        """Whether a transfer or a disposition of the sender settled it."""
        self.sent_settled = False
        """A transfer of it said so."""
        self.state: object = None
        self.rcv_settle_mode = rcv_settle_mode
        self.batchable = False
        self.chunks: list[bytes] = []
        self.size_bytes = 0
        self.kept_chunks = 0
        """How many chunks have memory taken for them: not the last one, with which it is complete."""
        self.resumed = False
        self.begun_at = 0.0
        self.last_at = 0.0
        self.taken_bytes = 0
        """Octets of it that are in memory no more (`take_parts`)."""
        self.told = False
        """The caller knows that there are parts to be taken, or wants none."""
        self.stream: Any = None
        """The caller's, once it has taken parts."""


class SendingDelivery:
    """A message that needs several transfers, while they are being sent: as it was when that began, whatever
    others change of it. `aborted`: no more of it is sent but the transfer that says so.
    """

    __slots__ = ("message", "number", "sent_bytes", "total_bytes", "aborted", "_header", "_body")

    def __init__(self, message: Sendable, number: int) -> None:
        self.message = message
        self.number = number
        self.aborted = False
        self.sent_bytes = 0
        self._header = message.header_bytes
        self._body = message.body
        self.total_bytes = len(self._header) + len(self._body)

    def next_bytes(self, room: int) -> Piece | None:
        """The next at most `room` bytes of the message, which count as sent; not copied where they are all
        of its body. None: the rest cannot be had.
        """
        start = self.sent_bytes
        header = self._header
        stop = min(start + room, self.total_bytes)
        self.sent_bytes = stop
        if start >= len(header):
            return memoryview(self._body)[start - len(header) : stop - len(header)]
        return header[start:stop] + self._body[: max(0, stop - len(header))]


class StreamingDelivery(SendingDelivery):
    """One of which only the head is in memory: its body is read as it is sent, from `pieces`, which tell how
    many octets they have (`size_bytes`), and read them one after the other (`read`; nothing where they cannot
    be had, and then `why`, and whether they are `damaged`).
    """

    __slots__ = ("pieces",)

    def __init__(self, message: Sendable, number: int, pieces: Any) -> None:
        super().__init__(message, number)
        self.pieces = pieces
        self._body = self._header + self._body
        self._header = b""
        self.total_bytes += int(pieces.size_bytes)

    def next_bytes(self, room: int) -> Piece | None:
        """The head comes first, in transfers of its own."""
        start = self.sent_bytes
        head = len(self._body)
        if start < head:
            self.sent_bytes = min(start + room, head)
            return self._body[start : self.sent_bytes]
        octets: bytes = self.pieces.read(room)
        self.sent_bytes += len(octets)
        return octets or None


def in_words(first: int, last: int) -> str:
    """Delivery-ids, for who reads an error."""
    return f"delivery {first}" if first == last else f"deliveries {first} to {last}"
