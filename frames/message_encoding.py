"""Messages to bytes, section by section (the drawing is in `message`)."""

from typing import Any, Final

from amqp_broker.frames.composite_encoding import encode_composite
from amqp_broker.frames.encoding import encode_value
from amqp_broker.frames.errors import EncodeError
from amqp_broker.frames.message import Message
from amqp_broker.frames.primitive_types import STR8, SYM8, VBIN8
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTION_CODES,
    SECTION_NAMES,
    AmqpSequence,
    AmqpValue,
    Data,
    Header,
    Properties,
)
from amqp_broker.frames.values import Array, Symbol, Ulong

_DESCRIBED: Final = b"\x00\x53"
_SHORT_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"
_SHORT_ENTRY_BYTES: Final = 240  # a map of one such entry is of the short form


def encode_section(name: str, value: object) -> bytes:
    """One section by its name in the standard ("message-annotations", ...). Raises EncodeError.

    Annotations take str keys as symbols; header and properties take their composite.
    """
    code = SECTION_CODES.get(name)
    if code is None:
        raise EncodeError(f"expected a section of a message, but got {shorten(name)}")
    if code == HEADER or code == PROPERTIES:
        if not isinstance(value, Header if code == HEADER else Properties):
            raise EncodeError(f"expected the composite {name}, but got {shorten(value)}")
        return encode_composite(value)
    return bytes((0x00, 0x53, code)) + encode_value(_section_value(code, value))


def _section_value(code: int, value: object) -> object:
    if code == DATA and isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if code == AMQP_SEQUENCE and isinstance(value, list):
        return value
    if code == AMQP_VALUE:
        return value
    if isinstance(value, dict) and code == APPLICATION_PROPERTIES:
        return _application_properties(value)
    if isinstance(value, dict) and code not in (DATA, AMQP_SEQUENCE):
        return {_annotation_key(key): item for key, item in value.items()}
    raise EncodeError(f"expected another type for section {SECTION_NAMES[code]} than {type(value).__name__}")


def _annotation_key(key: object) -> object:
    if isinstance(key, str):
        return Symbol(key)
    if isinstance(key, (Symbol, Ulong)):
        return key
    raise EncodeError(f"expected a str, Symbol or Ulong as key of annotations, but got {shorten(key)}")


def _application_properties(value: dict[Any, Any]) -> dict[Any, Any]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise EncodeError(f"expected a str as key of application-properties, but got {shorten(key)}")
        if isinstance(item, (list, dict, Array)):
            raise EncodeError(f"expected a simple type in application-properties, but got {shorten(item)}")
    return value


def encode_message(
    header: Header | None = None,
    delivery_annotations: dict[Any, Any] | None = None,
    message_annotations: dict[Any, Any] | None = None,
    properties: Properties | None = None,
    application_properties: dict[str, Any] | None = None,
    body: object = b"",
    footer: dict[Any, Any] | None = None,
) -> bytes:
    """A whole message. Raises EncodeError for what the wire cannot carry.

    `body` is bytes (one data section), a Data, AmqpSequence or AmqpValue, a list of Data or of AmqpSequence;
    any other value becomes an amqp-value.
    """
    before: list[tuple[str, object]] = [
        ("header", header),
        ("delivery-annotations", delivery_annotations),
        ("message-annotations", message_annotations),
        ("properties", properties),
        ("application-properties", application_properties),
    ]
    parts = [encode_section(name, value) for name, value in before if value is not None]
    parts.extend(_body_parts(body))
    if footer is not None:
        parts.append(encode_section("footer", footer))
    return b"".join(parts)


def annotated(body: bytes, added: dict[str, object]) -> bytes:
    """A message without its header, with these message-annotations among its own; all behind them stays octet
    for octet. Raises DecodeError, and EncodeError.
    """
    if body[:2] == _DESCRIBED and body[2] > MESSAGE_ANNOTATIONS:
        if len(added) == 1:
            for name, value in added.items():
                octets = value.encode() if type(value) is str else value
                if type(octets) is bytes and len(octets) + len(name) < _SHORT_ENTRY_BYTES and name.isascii():
                    code, size = VBIN8 if octets is value else STR8, len(octets)
                    head = bytes((len(name) + size + 5, 2, SYM8, len(name))) + name.encode("ascii")
                    return _SHORT_ANNOTATIONS + head + bytes((code, size)) + octets + body
        return encode_section("message-annotations", added) + body
    message = Message(body)
    merged: dict[Any, object] = dict(message.message_annotations or {})
    merged.update({Symbol(name): value for name, value in added.items()})
    section = encode_section("message-annotations", merged)
    return section + body[message.after_message_annotations_offset :]


def _body_parts(body: object) -> list[bytes]:
    if isinstance(body, (list, tuple)) and body and isinstance(body[0], (Data, AmqpSequence, AmqpValue)):
        first = type(body[0])
        if any(type(section) is not first for section in body) or (first is AmqpValue and len(body) > 1):
            raise EncodeError(f"expected a body of one kind, one value at most, but got {shorten(body)}")
        return [_body_part(section) for section in body]
    return [_body_part(body)]


def _body_part(body: object) -> bytes:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return encode_section("data", body)
    if isinstance(body, Data):
        return encode_section("data", body.value)
    if isinstance(body, AmqpSequence):
        return encode_section("amqp-sequence", body.value)
    if isinstance(body, AmqpValue):
        return encode_section("amqp-value", body.value)
    return encode_section("amqp-value", body)
