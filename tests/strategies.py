"""Hypothesis strategies for everything that goes over the wire, shared by all tests.

`values` are AMQP values of every type, `encoded` draws one of a value's encodings, `composites` instances of
every composite of the standard (from its declaration), `messages` whole messages.
"""

from __future__ import annotations

import functools
import struct
import uuid
from typing import Any

from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Array,
    Byte,
    Data,
    Decimal128,
    Described,
    Double,
    Float,
    Header,
    Int,
    Long,
    Properties,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    encode_message,
)
from amqp_broker.frames.declarations import (
    ANY,
    COMPOSITE,
    DECLARATIONS,
    MAP,
    MULTIPLE,
    CompositeDeclaration,
    FieldDeclaration,
)
from amqp_broker.frames.values import Char, Decimal32, Decimal64


@functools.cache
def integers(bits: int, signed: bool = False) -> st.SearchStrategy[int]:
    """Integers of a width, with its borders and those of the shorter encodings more often."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    borders = sorted({n for n in (0, 1, -1, 127, 128, -128, -129, 255, 256, low, high) if low <= n <= high})
    return st.integers(low, high) | st.sampled_from(borders)


@functools.cache
def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Text that UTF-8 can carry."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


@functools.cache
def symbols(max_size: int = 20) -> st.SearchStrategy[str]:
    """ASCII text."""
    return st.text(st.characters(max_codepoint=127), max_size=max_size)


# Lengths around 255 octets are where the short encodings end.
_long_texts = st.integers(250, 260).map(lambda n: "x" * n)

_by_type: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": integers(8).map(Ubyte),
    "ushort": integers(16).map(Ushort),
    "uint": integers(32).map(Uint),
    "ulong": integers(64).map(Ulong),
    "byte": integers(8, True).map(Byte),
    "short": integers(16, True).map(Short),
    "int": integers(32, True).map(Int),
    "long": integers(64, True).map(Long),
    "float": st.floats(width=32).map(Float),
    "double": st.floats().map(Double),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": integers(64, True).map(Timestamp),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=20) | st.integers(250, 260).map(bytes),
    "string": texts() | _long_texts,
    "symbol": (symbols() | _long_texts).map(Symbol),
}

SCALAR_TYPES = tuple(_by_type)


@functools.cache
def scalars(type_name: str = "") -> st.SearchStrategy[Any]:
    """A value of one type that holds no others, or of any."""
    return _by_type[type_name] if type_name else st.one_of(*_by_type.values())


@functools.cache
def descriptors() -> st.SearchStrategy[Any]:
    """Descriptors outside the standard's own domain."""
    return st.integers(1 << 32, (1 << 64) - 1).map(Ulong) | symbols(8).map(lambda text: Symbol("x:" + text))


def _compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=5)
    maps = st.dictionaries(scalars(), inner, max_size=4)
    described = st.builds(Described, descriptors(), inner)
    return lists | maps | described | st.one_of(*arrays(lists, maps).values())


def arrays(lists: st.SearchStrategy[Any], maps: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Arrays by their element type, plain and described."""

    def of(type_name: str, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        described = st.lists(descriptors(), max_size=2).map(tuple)
        return st.builds(Array, st.just(type_name), st.lists(elements, max_size=5), st.just(()) | described)

    flat = {name: of(name, strategy) for name, strategy in _by_type.items()}
    nested = of("array", st.one_of(*list(flat.values())[:10]))
    return flat | {"list": of("list", lists), "map": of("map", maps), "array": nested}


@functools.cache
def values() -> st.SearchStrategy[Any]:
    """A value of any type, nested a few levels."""
    return st.recursive(scalars(), _compounds, max_leaves=12)


# --- every encoding of a value
# ---------------------------------------------------------------------------------


def _sized(draw: st.DrawFn, short: int, octets: bytes) -> bytes:
    if len(octets) < 256 and draw(st.booleans()):
        return bytes((short, len(octets))) + octets
    return bytes((short + 0x10,)) + struct.pack(">I", len(octets)) + octets


def _compound(draw: st.DrawFn, short: int, count: int, body: bytes) -> bytes:
    if len(body) < 255 and count < 256 and draw(st.booleans()):
        return bytes((short, len(body) + 1, count)) + body
    return bytes((short + 0x10,)) + struct.pack(">II", len(body) + 4, count) + body


def _unsigned(draw: st.DrawFn, value: int, codes: tuple[int, int, int], width: int) -> bytes:
    forms = [bytes((codes[0],)) + value.to_bytes(width, "big")]
    if value < 256:
        forms.append(bytes((codes[1], value)))
    if value == 0:
        forms.append(bytes((codes[2],)))
    return draw(st.sampled_from(forms))


def _signed(draw: st.DrawFn, value: int, codes: tuple[int, int], width: int) -> bytes:
    forms = [bytes((codes[0],)) + value.to_bytes(width, "big", signed=True)]
    if -128 <= value < 128:
        forms.append(bytes((codes[1], value & 0xFF)))
    return draw(st.sampled_from(forms))


@st.composite
def encoded(draw: st.DrawFn, value: Any) -> bytes:
    """One of the encodings of `value`, at every level of it; written here a second time, without the
    encoder.
    """
    return _encoded(draw, value)


def _encoded(draw: st.DrawFn, value: Any) -> bytes:
    if value is None:
        return b"\x40"
    if isinstance(value, bool):
        return draw(st.sampled_from([b"\x41" if value else b"\x42", b"\x56\x01" if value else b"\x56\x00"]))
    if isinstance(value, Uint):
        return _unsigned(draw, value.value, (0x70, 0x52, 0x43), 4)
    if isinstance(value, Ulong):
        return _unsigned(draw, value.value, (0x80, 0x53, 0x44), 8)
    if isinstance(value, Int):
        return _signed(draw, value.value, (0x71, 0x54), 4)
    if isinstance(value, Long):
        return _signed(draw, value.value, (0x81, 0x55), 8)
    if isinstance(value, bytes):
        return _sized(draw, 0xA0, value)
    if isinstance(value, str):
        return _sized(draw, 0xA1, value.encode())
    if isinstance(value, Symbol):
        return _sized(draw, 0xA3, value.value.encode("ascii"))
    if isinstance(value, Described):
        return b"\x00" + _encoded(draw, value.descriptor) + _encoded(draw, value.value)
    if isinstance(value, (list, dict, Array)):
        return _encoded_compound(draw, value)
    return one_form(value)


def _encoded_compound(draw: st.DrawFn, value: Any) -> bytes:
    if isinstance(value, list):
        if not value and draw(st.booleans()):
            return b"\x45"
        return _compound(draw, 0xC0, len(value), b"".join([_encoded(draw, item) for item in value]))
    if isinstance(value, dict):
        parts = [_encoded(draw, part) for pair in value.items() for part in pair]
        return _compound(draw, 0xC1, len(parts), b"".join(parts))
    constructor = b"".join([b"\x00" + _encoded(draw, descriptor) for descriptor in value.descriptors])
    code, data = _elements(draw, value.element_type, value.items)
    return _compound(draw, 0xE0, len(value.items), constructor + bytes((code,)) + data)


_ONE_WIDTH = {"boolean": 0x56, "uint": 0x70, "ulong": 0x80, "int": 0x71, "long": 0x81}
_SMALL = {"uint": 0x52, "ulong": 0x53, "int": 0x54, "long": 0x55}
_ZERO = {"uint": 0x43, "ulong": 0x44}


def _elements(draw: st.DrawFn, name: str, items: list[Any]) -> tuple[int, bytes]:
    """The constructor and the data of an array's elements: one encoding for all of them."""
    if name == "null":
        return 0x40, b""
    if name == "boolean":
        if len(set(items)) == 1 and draw(st.booleans()):
            return (0x41 if items[0] else 0x42), b""
        return 0x56, bytes(items)
    if name in _ONE_WIDTH:
        return _integer_elements(draw, name, [item.value for item in items])
    if name in ("binary", "string", "symbol", "list", "map", "array"):
        return _sized_elements(draw, name, items)
    forms = [one_form(item) for item in items] or [one_form(draw(scalars(name)))]
    return forms[0][0], b"".join([form[1:] for form in forms]) if items else b""


def _integer_elements(draw: st.DrawFn, name: str, items: list[int]) -> tuple[int, bytes]:
    if name in _ZERO and not any(items) and draw(st.booleans()):
        return _ZERO[name], b""
    signed = name in ("int", "long")
    low, high = (-128, 127) if signed else (0, 255)
    if all(low <= item <= high for item in items) and draw(st.booleans()):
        return _SMALL[name], bytes(item & 0xFF for item in items)
    width = 8 if name in ("ulong", "long") else 4
    return _ONE_WIDTH[name], b"".join([item.to_bytes(width, "big", signed=signed) for item in items])


def _sized_elements(draw: st.DrawFn, name: str, items: list[Any]) -> tuple[int, bytes]:
    """Forms of one width for all; list0 where all are empty lists."""
    short = {"binary": 0xA0, "string": 0xA1, "symbol": 0xA3, "list": 0xC0, "map": 0xC1, "array": 0xE0}[name]
    if name == "list" and not any(items) and draw(st.booleans()):
        return 0x45, b""
    forms = [_without_list0(_encoded(draw, item)) for item in items]
    if all(form[0] == short for form in forms) and forms:
        return short, b"".join([form[1:] for form in forms])
    return short + 0x10, b"".join([_lengthened(form) for form in forms])


def _without_list0(form: bytes) -> bytes:
    return b"\xc0\x01\x00" if form == b"\x45" else form


def _lengthened(form: bytes) -> bytes:
    """The data of a form, with its size (and count) in four octets."""
    if form[0] & 0x10:
        return form[1:]
    if form[0] < 0xC0:
        return struct.pack(">I", form[1]) + form[2:]
    return struct.pack(">II", form[1] + 3, form[2]) + form[3:]


_ONE_FORM: dict[type, tuple[str, int]] = {
    Ubyte: ("B", 0x50), Ushort: ("H", 0x60), Byte: ("b", 0x51), Short: ("h", 0x61), Float: ("f", 0x72),
    Double: ("d", 0x82), Timestamp: ("q", 0x83),
}  # fmt: skip


def one_form(value: Any) -> bytes:
    """The encoding of a value whose type has only one."""
    if type(value) in _ONE_FORM:
        form, code = _ONE_FORM[type(value)]
        return struct.pack(">B" + form, code, value.value)
    if isinstance(value, Char):
        return struct.pack(">BI", 0x73, ord(value.value))
    if isinstance(value, uuid.UUID):
        return b"\x98" + value.bytes
    assert isinstance(value, (Decimal32, Decimal64, Decimal128)), value
    return {4: b"\x74", 8: b"\x84", 16: b"\x94"}[len(value.value)] + value.value


# --- composites
# ------------------------------------------------------------------------------------------------

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": integers(8),
    "ushort": integers(16),
    "uint": integers(32),
    "ulong": integers(64),
    "timestamp": integers(64, True),
    "binary": st.binary(max_size=32),
    "string": texts(),
    "symbol": symbols(),
}

_ARCHETYPES: dict[str, st.SearchStrategy[Any]] = {
    "address": texts(),
    "message-id": texts() | st.binary(max_size=8) | st.uuids() | integers(64).map(Ulong),
    "txn-id": st.binary(max_size=32),
    "global-tx-id": scalars().filter(lambda value: value is not None),
}


@functools.cache
def _small_values() -> st.SearchStrategy[Any]:
    return scalars() | st.lists(scalars(), max_size=2)


@functools.cache
def field_values(field: FieldDeclaration) -> st.SearchStrategy[Any]:
    """What a declared field may hold, without absence."""
    if field.choices:
        return st.sampled_from(field.choices)
    if field.kind == MULTIPLE:
        return st.lists(_PLAIN[field.source], min_size=1, max_size=3).map(tuple)
    if field.kind == MAP:
        if field.symbol_keyed:
            return st.dictionaries(symbols(8), _small_values(), max_size=3)
        states = st.none() | provided("delivery-state")
        return st.dictionaries(st.binary(max_size=8), states, max_size=3)
    if field.kind == COMPOSITE:
        return composites_of(next(d for d in DECLARATIONS.values() if d.name == field.source))
    if field.kind == ANY:
        return _ARCHETYPES[field.requires] if field.requires in _ARCHETYPES else provided(field.requires)
    return _PLAIN[field.source]


@functools.cache
def provided(archetype: str) -> st.SearchStrategy[Any]:
    """A composite that provides an archetype, or a described type of somebody else that does."""
    of_standard = [composites_of(d) for d in DECLARATIONS.values() if archetype in d.provides]
    return st.deferred(lambda: st.one_of(*of_standard)) | st.builds(Described, descriptors(), st.just([]))


@functools.cache
def composites_of(declaration: CompositeDeclaration) -> st.SearchStrategy[Any]:
    """Instances of one composite."""

    def fields() -> st.SearchStrategy[Any]:
        drawn = {}
        for field in declaration.fields:
            present = field_values(field)
            drawn[field.attribute] = present if field.mandatory else st.just(field.default) | present
        return st.builds(declaration.make, **drawn)

    return st.deferred(fields)


@functools.cache
def composites() -> st.SearchStrategy[Any]:
    """Instances of any composite of the standard."""
    return st.one_of(*[composites_of(declaration) for declaration in DECLARATIONS.values()])


@functools.cache
def performatives() -> st.SearchStrategy[Any]:
    """Instances of the nine performatives of part 2."""
    return st.one_of(*[composites_of(d) for d in DECLARATIONS.values() if d.frame_type == 0])


# --- messages
# --------------------------------------------------------------------------------------------------


@functools.cache
def annotation_maps() -> st.SearchStrategy[dict[Any, Any]]:
    """Maps as annotations are: symbols or ulongs to anything."""
    return st.dictionaries(symbols(8).map(Symbol) | integers(64).map(Ulong), _small_values(), max_size=3)


@functools.cache
def bodies() -> st.SearchStrategy[Any]:
    """Bodies of the three kinds, as lists of sections."""
    data = st.lists(st.binary(max_size=300).map(Data), min_size=1, max_size=3)
    sequences = st.lists(st.lists(scalars(), max_size=3).map(AmqpSequence), min_size=1, max_size=3)
    return data | sequences | values().map(lambda value: [AmqpValue(value)])


@functools.cache
def message_parts() -> st.SearchStrategy[dict[str, Any]]:
    """Keyword arguments of `encode_message`; None is an omitted section."""

    def declared(made: type) -> st.SearchStrategy[Any]:
        return st.none() | composites_of(DECLARATIONS[made])

    return st.fixed_dictionaries(
        {
            "header": declared(Header),
            "delivery_annotations": st.none() | annotation_maps(),
            "message_annotations": st.none() | annotation_maps(),
            "properties": declared(Properties),
            "application_properties": st.none() | st.dictionaries(texts(8), scalars(), max_size=3),
            "body": bodies(),
            "footer": st.none() | annotation_maps(),
        }
    )


@functools.cache
def messages() -> st.SearchStrategy[bytes]:
    """Encoded messages of every shape."""
    return message_parts().map(lambda parts: encode_message(**parts))


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes with a few octets changed, removed, doubled or added."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.integers(0, 3))
        if kind == 0 and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == 1:
            del data[at : at + draw(st.integers(1, 4))]
        elif kind == 2:
            data[at:at] = data[at : at + draw(st.integers(1, 8))]
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)


@st.composite
def mutants(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> list[bytes]:
    """Some mutants of the same valid bytes: to draw a message takes ten times as long as to change it."""
    whole = st.just(draw(source))
    return [draw(mutated(whole)) for _ in range(5)]
