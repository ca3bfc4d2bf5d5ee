"""`amqp-broker export` and `import`: the messages of a queue in a file, and back; octet for octet.

    json   a line for each: {"message_format": 0, "octets": "AFNw...", "properties": {...}, "body": ...}
    raw    for each: its length and its message-format, 4 octets each, big-endian, then its octets

`octets` is the whole message in base64, as it came, and is what `import` sends. A line without it is for
people and programs who write messages by hand: `body`, a string or any JSON value, `properties` and
`application_properties`. What an export shows beside `octets` is not read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from amqp_broker.client.errors import ClientError
from amqp_broker.client.messages import OutgoingMessage, ReceivedMessage, message
from amqp_broker.frames import DecodeError, EncodeError, plain_value
from amqp_broker.looking.output import as_json

RAW: Final = "raw"
NUMBER_BYTES: Final = 4
_HEADER_BYTES: Final = 2 * NUMBER_BYTES
LINE_BYTES_MAX: Final = 256 * 1024 * 1024  # of one message in a file that is read
_PROPERTIES: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip
_FIELDS: Final = ("message_format", "octets", "body", "properties", "application_properties", "durable")


class Malformed(Exception):
    """A file is no export; it says where."""


def exported(received: ReceivedMessage, form: str) -> bytes:
    """One message, as it stands in a file."""
    octets, message_format = bytes(received.delivery.payload), received.delivery.message_format or 0
    if form == RAW:
        return len(octets).to_bytes(NUMBER_BYTES) + message_format.to_bytes(NUMBER_BYTES) + octets
    shown: dict[str, Any] = {
        "message_format": message_format, "octets": base64.b64encode(octets).decode(), **_readable(received),
    }  # fmt: skip
    return as_json(shown).encode()


def _readable(received: ReceivedMessage) -> dict[str, Any]:
    """What a person wants to see of it, as far as it can be decoded."""
    try:
        told = {name: getattr(received.properties, name) for name in _PROPERTIES}
        properties = {name: plain_value(value) for name, value in told.items() if value is not None}
        named = plain_value(received.application_properties)
        return {"properties": properties, "application_properties": named, "body": plain_value(received.body)}
    except DecodeError:
        return {}


def imported(source: BinaryIO, form: str) -> Iterator[OutgoingMessage]:
    """The messages of a file, one after the other. Raises Malformed."""
    return _from_raw(source) if form == RAW else _from_lines(source)


def _from_raw(source: BinaryIO) -> Iterator[OutgoingMessage]:
    at = 0
    while header := source.read(_HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            raise Malformed(f"octet {at}: expected a header of {_HEADER_BYTES} octets, found {len(header)}")
        size, message_format = int.from_bytes(header[:NUMBER_BYTES]), int.from_bytes(header[NUMBER_BYTES:])
        if size > LINE_BYTES_MAX:
            raise Malformed(f"octet {at}: expected a message of at most {LINE_BYTES_MAX} octets, not {size}")
        octets = source.read(size)
        if len(octets) < size:
            raise Malformed(f"octet {at}: expected a message of {size} octets, found {len(octets)}")
        yield OutgoingMessage(octets, message_format)
        at += _HEADER_BYTES + size


def _from_lines(source: BinaryIO) -> Iterator[OutgoingMessage]:
    number = 0
    while line := source.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise Malformed(f"line {number}: expected at most {LINE_BYTES_MAX} octets")
        if line.strip():
            try:
                yield _message_of(json.loads(line))
            except (ValueError, TypeError, EncodeError, ClientError) as error:
                raise Malformed(f"line {number}: {error}") from None


def _message_of(told: Any) -> OutgoingMessage:
    if not isinstance(told, dict):
        raise ValueError(f"expected a map, got {told!r:.60}")
    unknown = [name for name in told if name not in _FIELDS]
    if unknown:
        raise ValueError(f"expected some of {', '.join(_FIELDS)}, got {', '.join(unknown):.80}")
    message_format = told.get("message_format", 0)
    if not isinstance(message_format, int) or not 0 <= message_format < 1 << 32:
        raise ValueError(f"message_format: expected a number of 32 bits, got {message_format!r:.60}")
    if "octets" in told:
        try:
            return OutgoingMessage(base64.b64decode(told["octets"], validate=True), message_format)
        except binascii.Error as error:
            raise ValueError(f"octets: expected base64: {error}") from None
    body, properties = told.get("body", ""), told.get("properties") or {}
    made = message(
        body.encode() if isinstance(body, str) else body, durable=told.get("durable", True) is not False,
        application_properties=told.get("application_properties"), **properties,
    )  # fmt: skip
    made.message_format = message_format
    return made
