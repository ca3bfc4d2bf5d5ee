"""The sections of a message (3.2), each from the values of a column; `messages_of_rows` has the columns.

Made here are functions from all columns of a batch to one list of octets, one for each row. SchemaError is
raised when they are made for a type that is not allowed, and by them for a value that cannot be sent.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from amqp_broker.frames import AmqpError, Header, Message, Properties, Ulong, encode_section
from amqp_broker.frames.columns import texts_encoder
from amqp_broker.frames.flat_maps import encode_flat_map
from amqp_broker.pipeline.amqp_values import converter, mapping, name_of, nullable
from amqp_broker.pipeline.errors import SchemaError

Columns = Mapping[str, Sequence[Any]]
Sections = list[bytes]
Make = Callable[[Columns], Sections]

DURABLE: Final = encode_section("header", Header(durable=True))
_MAP_HEAD: Final = encode_section("application-properties", {}).removesuffix(encode_flat_map({}))
_WHOLE: Final = ("byte", "short", "integer", "long")
_HEADER_FIELDS: Final = {
    "durable": ("boolean",),
    "priority": _WHOLE,
    "ttl": ("integer", "long"),
    "first_acquirer": ("boolean",),
    "delivery_count": _WHOLE,
}
_TEXTS: Final = (
    "to",
    "subject",
    "reply_to",
    "content_type",
    "content_encoding",
    "group_id",
    "reply_to_group_id",
)
_IDS: Final = ("message_id", "correlation_id")
_ID_TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "ulong": lambda text: Ulong(int(text)),
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
}
"""What an id was before the source made text of it: the field message_id_type."""
_PROPERTIES: Final = tuple(field.name for field in attrs.fields(cast(Any, Properties)))


def by_row(name: str, make: Callable[[Any], bytes], *, absent: bytes = b"", wanted: bool = False) -> Make:
    """A section from one column. A null is `absent`, or an error where a value is `wanted`."""

    def column(columns: Columns) -> Sections:
        sections: Sections = []
        for value in columns[name]:
            if value is None:
                if wanted:
                    raise _at(name, len(sections), "expected a value, found null")
                sections.append(absent)
                continue
            try:
                sections.append(make(value))
            except (AmqpError, SchemaError, ValueError, OverflowError) as error:
                raise _at(name, len(sections), str(error)) from None
        return sections

    return column


def _at(name: str, row: int, text: str) -> SchemaError:
    return SchemaError(f"column {name}, row {row} of its batch: {text}")


def section_map(name: str, kind: Any, *, simple: bool = False) -> Make:
    """A section that is a map, from a MAP or STRUCT."""
    convert = mapping(kind, name, simple=simple)
    section = name.replace("_", "-")

    def make(value: Any) -> bytes:
        return encode_section(section, convert(value))

    flat = simple and isinstance(kind, dict) and kind.get("valueType") in ("string", "long")
    return by_row(name, _flat_map(make) if flat else make)


def _flat_map(general: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Application properties that are texts or longs only; `general` for others, and for what is wrong."""

    def make(value: Any) -> bytes:
        entries = dict(value)
        if None not in entries.values():
            with contextlib.suppress(UnicodeEncodeError, struct.error):
                return _MAP_HEAD + encode_flat_map(entries)
        return general(value)

    return make


# --- bodies


def _data(octets: bytes) -> bytes:
    size = len(octets)
    return _DATA_HEADS[size] + octets if size < 256 else encode_section("data", octets)


_DATA_HEADS: Final = tuple(
    encode_section("data", bytes(size)).removesuffix(bytes(size)) if size else encode_section("data", b"")
    for size in range(256)
)


def body_of(kinds: Mapping[str, Any]) -> Make:
    """The body, from body, body_value and body_type, as far as they are there."""
    data = (lambda text: _data(text.encode())) if kinds.get("body") == "string" else _data
    if "body_value" not in kinds:
        if "body_type" in kinds:
            return _chosen(data, None, True)
        return by_row("body", data, wanted=True)
    convert = nullable(converter(kinds["body_value"], "body_value"))
    if "body" not in kinds and "body_type" not in kinds:
        null = encode_section("amqp-value", None)
        return by_row("body_value", lambda value: encode_section("amqp-value", convert(value)), absent=null)
    return _chosen(data, convert, "body_type" in kinds)


def _chosen(data: Callable[[Any], bytes], convert: Callable[[Any], Any] | None, typed: bool) -> Make:
    """Bodies of several kinds: body_type tells which, else the one that is not null."""

    def one(octets: Any, value: Any, kind: str | None, row: int) -> bytes:
        if kind is None:
            if octets is None and value is None and typed:
                return b""  # the source says so of a message without a body
            if (octets is None) == (value is None):
                both = "two" if octets is not None else "none"
                raise _at("body", row, f"expected one of body and body_value, found {both}; or say body_type")
            kind = "value" if octets is None else "data"
        if kind == "data" and octets is not None:
            return data(octets)
        if kind == "value" and convert is not None:
            return encode_section("amqp-value", convert(value))
        if kind == "sequence" and convert is not None and value is not None:
            items = convert(value)
            if isinstance(items, list):
                return encode_section("amqp-sequence", items)
        raise _at("body_type", row, f"expected data, value or sequence with its column, found {kind!r:.40}")

    def column(columns: Columns) -> Sections:
        nothing = [None] * len(next(iter(columns.values())))
        rows = zip(*(columns.get(name, nothing) for name in ("body", "body_value", "body_type")), strict=True)
        try:
            return [one(octets, value, kind, row) for row, (octets, value, kind) in enumerate(rows)]
        except AmqpError as error:
            raise SchemaError(f"column body_value: {error}") from None

    return column


def checked_raw(octets: bytes) -> bytes:
    """Gives back a bare message: sections from properties to the body, in order (3.2)."""
    found = Message(octets)
    found.check_sections()
    if found.bare != octets:
        raise SchemaError("expected a bare message, found sections before or behind it, or no body")
    return octets


# --- header and properties


def header_of(kind: Any) -> Callable[[Any], bytes]:
    """The header (3.2.1); durable unless it says otherwise."""
    for field in _struct_fields("header", kind):
        if field["name"] not in _HEADER_FIELDS:
            raise _unknown_field("header", field["name"], _HEADER_FIELDS)
        expect(f"header.{field['name']}", field["type"], *_HEADER_FIELDS[field["name"]])

    def make(value: Any) -> bytes:
        durable = value.get("durable")
        return encode_section(
            "header",
            Header(
                durable=True if durable is None else durable,
                priority=value.get("priority"),
                ttl=value.get("ttl"),
            ),
        )

    return make


def properties_of(kind: Any) -> Callable[[Any], bytes]:
    """The properties (3.2.4), from a struct with fields of their names."""
    makers: list[tuple[str, Callable[[Any], Any]]] = []
    typed: list[tuple[str, str]] = []
    for field in _struct_fields("properties", kind):
        name = field["name"]
        if name.removesuffix("_type") in _IDS and name not in _IDS:
            expect(f"properties.{name}", field["type"], "string")
            typed.append((name.removesuffix("_type"), name))
        elif name not in _PROPERTIES:
            raise _unknown_field("properties", name, _PROPERTIES)
        else:
            makers.append((name, _property(name, field["type"])))

    def make(value: Any) -> bytes:
        found = {name: convert(value[name]) for name, convert in makers if value[name] is not None}
        for name, type_name in typed:
            if value[type_name] is not None and isinstance(found.get(name), str):
                found[name] = _typed_id(found[name], value[type_name])
        return encode_section("properties", Properties(**found)) if found else b""

    plain = not typed and all(
        field["type"] == "string" and field["name"] in (*_IDS, *_TEXTS) for field in kind["fields"]
    )
    return _texts_only([name for name, _ in makers], make) if plain else make


def _texts_only(names: Sequence[str], general: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Properties that are texts only; `general` for long ones, and for what is wrong."""
    encode = texts_encoder(names)

    def make(value: Any) -> bytes:
        try:
            return encode(value)
        except ValueError:
            return general(value)

    return make


def _property(name: str, kind: Any) -> Callable[[Any], Any]:
    path = f"properties.{name}"
    if name in _TEXTS:
        expect(path, kind, "string")
        return str
    if name == "user_id":
        expect(path, kind, "binary", "string")
        return lambda value: value.encode() if isinstance(value, str) else value
    if name == "group_sequence":
        expect(path, kind, "integer", "long")
        return int
    if name in _IDS:
        convert = converter(kind, path, simple=True)
        return lambda value: _message_id(convert(value))
    expect(path, kind, "timestamp")
    convert = converter(kind, path)
    return lambda value: convert(value).value


def _typed_id(text: str, id_type: str) -> Any:
    if id_type not in _ID_TYPES:
        raise SchemaError(
            f"expected one of {', '.join(_ID_TYPES)} as the type of an id, found {id_type!r:.40}"
        )
    return _ID_TYPES[id_type](text)


def _message_id(value: Any) -> Any:
    """message-id-ulong, -uuid, -binary or -string (3.2.11)."""
    found = value if isinstance(value, (Ulong, str, bytes, uuid.UUID)) else getattr(value, "value", value)
    if isinstance(found, int) and not isinstance(found, bool):
        return Ulong(found)
    if isinstance(found, (Ulong, str, bytes, uuid.UUID)):
        return found
    raise SchemaError(f"expected STRING, BINARY or a whole number as an id, found {found!r:.40}")


def _struct_fields(path: str, kind: Any) -> list[Any]:
    if isinstance(kind, str) or kind.get("type") != "struct":
        raise SchemaError(f"column {path}: expected STRUCT, found {name_of(kind)}")
    return list(kind["fields"])


def _unknown_field(path: str, name: str, allowed: Iterable[str]) -> SchemaError:
    return SchemaError(f"column {path}.{name}: expected only the fields {', '.join(allowed)}")


def expect(path: str, kind: Any, *allowed: str) -> None:
    """Raises SchemaError unless the column's type is one of these."""
    if kind not in allowed:
        wanted = " or ".join(name.upper() for name in allowed)
        raise SchemaError(f"column {path}: expected {wanted}, found {name_of(kind)}")
