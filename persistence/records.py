"""One message as the queues hold it, the store keeps it and the links send it."""

from __future__ import annotations

from typing import Final

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
