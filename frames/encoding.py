"""Bytes from values: the shortest of a type's encodings (see `primitive_types` for the drawing of the wire).

Each type has one function that appends to a bytearray; the table at the end finds it by the value's class.
"""

import struct
from collections.abc import Callable
from typing import Final

from amqp_broker.frames.errors import EncodeError
from amqp_broker.frames.fixed_width import FIXED_ELEMENTS, FIXED_FORMS, fixed_code, fixed_octets
from amqp_broker.frames.limits import DEPTH_MAX, ZERO_WIDTH_ELEMENTS_MAX
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.values import Array, CompoundKey, Described, Int, Long, Symbol, Uint, Ulong

_Put = Callable[[bytearray, object, int], None]

_F64: Final = struct.Struct(">d").pack


def encode_value(value: object) -> bytes:
    """`value` in its shortest encoding. Raises EncodeError for what the wire cannot carry."""
    out = bytearray()
    put_value(out, value, DEPTH_MAX)
    return bytes(out)


def put_value(out: bytearray, value: object, depth: int) -> None:
    """Appends `value` with its constructor; `depth` is how deep it may still nest."""
    put = _PUT.get(type(value))
    if put is None:
        put = _put_of_base(value)
    put(out, value, depth)


def _put_of_base(value: object) -> _Put:
    for base in type(value).__mro__[1:-1]:
        put = _PUT.get(base)
        if put is not None:
            return put
    raise EncodeError(f"expected a value of an AMQP type, but got {type(value).__name__}: {shorten(value)}")


def check_range(value: int, low: int, high: int, what: str) -> None:
    """Raises EncodeError unless low <= value <= high."""
    if not low <= value <= high:
        raise EncodeError(f"expected {low} to {high} for {what}, but got {shorten(value)}")


def put_unsigned(out: bytearray, value: int, base: int, octets: int, what: str) -> None:
    """Appends a uint or ulong: nothing, one octet, or all (`base` 0x40 + 3 or 4 is the constructor of
    zero).
    """
    check_range(value, 0, (1 << 8 * octets) - 1, what)
    if value == 0:
        out.append(base)
    elif value < 256:
        out.append(base + 0x0F)
        out.append(value)
    else:
        out.append(0x70 if octets == 4 else 0x80)
        out += value.to_bytes(octets, "big")


def put_signed(out: bytearray, value: int, octets: int, what: str) -> None:
    """Appends an int or long: one octet, or all."""
    bound = 1 << 8 * octets - 1
    check_range(value, -bound, bound - 1, what)
    if -128 <= value < 128:
        out.append(0x54 if octets == 4 else 0x55)
        out.append(value & 0xFF)
    else:
        out.append(0x71 if octets == 4 else 0x81)
        out += value.to_bytes(octets, "big", signed=True)


def put_octets(out: bytearray, short_code: int, octets: bytes) -> None:
    """Appends binary, string or symbol: `short_code` is its one-octet form, the long one is 0x10 above."""
    size = len(octets)
    if size < 256:
        out.append(short_code)
        out.append(size)
    else:
        if size > 0xFFFFFFFF:
            raise EncodeError(f"expected at most 4294967295 octets, but got {size}")
        out.append(short_code + 0x10)
        out += size.to_bytes(4, "big")
    out += octets


def put_compound(out: bytearray, short_code: int, count: int, body: bytes | bytearray) -> None:
    """Appends a list, map or array whose values are encoded in `body`."""
    size = len(body)
    if size < 255 and count < 256:
        out.append(short_code)
        out.append(size + 1)
        out.append(count)
    else:
        if size > 0xFFFFFFFF - 4:
            raise EncodeError(f"expected at most 4294967291 octets in a compound, but got {size}")
        out.append(short_code + 0x10)
        out += (size + 4).to_bytes(4, "big")
        out += count.to_bytes(4, "big")
    out += body


def utf8(text: str) -> bytes:
    """UTF-8 of a string. Raises EncodeError for lone surrogates."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise EncodeError(f"expected text that UTF-8 can carry, but got {shorten(text)}") from None


def ascii_octets(text: str) -> bytes:
    """ASCII of a symbol. Raises EncodeError for anything else."""
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(f"expected ASCII for a symbol, but got {shorten(text)}") from None


def deeper(depth: int) -> int:
    """One level less of nesting. Raises EncodeError at the limit that decoders have."""
    if depth <= 0:
        raise EncodeError(f"values nest deeper than DEPTH_MAX ({DEPTH_MAX})")
    return depth - 1


def _put_none(out: bytearray, value: object, depth: int) -> None:
    out.append(0x40)


def _put_bool(out: bytearray, value: object, depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _put_fixed(out: bytearray, value: object, depth: int) -> None:
    out.append(fixed_code(value))
    out += fixed_octets(value)


def _put_uint(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Uint)
    put_unsigned(out, value.value, 0x43, 4, "a uint")


def _put_ulong(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Ulong)
    put_unsigned(out, value.value, 0x44, 8, "a ulong")


def _put_int(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Int)
    put_signed(out, value.value, 4, "an int")


def _put_long(out: bytearray, value: object, depth: int) -> None:
    put_signed(out, value.value if isinstance(value, Long) else _plain_int(value), 8, "a long")


def _plain_int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _put_plain_float(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, float)
    out.append(0x82)
    out += _F64(value)


def _put_bytes(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, (bytes, bytearray, memoryview))
    put_octets(out, 0xA0, bytes(value))


def _put_str(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, str)
    put_octets(out, 0xA1, utf8(value))


def _put_symbol(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Symbol)
    put_octets(out, 0xA3, ascii_octets(value.value))


def _put_list(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, list)
    if not value:
        out.append(0x45)
        return
    inner = deeper(depth)
    body = bytearray()
    for item in value:
        put_value(body, item, inner)
    put_compound(out, 0xC0, len(value), body)


def _put_map(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, dict)
    inner = deeper(depth)
    body = bytearray()
    for key, item in value.items():
        put_value(body, key, inner)
        put_value(body, item, inner)
    put_compound(out, 0xC1, 2 * len(value), body)


def _put_key(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, CompoundKey)
    put_value(out, value.value, depth)


def put_descriptor(out: bytearray, descriptor: object) -> None:
    """Appends 0x00 and a descriptor. Raises EncodeError unless it is a Symbol or Ulong (1.3)."""
    if not isinstance(descriptor, (Symbol, Ulong)):
        raise EncodeError(f"expected a Symbol or Ulong as descriptor, but got {shorten(descriptor)}")
    out.append(0x00)
    put_value(out, descriptor, 0)


def _put_described(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Described)
    inner = deeper(depth)
    put_descriptor(out, value.descriptor)
    put_value(out, value.value, inner)


def _put_array(out: bytearray, value: object, depth: int) -> None:
    assert isinstance(value, Array)
    inner = deeper(depth)
    body = bytearray()
    for descriptor in value.descriptors:
        inner = deeper(inner)
        put_descriptor(body, descriptor)
    put_elements(body, value.element_type, value.items, inner)
    put_compound(out, 0xE0, len(value.items), body)


def put_elements(out: bytearray, element_type: str, items: list[object], depth: int) -> None:
    """Appends the constructor of an array's elements and their data."""
    fixed = FIXED_ELEMENTS.get(element_type)
    if fixed is not None:
        code, classes = fixed
        out.append(code)
        for item in items:
            _check_element(item, classes, element_type)
            out += fixed_octets(item)
    elif element_type == "null":
        if len(items) > ZERO_WIDTH_ELEMENTS_MAX:
            raise EncodeError(
                f"expected at most {ZERO_WIDTH_ELEMENTS_MAX} nulls in an array, but got {len(items)}"
            )
        out.append(0x40)
        for item in items:
            _check_element(item, type(None), element_type)
    elif element_type in _SIZED_ELEMENTS:
        code, classes = _SIZED_ELEMENTS[element_type]
        _put_sized(out, code, classes, element_type, items, depth)
    else:
        raise EncodeError(f"expected a primitive type for an array, but got {shorten(element_type)}")


def _put_sized(out: bytearray, code: int, classes: type, name: str, items: list[object], depth: int) -> None:
    """Elements with a size of their own: all short or all long, as the longest wants it."""
    encoded: list[bytes] = []
    is_long = False
    for item in items:
        _check_element(item, classes, name)
        one = bytearray()
        put_value(one, item, depth)
        # An empty list is encoded as list0, whose data is nothing; as an element it needs a size and a count.
        data = b"\xc0\x01\x00" if one == b"\x45" else bytes(one)
        is_long = is_long or data[0] != code
        encoded.append(data)
    out.append(code + 0x10 if is_long else code)
    for data in encoded:
        out += _widened(data, code) if is_long and data[0] == code else data[1:]


def _widened(data: bytes, code: int) -> bytes:
    """The data of the one-octet form `code`, as the four-octet form has it."""
    if code < 0xC0:
        return data[1].to_bytes(4, "big") + data[2:]
    return (data[1] + 3).to_bytes(4, "big") + data[2].to_bytes(4, "big") + data[3:]


def _check_element(item: object, wanted: type, name: str) -> None:
    # bool is an int for Python, but never an element of anything but boolean.
    if not isinstance(item, wanted):
        raise EncodeError(f"expected only {name} in an array of {name}, but got {shorten(item)}")


_SIZED_ELEMENTS: Final[dict[str, tuple[int, type]]] = {
    "binary": (0xA0, bytes),
    "string": (0xA1, str),
    "symbol": (0xA3, Symbol),
    "list": (0xC0, list),
    "map": (0xC1, dict),
    "array": (0xE0, Array),
}

_PUT: Final[dict[type, _Put]] = {
    type(None): _put_none,
    bool: _put_bool,
    int: _put_long,
    float: _put_plain_float,
    bytes: _put_bytes,
    bytearray: _put_bytes,
    memoryview: _put_bytes,
    str: _put_str,
    list: _put_list,
    dict: _put_map,
    Uint: _put_uint,
    Ulong: _put_ulong,
    Int: _put_int,
    Long: _put_long,
    Symbol: _put_symbol,
    Described: _put_described,
    Array: _put_array,
    CompoundKey: _put_key,
}
for _class in FIXED_FORMS:
    _PUT[_class] = _put_fixed


def register(value_class: type, put: _Put) -> None:
    """Lets `encode_value` take a class that another module of this room encodes (the composites)."""
    _PUT[value_class] = put
