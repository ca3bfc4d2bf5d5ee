"""One message taken apart: its sections as tables, its body as text, as a value and as octets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs

from amqp_broker.client.messages import ReceivedMessage, body_of
from amqp_broker.console.limits import BODY_PREVIEW_BYTES, HEX_BYTES
from amqp_broker.frames import DecodeError, Message, Properties, plain_value
from amqp_broker.looking.shown import attribute, moment_ms, text

_HEADER: Final = ("durable", "priority", "delivery_count", "expires_at_ms", "bytes", "state")
_SECTIONS: Final = (
    ("properties", "Properties"), ("application_properties", "Application properties"),
    ("message_annotations", "Message annotations"),
)  # fmt: skip
_LINE_OCTETS: Final = 16
_MOMENTS_FROM_MS: Final = 10**12  # in 2001: what is smaller is no time of the wall, but a span


@attrs.frozen
class Section:
    """One section: its title, and a row of name and value for each field."""

    title: str
    fields: list[tuple[str, str]]


@attrs.frozen
class MessageView:
    """What a page shows of a message. `value` is the body as text, `kind` says what it was read as."""

    offset: int
    sections: list[Section]
    kind: str
    value: str
    octets: bytes
    truncated: bool
    fault: str = ""

    def hex_lines(self) -> Iterator[tuple[str, str, str]]:
        """Offset, octets and characters of each line of the first HEX_BYTES."""
        shown = self.octets[:HEX_BYTES]
        for at in range(0, len(shown), _LINE_OCTETS):
            line = shown[at : at + _LINE_OCTETS]
            characters = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in line)
            yield f"{at:06x}", f"{line[:8].hex(' ')}  {line[8:].hex(' ')}".rstrip(), characters

    @property
    def hex_is_cut(self) -> bool:
        """Whether there are more octets than these lines show."""
        return len(self.octets) > HEX_BYTES


def message_view(found: Mapping[str, Any]) -> MessageView:
    """Of a message as `$management` tells it (READ-MESSAGE)."""
    header = [(name, attribute(name, found.get(name))) for name in _HEADER]
    sections = [Section("Header and place", header)]
    for key, title in _SECTIONS:
        if found.get(key):
            sections.append(Section(title, [_field(name, value) for name, value in found[key].items()]))
    octets = bytes(found.get("body") or b"")
    content_type = str((found.get("properties") or {}).get("content_type") or "")
    kind, value = _body(octets, str(found.get("body_type")), content_type, bool(found["truncated"]))
    return MessageView(
        found["offset"], sections, kind, value, octets, bool(found["truncated"]), found.get("malformed", "")
    )


def _field(name: Any, value: Any) -> tuple[str, str]:
    """A number of milliseconds under a name that says so is told as a moment, too."""
    shown = text(value)
    if text(name).endswith(("time", "_at")) and isinstance(value, int) and value >= _MOMENTS_FROM_MS:
        shown = f"{moment_ms(value)} UTC ({shown})"
    return text(name), shown


def _body(octets: bytes, body_type: str, content_type: str, truncated: bool) -> tuple[str, str]:
    if body_type == "data":
        return _data(octets, content_type)
    try:
        value = plain_value(body_of(Message(octets)))
    except DecodeError as error:
        return ("encoded, cut off" if truncated else "malformed"), "" if truncated else str(error)
    if isinstance(value, str):
        return "amqp-value: a string", value
    return "amqp-value or sequence", _pretty(value)


def _data(octets: bytes, content_type: str) -> tuple[str, str]:
    try:
        found = octets.decode()
    except UnicodeDecodeError:
        return "data: binary", ""
    if "json" in content_type or found[:1] in ("{", "["):
        try:
            return "data: JSON", _pretty(json.loads(found))
        except (ValueError, RecursionError):
            pass  # it only looks like some, or nests deeper than anybody reads
    return "data: text", found


def _pretty(value: Any) -> str:
    return json.dumps(_as_json(value), indent=2, ensure_ascii=False, default=text)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {text(key): _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list) else value


def preview(found: Mapping[str, Any]) -> str:
    """The beginning of a body on one line."""
    octets = bytes(found.get("body") or b"")[:BODY_PREVIEW_BYTES]
    kind, value = _body(octets, str(found.get("body_type")), "text", truncated=True)
    if kind == "data: JSON":
        value = octets.decode()
    return " ".join((value or octets.hex(" ")).split())[:BODY_PREVIEW_BYTES]


def as_told(received: ReceivedMessage, body_bytes: int | None = None) -> dict[str, Any]:
    """A message that was read by its offset, in the words of READ-MESSAGE; at most so much of its body."""
    annotations = plain_value(received.message_annotations)
    properties = received.properties
    names = [field.name for field in attrs.fields(cast(Any, Properties))]
    fields = {name: getattr(properties, name) for name in names}
    header = received.header
    octets, kind = bytes(received.message.body), "encoded"
    try:
        body = received.body
        if isinstance(body, bytes):
            octets, kind = body, "data"
    except DecodeError:
        pass  # the page says so, of the same octets
    return {
        "offset": annotations.pop("x-stream-offset", 0),
        "enqueued_at_ms": annotations.pop("x-opt-enqueued-time", 0),
        "state": "archived", "durable": bool(header.durable), "priority": header.priority,
        "delivery_count": header.delivery_count, "expires_at_ms": 0, "bytes": len(received.delivery.payload),
        "properties": {name: plain_value(value) for name, value in fields.items() if value is not None},
        "application_properties": plain_value(received.application_properties),
        "message_annotations": annotations, "body": octets[:body_bytes], "body_type": kind,
        "truncated": body_bytes is not None and len(octets) > body_bytes,
    }  # fmt: skip
