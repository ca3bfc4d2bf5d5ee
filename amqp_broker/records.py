"""From a delivery to the record that a queue holds, and back to the header that a consumer gets (3.2.1).

    transfer payload   [header] [delivery-annotations] [message-annotations] | bare message | [footer]
    record             header's fields, then everything after the header as the same bytes

Delivery-annotations speak from one peer to the next (3.2.2), and this broker understands none: they end here.
The header is built anew for each delivery; the bare message is never encoded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp_broker.frames import (
    TIMED,
    UNSURE,
    DecodeError,
    Header,
    Message,
    Symbol,
    check_body,
    encode_composite,
    encode_section,
)
from amqp_broker.frames.message_peek import peek_header
from amqp_broker.persistence import Record, size_of

if TYPE_CHECKING:
    from amqp_broker.delivery_times import DeliveryTimes

DEFAULT_PRIORITY: Final = 4  # 3.2.1
UINT_MAX: Final = 2**32 - 1
"""What a ttl and a delivery-count can say: who sends a message may begin with any."""
_HEADER_CACHE_ENTRIES: Final = (
    4_096  # distinct headers without a ttl: counts and priorities, far fewer in practice
)

_HEADER_OCTETS: Final = 32  # of a header, at most: 3 of its descriptor, 3 of the list, 14 of its fields

_headers: dict[tuple[bool, int, bool, int], bytes] = {}


def record_of(
    payload: bytes,
    message_format: int,
    now_ms: int,
    queue_id: int,
    persistent: bool,
    with_maps: list[bytes] | None = None,
    times: DeliveryTimes | None = None,
) -> Record:
    """The record of one received message. Raises DecodeError where its sections, or what is in them except
    the body, are not as the standard says (3.2, `Message.check`). A body with message-annotations or
    application-properties is put into `with_maps`; `times` reads when it comes and expires.
    """
    durable, priority, ttl_ms, _first_acquirer, delivery_count, header_end = peek_header(payload)
    body = payload[header_end:] if header_end else payload
    shape = check_body(body)
    if shape:
        if shape == UNSURE:
            body = _without_delivery_annotations(payload, header_end)
        if with_maps is not None and shape != TIMED:
            with_maps.append(body)
    if priority is None:
        priority = DEFAULT_PRIORITY
    durable = durable and persistent
    record = Record(
        0,
        body,
        message_format,
        priority,
        0 if ttl_ms is None else now_ms + ttl_ms,
        now_ms,
        durable,
        delivery_count,
        False,
        None,
        b"" if ttl_ms is not None else _plain_header(durable, priority, True, delivery_count),
        queue_id,
    )
    if shape and shape >= UNSURE and times is not None:
        times.read(record, now_ms)
    return record


def message_problem(body: bytes) -> str | None:
    """Why a stored message, without its header, would not be taken today; an older version took it. None: it
    would be.
    """
    try:
        check_body(body)
    except DecodeError as error:
        return error.description
    return None


def store_all(records: list[Record]) -> None:
    """These are of a queue that retains or has events: all are durable, so that their offsets have no holes,
    and none goes without a trace.
    """
    for record in records:
        if not record.durable:
            record.durable = True
            if record.header_bytes:
                record.header_bytes = _header_without_ttl(record)


def _without_delivery_annotations(payload: bytes, header_end: int) -> bytes:
    return payload[Message(payload).after_delivery_annotations_offset :]


def _header_without_ttl(record: Record) -> bytes:
    return _plain_header(record.durable, record.priority, not record.acquired_before, record.delivery_count)


def _plain_header(durable: bool, priority: int, first_acquirer: bool, delivery_count: int) -> bytes:
    """The header of a message without a ttl: the same few again and again."""
    key = (durable, priority, first_acquirer, delivery_count)
    known = _headers.get(key)
    if known is None:
        if len(_headers) >= _HEADER_CACHE_ENTRIES:
            _headers.clear()
        known = _headers[key] = _encode_header(durable, priority, None, first_acquirer, delivery_count)
    return known


def _encode_header(
    durable: bool, priority: int, ttl_ms: int | None, first_acquirer: bool, delivery_count: int
) -> bytes:
    return encode_composite(
        Header(
            durable=durable,
            priority=priority,
            ttl=ttl_ms,
            first_acquirer=first_acquirer,
            delivery_count=min(delivery_count, UINT_MAX),
        )
    )


def prepare(records: list[Record], now_ms: int) -> None:
    """Give each record the header of its next delivery: what is left of its ttl, its delivery count
    (3.2.1).
    """
    for record in records:
        if record.expires_at_ms:
            left_ms = max(1, min(record.expires_at_ms - now_ms, UINT_MAX))
            record.header_bytes = _encode_header(
                record.durable, record.priority, left_ms, not record.acquired_before, record.delivery_count
            )
        elif not record.header_bytes:
            record.header_bytes = _header_without_ttl(record)


def octets(record: Record, largest: int, now_ms: int) -> int:
    """The size of a message as it would be sent now; exact where it matters for the bound `largest`."""
    size = size_of(record)
    if largest - _HEADER_OCTETS < size <= largest:
        prepare([record], now_ms)
        size += len(record.header_bytes)
    return size


def changed(record: Record) -> None:
    """The record's header effects changed: its header is built again before the next delivery."""
    record.header_bytes = b""


class AnnotationsRefused(Exception):
    """Message-annotations can't have those of a modified outcome, too."""


def annotations_bytes(record: Record) -> int:
    """The octets of the message-annotations that a message has."""
    return Message(record.body).after_message_annotations_offset


def added_bytes(annotations: dict[str, object]) -> int:
    """The octets that the annotations of a modified outcome take by themselves."""
    return len(encode_section("message-annotations", annotations))


def annotated(record: Record, annotations: dict[str, object], most: int) -> bytes:
    """The message's message-annotations section with those of a modified outcome merged into it (3.4.5).

    Raises AnnotationsRefused where one of the two has more than `most` octets, or what the message has can't
    be read.
    """
    message = Message(record.body)
    if message.after_message_annotations_offset > most:
        raise AnnotationsRefused("the message came with more")
    try:
        merged = dict(message.message_annotations or {})
    except DecodeError as error:
        raise AnnotationsRefused(f"those of the message are malformed: {error}") from None
    merged.update({Symbol(key): value for key, value in annotations.items()})
    section = encode_section("message-annotations", merged)
    if len(section) > most:
        raise AnnotationsRefused(f"got {len(section)}")
    return section


def annotate(record: Record, section: bytes) -> None:
    """Give a message these message-annotations."""
    record.annotations = section
    replace_annotations(record)


def replace_annotations(record: Record) -> None:
    """Put the record's changed message-annotations in the place of those in its body."""
    assert record.annotations is not None
    try:
        rest = record.body[Message(record.body).after_message_annotations_offset :]
    except DecodeError as error:  # pragma: no cover - record_of has checked the sections
        raise AssertionError("a stored message has malformed sections") from error
    record.body = record.annotations + rest
