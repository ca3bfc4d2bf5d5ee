"""One message as the queues hold it, the store keeps it and the links send it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amqp_broker.persistence.open_bodies import BodyFile

DEFAULT_PRIORITY: Final = 4  # 3.2.1: "The default value for priority is 4"
RECORD_OVERHEAD_BYTES: Final = 300  # what one message costs beside its body


class Record:
    """One stored message, apart from its header, which is kept as values and rebuilt at each delivery.

    `body` holds the encoded sections after the header, octet for octet as they came. `annotations` are
    changed message annotations (an encoded section) that replace those in `body` when the message is
    delivered; None leaves the body's own. `header_bytes` belongs to the broker and is never stored. Times are
    milliseconds of the caller's clock (`KeepTime`); `expires_at_ms` 0 means never. `due_at_ms` is when a
    message comes that waits for its time, 0 at once; it is never stored.
    """

    __slots__ = (
        "acquired_before", "annotations", "body", "delivery_count", "due_at_ms", "durable", "enqueued_at_ms",
        "expires_at_ms", "header_bytes", "message_format", "offset", "priority", "queue_id",
    )  # fmt: skip

    def __init__(
        self,
        offset: int,
        body: bytes,
        message_format: int = 0,
        priority: int = DEFAULT_PRIORITY,
        expires_at_ms: int = 0,
        enqueued_at_ms: int = 0,
        durable: bool = True,
        delivery_count: int = 0,
        acquired_before: bool = False,
        annotations: bytes | None = None,
        header_bytes: bytes = b"",
        queue_id: int = 0,
        due_at_ms: int = 0,
    ) -> None:
        self.offset: int = offset
        self.body: bytes = body
        self.message_format: int = message_format
        self.priority: int = priority
        self.expires_at_ms: int = expires_at_ms
        self.enqueued_at_ms: int = enqueued_at_ms
        self.durable: bool = durable
        self.delivery_count: int = delivery_count
        self.acquired_before: bool = acquired_before
        self.annotations: bytes | None = annotations
        self.header_bytes: bytes = header_bytes
        self.queue_id: int = queue_id
        self.due_at_ms: int = due_at_ms

    def __repr__(self) -> str:
        return f"<Record queue {self.queue_id} offset {self.offset}, {len(self.body)} bytes>"


class BodyTail:
    """Where the rest of a body is whose head is in memory: `size` octets at `at` of a file, behind the `head`
    as it is stored there, which may have become another one in memory. `crc` is the checksum of both.
    """

    __slots__ = ("at", "crc", "file", "head", "size")

    def __init__(self, file: BodyFile, head: bytes, at: int, size: int, crc: int) -> None:
        self.file: BodyFile = file
        self.head: bytes = head
        self.at: int = at
        self.size: int = size
        self.crc: int = crc

    @property
    def whole_size(self) -> int:
        """The octets of the stored body."""
        return len(self.head) + self.size


class LargeRecord(Record):
    """A message whose `body` is only what stands before the sections of its body; those are a `tail`,
    in a file of the store.
    """

    __slots__ = ("tail",)

    def __init__(self, record: Record, tail: BodyTail) -> None:
        """As `record`, whose body is the head."""
        super().__init__(
            record.offset, record.body, record.message_format, record.priority, record.expires_at_ms,
            record.enqueued_at_ms, record.durable, record.delivery_count, record.acquired_before,
            record.annotations, record.header_bytes, record.queue_id, record.due_at_ms,
        )  # fmt: skip
        self.tail: BodyTail = tail

    def __repr__(self) -> str:
        size = len(self.body) + self.tail.size
        return f"<LargeRecord queue {self.queue_id} offset {self.offset}, {size} bytes>"


def tails_bytes(records: Iterable[Record]) -> int:
    """The octets of some messages that are not in memory."""
    return sum([record.tail.size for record in records if isinstance(record, LargeRecord)])


def size_of(record: Record) -> int:
    """All octets of one message, as `octets_of` counts them. Called for single messages of long runs."""
    size = len(record.body)
    return size + record.tail.size if isinstance(record, LargeRecord) else size


def octets_of(records: Sequence[Record]) -> int:
    """All octets of some messages behind their headers, wherever they are: what a queue and its bounds count.
    What is in memory of them is the sum of their bodies' lengths.
    """
    size = sum([len(record.body) for record in records])
    return size + tails_bytes(records) if LargeRecord in map(type, records) else size
