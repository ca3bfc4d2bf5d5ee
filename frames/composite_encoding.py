"""Composites to bytes: the shortest list that says the same (the drawing is in `declarations`).

A field that is absent or has its default is null, and trailing nulls are left out (1.4). Several values are
always an array, also when there is one: every peer reads that, while a lone value is what some have never
been tested with.
"""

import struct
from typing import Final

from amqp_broker.frames.declarations import (
    ANY,
    BY_DESCRIPTOR_CODE,
    COMPOSITE,
    DECLARATIONS,
    MAP,
    MULTIPLE,
    PUT_BINARY,
    PUT_BOOLEAN,
    PUT_MULTIPLE,
    PUT_UINT,
    FieldDeclaration,
)
from amqp_broker.frames.encoding import (
    ascii_octets,
    check_range,
    deeper,
    put_compound,
    put_elements,
    put_octets,
    put_unsigned,
    put_value,
    register,
    utf8,
)
from amqp_broker.frames.errors import EncodeError
from amqp_broker.frames.limits import DELIVERY_TAG_OCTETS_MAX, DEPTH_MAX
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.values import Symbol

_UINT: Final = struct.Struct(">BI").pack
_ONE_FORM: Final[dict[str, tuple[int, int, int, int]]] = {
    "ubyte": (0x50, 1, 0, 255),
    "ushort": (0x60, 2, 0, 65_535),
    "timestamp": (0x83, 8, -(1 << 63), (1 << 63) - 1),
}
"""Integers with one encoding: its constructor and octets, the least and the greatest value (1.6)."""


def encode_composite(composite: object) -> bytes:
    """The bytes of a composite, with its descriptor as smallulong. Raises EncodeError for what the wire
    cannot carry.
    """
    out = bytearray()
    put_composite(out, composite, DEPTH_MAX)
    return bytes(out)


def put_composite(out: bytearray, composite: object, depth: int) -> None:
    """Appends a composite; `depth` is how deep it may still nest."""
    declaration = DECLARATIONS.get(type(composite))
    if declaration is None:
        raise EncodeError(f"expected a composite, but got {type(composite).__name__}: {shorten(composite)}")
    inner = deeper(deeper(depth))
    body = bytearray()
    count = 0
    nulls = 0
    for field, value in zip(declaration.fields, declaration.get_values(composite), strict=False):
        default = field.default
        put = field.put
        if (
            value is default
            or value is None
            or (default is not None and value == default)
            or (put == PUT_MULTIPLE and not value)
        ):
            # A mandatory field has no default: only None or no values at all come here.
            if field.mandatory:
                raise EncodeError(f"expected the mandatory field {field.path}, but got {shorten(value)}")
            nulls += 1
            continue
        if nulls:
            body += b"\x40" * nulls
            count += nulls
            nulls = 0
        count += 1
        if put == PUT_UINT and type(value) is int and 0 <= value <= 0xFFFFFFFF:
            if value > 255:
                body += _UINT(0x70, value)
            elif value:
                body.append(0x52)
                body.append(value)
            else:
                body.append(0x43)
        elif put == PUT_BOOLEAN and (value is True or value is False):
            body.append(0x41 if value else 0x42)
        elif put == PUT_BINARY and type(value) is bytes and len(value) <= DELIVERY_TAG_OCTETS_MAX:
            body.append(0xA0)
            body.append(len(value))
            body += value
        else:
            put_field(body, field, value, inner)
    out += declaration.prefix
    if count == 0:
        out.append(0x45)
    else:
        put_compound(out, 0xC0, count, body)


def put_field(out: bytearray, field: FieldDeclaration, value: object, depth: int) -> None:
    """Appends the value of one field that is neither absent nor its default."""
    kind = field.kind
    if kind == ANY:
        _put_any(out, field, value, depth)
    elif kind == MAP:
        _put_map(out, field, value, depth)
    elif kind == COMPOSITE:
        declaration = DECLARATIONS.get(type(value))
        if declaration is None or declaration.name != field.source:
            raise _wrong(field, value)
        put_composite(out, value, depth)
    elif kind == MULTIPLE:
        _put_multiple(out, field, value, depth)
    else:
        put_scalar(out, field, value)


def put_scalar(out: bytearray, field: FieldDeclaration, value: object) -> None:
    """Appends a plain value as the field's primitive type."""
    source = field.source
    if field.choices and value not in field.choices:
        raise EncodeError(
            f"expected one of {shorten(field.choices)} for {field.path}, but got {shorten(value)}"
        )
    if source == "boolean":
        if value is not True and value is not False:
            raise _wrong(field, value)
        out.append(0x41 if value else 0x42)
    elif isinstance(value, int) and not isinstance(value, bool):
        _put_integer(out, field, value)
    elif isinstance(value, str) and source == "string":
        put_octets(out, 0xA1, utf8(value))
    elif isinstance(value, (str, Symbol)) and source == "symbol":
        put_octets(out, 0xA3, ascii_octets(value if isinstance(value, str) else value.value))
    elif isinstance(value, (bytes, bytearray, memoryview)) and source == "binary":
        if field.octets_max:
            check_range(len(value), 0, field.octets_max, f"the octets of {field.path}")
        put_octets(out, 0xA0, bytes(value))
    else:
        raise _wrong(field, value)


def _put_integer(out: bytearray, field: FieldDeclaration, value: int) -> None:
    source = field.source
    if source == "uint":
        put_unsigned(out, value, 0x43, 4, field.path)
    elif source == "ulong":
        put_unsigned(out, value, 0x44, 8, field.path)
    elif source in _ONE_FORM:
        code, octets, least, most = _ONE_FORM[source]
        check_range(value, least, most, field.path)
        out.append(code)
        out += value.to_bytes(octets, "big", signed=least < 0)
    else:
        raise _wrong(field, value)


def _put_multiple(out: bytearray, field: FieldDeclaration, value: object, depth: int) -> None:
    assert field.source == "symbol", field.path
    if isinstance(value, (str, Symbol)):
        value = (value,)
    if not isinstance(value, (tuple, list)):
        raise _wrong(field, value)
    items: list[object] = [Symbol(item) if isinstance(item, str) else item for item in value]
    body = bytearray()
    put_elements(body, field.source, items, depth)
    put_compound(out, 0xE0, len(items), body)


def _put_any(out: bytearray, field: FieldDeclaration, value: object, depth: int) -> None:
    declaration = DECLARATIONS.get(type(value))
    if declaration is not None and field.requires not in declaration.provides:
        raise _wrong(field, value)
    put_value(out, value, depth)


def _put_map(out: bytearray, field: FieldDeclaration, value: object, depth: int) -> None:
    if not isinstance(value, dict):
        raise _wrong(field, value)
    inner = deeper(depth)
    body = bytearray()
    for key, item in value.items():
        if field.symbol_keyed:
            if not isinstance(key, (str, Symbol)):
                raise _wrong(field, key)
            put_octets(body, 0xA3, ascii_octets(key if isinstance(key, str) else key.value))
        else:
            put_value(body, key, inner)
        put_value(body, item, inner)
    put_compound(out, 0xC1, 2 * len(value), body)


def _wrong(field: FieldDeclaration, value: object) -> EncodeError:
    wanted = f"a type that provides {field.requires}" if field.requires else field.type_name
    return EncodeError(
        f"expected {wanted} for {field.path}, but got {type(value).__name__}: {shorten(value)}"
    )


def register_composites() -> None:
    """Lets values hold composites: a delivery state in an unsettled map, a lifetime policy in node
    properties.
    """
    for declaration in BY_DESCRIPTOR_CODE.values():
        register(declaration.make, put_composite)  # type: ignore[arg-type]
