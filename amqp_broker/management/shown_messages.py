"""A message as a reply tells it: where it stands, its sections as maps, and the first octets of its body."""

from __future__ import annotations

from typing import Any, Final, cast

import attrs

from amqp_broker.frames import Data, DecodeError, Message, Properties, Symbol, cut_body
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, LargeRecord, Record, TailReader, size_of

SECTIONS_SHOWN_BYTES: Final = 65_536  # of one message before its body; larger ones are left out
PROPERTIES: Final = tuple(field.name for field in attrs.fields(cast(Any, Properties)))
SECTION_HEAD_BYTES: Final = 8  # before the content of a section of data
AVAILABLE: Final = "available"
HELD: Final = "held"


def shown_message(record: Record, state: str, body_bytes: int, expires_at_ms: int) -> dict[str, Any]:
    """The message, with at most `body_bytes` octets of its body: of data its content, else the encoded
    sections. `truncated` says that something was left out.
    """
    shown: dict[str, Any] = {
        "offset": record.offset,
        "state": state,
        "durable": record.durable,
        "priority": record.priority,
        "delivery_count": record.delivery_count,
        "expires_at_ms": expires_at_ms,
        "bytes": size_of(record),
    }
    octets, shown["truncated"] = _begin_of(record, body_bytes)
    message = Message(octets)
    try:
        body = message.body
        if len(octets) - len(body) <= SECTIONS_SHOWN_BYTES:
            shown |= _sections(message)
        else:
            shown["truncated"] = True
        sections = message.body_sections()
        if sections and all(isinstance(section, Data) for section in sections):
            body = b"".join(bytes(section.value) for section in sections)
            shown["body_type"] = "data"
        else:
            shown["body_type"] = "encoded"
    except DecodeError as error:  # an older version took it
        return {**shown, "malformed": str(error)}
    shown["body"] = body[:body_bytes]
    shown["truncated"] = shown["truncated"] or len(body) > body_bytes
    return shown


def _begin_of(record: Record, body_bytes: int) -> tuple[bytes, bool]:
    """The message, and whether something is left out: of one whose body is on disk no more than is shown is
    read, and nothing where that cannot be.
    """
    if not isinstance(record, LargeRecord):
        return record.body, False
    wanted = min(record.tail.size, body_bytes + SECTION_HEAD_BYTES)
    begin = TailReader(record.tail).read(wanted)
    if len(begin) == record.tail.size:
        return record.body + begin, False
    return record.body + cut_body(begin), True


def shown_bytes(record: Record, body_bytes: int) -> int:
    """How many octets of the message `shown_message` shows, about."""
    try:
        body = len(Message(record.body).body)
    except DecodeError:
        return RECORD_OVERHEAD_BYTES
    sections = len(record.body) - body
    shown = sections if sections <= SECTIONS_SHOWN_BYTES else 0
    return shown + min(size_of(record) - sections, body_bytes) + RECORD_OVERHEAD_BYTES


def _sections(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    properties = message.properties
    if properties is not None:
        fields = {name: getattr(properties, name) for name in PROPERTIES}
        found["properties"] = {name: value for name, value in fields.items() if value is not None}
    annotations = message.message_annotations
    if annotations:
        found["message_annotations"] = {
            key.value if isinstance(key, Symbol) else key: value for key, value in annotations.items()
        }
    if message.application_properties:
        found["application_properties"] = dict(message.application_properties)
    return found
