"""Composites from bytes: one loop over the declared fields (the drawing is in `declarations`).

The loop does the common constructors itself, by the field's own table; a constructor that the table refuses
becomes an error that names the composite and the field.
"""

import struct
from typing import Any

from amqp_broker.frames.declarations import (
    ABSENT,
    ANY,
    BY_DESCRIPTOR_CODE,
    BY_DESCRIPTOR_SYMBOL,
    COMPOSITE,
    FALSE,
    FOUR_OCTETS,
    MAP,
    MULTIPLE,
    ONE_OCTET,
    SHORT_BINARY,
    TRUE,
    WRONG,
    ZERO,
    CompositeDeclaration,
    FieldDeclaration,
)
from amqp_broker.frames.decoding import Decoder
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.fixed_width import U32
from amqp_broker.frames.limits import DELIVERY_TAG_OCTETS_MAX, DEPTH_MAX, PERFORMATIVE_NODES_MAX
from amqp_broker.frames.primitive_types import BY_CODE, name_of_code
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.restricted_types import ARCHETYPE_PRIMITIVES, COMPOSITE_ARCHETYPES
from amqp_broker.frames.values import (
    Array,
    BytesValue,
    Described,
    FloatValue,
    IntegerValue,
    Symbol,
    TextValue,
    Ulong,
)


def decode_composite(
    data: bytes, offset: int = 0, nodes_max: int = PERFORMATIVE_NODES_MAX
) -> tuple[Any, int]:
    """The composite at `offset`, and the offset after it. Raises DecodeError, nothing else.

    At most `nodes_max` values are built.
    """
    decoder = Decoder(data, offset, nodes_max)
    declaration = declaration_at(decoder, len(data))
    value = read_composite(decoder, declaration, len(data), DEPTH_MAX)
    return value, decoder.pos


def declaration_at(decoder: Decoder, end: int) -> CompositeDeclaration:
    """Reads 0x00 and a descriptor at the decoder's place. Raises DecodeError unless it is a known
    composite's.
    """
    found = find_declaration(decoder, end)
    if isinstance(found, CompositeDeclaration):
        return found
    raise DecodeError(f"expected a composite of the standard, but found the descriptor {shorten(found)}")


def find_declaration(decoder: Decoder, end: int) -> "CompositeDeclaration | Symbol | Ulong":
    """Reads 0x00 and a descriptor: the composite it stands for, or the descriptor itself."""
    data = decoder.data
    pos = decoder.pos
    if pos + 3 <= end and data[pos] == 0 and data[pos + 1] == 0x53:
        known = BY_DESCRIPTOR_CODE.get(data[pos + 2])
        if known is not None:
            decoder.pos = pos + 3
            return known
    if pos >= end:
        raise DecodeError(f"expected a described value at byte {pos}, but the data ends there")
    if data[pos] != 0:
        raise DecodeError(f"expected a described value, but found {name_of_code(data[pos])} at byte {pos}")
    decoder.pos = pos + 1
    descriptor = decoder.descriptor(end)
    if isinstance(descriptor, Ulong):
        known = BY_DESCRIPTOR_CODE.get(descriptor.value)
    else:
        known = BY_DESCRIPTOR_SYMBOL.get(descriptor.value)
    return descriptor if known is None else known


def read_composite(decoder: Decoder, declaration: CompositeDeclaration, end: int, depth: int) -> Any:
    """The list of fields at the decoder's place, which is behind the descriptor."""
    pos = decoder.pos
    data = decoder.data
    if depth < 2:
        raise DecodeError(f"values nest deeper than DEPTH_MAX ({DEPTH_MAX}) at byte {pos}")
    if pos + 2 < end and data[pos] == 0xC0 and 0 < data[pos + 1] <= end - pos - 2:
        stop = pos + 2 + data[pos + 1]
        count = data[pos + 2]
        decoder.pos = pos + 3
    else:
        stop, count = _list_of_fields(decoder, declaration, end)
    if count > len(declaration.fields):
        raise DecodeError(
            f"expected at most {len(declaration.fields)} fields in {declaration.name}, but found {count}"
        )
    if count < declaration.required_count:
        raise _missing(declaration, count)
    decoder.nodes_left -= count + 1
    if decoder.nodes_left < 0:
        decoder.spend(0)
    try:
        values = read_fields(decoder, declaration.by_count[count], stop, depth - 2)
    except (IndexError, struct.error):
        # Only reads beyond the last octet of the data come here: a field claimed more than there is.
        raise DecodeError(f"{declaration.name} is cut off at byte {len(data)}") from None
    if decoder.pos != stop:
        raise DecodeError(
            f"{declaration.name} ends at byte {decoder.pos} by its {count} fields, "
            f"but at byte {stop} by its size"
        )
    if count < len(declaration.fields):
        values.extend(declaration.tails[count])
    return declaration.make(*values)


def _list_of_fields(decoder: Decoder, declaration: CompositeDeclaration, end: int) -> tuple[int, int]:
    """Where the list of fields ends, and how many it has; the decoder goes to the first of them."""
    pos = decoder.pos
    if pos >= end:
        raise DecodeError(f"expected the list of {declaration.name} at byte {pos}, but the data ends there")
    code = decoder.data[pos]
    decoder.pos = pos + 1
    if code == 0x45:
        return pos + 1, 0
    if code == 0xC0 or code == 0xD0:
        return decoder.compound(code, end)
    raise DecodeError(f"expected a list for {declaration.name}, but found {name_of_code(code)} at byte {pos}")


def _missing(declaration: CompositeDeclaration, count: int) -> DecodeError:
    for field in declaration.fields[count:]:
        if field.mandatory:
            return DecodeError(
                f"expected the mandatory field {field.name} in {declaration.name}, but it is absent"
            )
    raise AssertionError(f"{declaration.name} with {count} fields lacks no mandatory field")


def read_fields(decoder: Decoder, fields: tuple[FieldDeclaration, ...], end: int, depth: int) -> list[object]:
    """The values of these fields. Raises IndexError or struct.error where the data ends too early."""
    data = decoder.data
    pos = decoder.pos
    values: list[object] = []
    for field in fields:
        code = data[pos]
        action = field.actions[code]
        if action == ONE_OCTET:
            values.append(data[pos + 1])
            pos += 2
        elif action == FALSE:
            values.append(False)
            pos += 1
        elif action == ABSENT:
            values.append(field.default)
            pos += 1
        elif action == FOUR_OCTETS:
            values.append(U32(data, pos + 1)[0])
            pos += 5
        elif action == ZERO:
            values.append(0)
            pos += 1
        elif action == TRUE:
            values.append(True)
            pos += 1
        elif action == SHORT_BINARY and data[pos + 1] <= DELIVERY_TAG_OCTETS_MAX:
            start = pos + 2
            pos = start + data[pos + 1]
            values.append(data[start:pos])
        elif action == WRONG:
            raise _wrong_type(field, code, pos)
        else:
            decoder.pos = pos
            values.append(read_field(decoder, field, code, end, depth))
            pos = decoder.pos
    decoder.pos = pos
    return values


def _wrong_type(field: FieldDeclaration, code: int, pos: int) -> DecodeError:
    if code == 0x40:
        return DecodeError(f"expected the mandatory field {field.path}, but found null at byte {pos}")
    wanted = f"{field.source} or an array of {field.source}" if field.multiple else field.source
    return DecodeError(f"expected {wanted} for {field.path}, but found {name_of_code(code)} at byte {pos}")


def read_field(decoder: Decoder, field: FieldDeclaration, code: int, end: int, depth: int) -> object:
    """The value of one field of a rarer kind, at the decoder's place."""
    if code == 0x40:
        raise _wrong_type(field, code, decoder.pos)
    kind = field.kind
    if kind == ANY:
        return _read_any(decoder, field, code, end, depth)
    if kind == MAP:
        return read_map(decoder, end, depth, field.symbol_keyed, field.path)
    if kind == COMPOSITE:
        return _read_error(decoder, field, end, depth)
    if kind == MULTIPLE:
        return _read_multiple(decoder, field, end, depth)
    start = decoder.pos
    value = plain(decoder.value(end, 0))
    if field.choices and value not in field.choices:
        allowed = ", ".join(str(choice) for choice in field.choices)
        raise DecodeError(
            f"expected one of {allowed} for {field.path}, but found {shorten(value)} at byte {start}",
            "amqp:invalid-field",
        )
    if field.octets_max and isinstance(value, bytes) and len(value) > field.octets_max:
        raise DecodeError(
            f"expected at most {field.octets_max} octets for {field.path}, "
            f"but found {len(value)} at byte {start}",
            "amqp:invalid-field",
        )
    return value


def plain(value: object) -> object:
    """The plain Python value of a declared field: wrappers are for positions whose type the standard leaves
    open.
    """
    if isinstance(value, (IntegerValue, TextValue, FloatValue, BytesValue)):
        return value.value
    return value


def _read_multiple(decoder: Decoder, field: FieldDeclaration, end: int, depth: int) -> object:
    start = decoder.pos
    value = decoder.value(end, depth)
    if not isinstance(value, Array):
        return (plain(value),)
    if value.element_type != field.source or value.descriptors:
        raise DecodeError(
            f"expected an array of {field.source} for {field.path}, "
            f"but found one of {value.element_type} at byte {start}"
        )
    if not value.items:
        if field.mandatory:
            raise DecodeError(
                f"expected at least one value for {field.path}, but found an empty array at byte {start}"
            )
        return field.default
    return tuple([plain(item) for item in value.items])


def _read_error(decoder: Decoder, field: FieldDeclaration, end: int, depth: int) -> object:
    start = decoder.pos
    found = find_declaration(decoder, end)
    if isinstance(found, CompositeDeclaration) and found.name == field.source:
        return read_composite(decoder, found, end, depth)
    name = found.name if isinstance(found, CompositeDeclaration) else shorten(found)
    raise DecodeError(f"expected {field.source} for {field.path}, but found {name} at byte {start}")


def _read_any(decoder: Decoder, field: FieldDeclaration, code: int, end: int, depth: int) -> object:
    """A field of type *: a composite that provides what the field requires, an extension's, or a
    primitive.
    """
    start = decoder.pos
    requires = field.requires
    if code == 0:
        found = find_declaration(decoder, end)
        if not isinstance(found, CompositeDeclaration):
            if depth <= 0:
                raise DecodeError(f"values nest deeper than DEPTH_MAX ({DEPTH_MAX}) at byte {start}")
            return Described(found, decoder.value(end, depth - 1))
        if requires not in found.provides:
            raise DecodeError(
                f"expected a type that provides {requires} for {field.path}, but found {found.name}"
            )
        return read_composite(decoder, found, end, depth)
    if requires in COMPOSITE_ARCHETYPES:
        raise DecodeError(
            f"expected a type that provides {requires} for {field.path}, "
            f"but found {name_of_code(code)} at byte {start}"
        )
    allowed = ARCHETYPE_PRIMITIVES.get(requires)
    row = BY_CODE[code]
    if allowed is not None and (row is None or row.type_name not in allowed):
        wanted = " or ".join(allowed)
        raise DecodeError(
            f"expected {wanted} for {field.path}, but found {name_of_code(code)} at byte {start}"
        )
    return decoder.value(end, depth)


def read_map(decoder: Decoder, end: int, depth: int, symbol_keyed: bool, path: str) -> dict[Any, Any]:
    """A map in a declared field: symbols as keys become plain str, and values of known composites are
    decoded.
    """
    if depth <= 0:
        raise DecodeError(f"values nest deeper than DEPTH_MAX ({DEPTH_MAX}) at byte {decoder.pos}")
    code = decoder.data[decoder.pos]
    decoder.pos += 1
    stop, count = decoder.compound(code, end)
    decoder.check_map_count(count, stop)
    items: dict[Any, Any] = {}
    for _ in range(count // 2):
        start = decoder.pos
        key = decoder.value(stop, depth - 1)
        if symbol_keyed:
            if not isinstance(key, Symbol):
                raise DecodeError(
                    f"expected a symbol as key in {path}, but found {shorten(key)} at byte {start}"
                )
            key = key.value
        elif isinstance(key, (list, dict)):
            raise DecodeError(f"expected a simple key in {path}, but found {shorten(key)} at byte {start}")
        if key in items:
            raise DecodeError(f"{path} has the key {shorten(key)} twice, again at byte {start}")
        items[key] = read_resolved(decoder, stop, depth - 1)
    decoder.check_end(stop, f"map in {path}")
    return items


def read_resolved(decoder: Decoder, end: int, depth: int) -> object:
    """The value at the decoder's place; a described value with the descriptor of a known composite becomes
    it.
    """
    pos = decoder.pos
    if pos < end and decoder.data[pos] == 0:
        found = find_declaration(decoder, end)
        if isinstance(found, CompositeDeclaration):
            return read_composite(decoder, found, end, depth)
        decoder.pos = pos
    return decoder.value(end, depth)
