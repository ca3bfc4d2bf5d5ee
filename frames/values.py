"""Python values of the AMQP types that have no Python type of their own (part 1).

null is None, boolean bool, binary bytes, string str, uuid uuid.UUID, list list, map dict. Every other type is
a small class here with `.value`: equal only to the same class with the same value, and hashable, so that any
of them can be the key of a map and `Uint(1)`, `Ulong(1)` and `True` stay three keys.
"""

import struct
import uuid
from typing import Any, Final

from amqp_broker.frames.printing import cut, shorten

_DOUBLE_BITS = struct.Struct(">d").pack


class IntegerValue:
    """Base of the integer types and of timestamp; `value` is a plain int."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value: int = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntegerValue) and type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        # The hash of an int repeats after 2^61 - 1, that of text is secret: peers choose the keys of maps.
        return hash(f"{type(self).__name__} {self.value:x}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(self.value)})"


class Ubyte(IntegerValue):
    """0 to 2^8 - 1."""

    __slots__ = ()


class Ushort(IntegerValue):
    """0 to 2^16 - 1."""

    __slots__ = ()


class Uint(IntegerValue):
    """0 to 2^32 - 1."""

    __slots__ = ()


class Ulong(IntegerValue):
    """0 to 2^64 - 1."""

    __slots__ = ()


class Byte(IntegerValue):
    """-2^7 to 2^7 - 1."""

    __slots__ = ()


class Short(IntegerValue):
    """-2^15 to 2^15 - 1."""

    __slots__ = ()


class Int(IntegerValue):
    """-2^31 to 2^31 - 1."""

    __slots__ = ()


class Long(IntegerValue):
    """-2^63 to 2^63 - 1; the encoder takes a plain int for it too."""

    __slots__ = ()


class Timestamp(IntegerValue):
    """Milliseconds since the Unix epoch, UTC."""

    __slots__ = ()


INTEGERS: Final = (Ulong, Uint, Long, Int, Ushort, Short, Ubyte, Byte)
"""The integer types (1.6.3 to 1.6.10); a timestamp is none."""


class FloatValue:
    """Base of float and double; equal when the bits are, so a NaN equals itself and 0.0 is not -0.0."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value: float = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FloatValue)
            and type(other) is type(self)
            and _DOUBLE_BITS(other.value) == _DOUBLE_BITS(self.value)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, _DOUBLE_BITS(self.value)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Float(FloatValue):
    """IEEE 754 binary32."""

    __slots__ = ()


class Double(FloatValue):
    """IEEE 754 binary64; the encoder takes a plain float for it too."""

    __slots__ = ()


class TextValue:
    """Base of symbol and char; `value` is a plain str."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value: str = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextValue) and type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(self.value, 200)})"


class Symbol(TextValue):
    """ASCII text from a constrained domain."""

    __slots__ = ()


class Char(TextValue):
    """One Unicode code point."""

    __slots__ = ()


class BytesValue:
    """Base of the decimals; `value` holds the octets of the wire."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value: bytes = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytesValue) and type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(self.value)})"


class Decimal32(BytesValue):
    """IEEE 754 decimal32, Binary Integer Decimal encoding, 4 octets."""

    __slots__ = ()


class Decimal64(BytesValue):
    """IEEE 754 decimal64, Binary Integer Decimal encoding, 8 octets."""

    __slots__ = ()


class Decimal128(BytesValue):
    """IEEE 754 decimal128, Binary Integer Decimal encoding, 16 octets."""

    __slots__ = ()


def frozen(value: object) -> object:
    """A hashable stand-in for `value`: equal exactly when type, content and order of what it holds are."""
    if isinstance(value, list):
        return ("list", *[frozen(item) for item in value])
    if isinstance(value, dict):
        return ("map", *[(frozen(key), frozen(item)) for key, item in value.items()])
    if isinstance(value, uuid.UUID):
        # Its own hash is that of an int, which a peer can make collide.
        return ("uuid", value.bytes)
    # A plain int or float stands for a long or a double, and True must not equal 1.
    return (type(value).__name__, value)


class Described:
    """A value with a descriptor (Symbol or Ulong) that is none of the standard's composites (1.3)."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor: object = descriptor
        self.value: object = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Described)
            and other.descriptor == self.descriptor
            and frozen(other.value) == frozen(self.value)
        )

    def __hash__(self) -> int:
        return hash(("Described", self.descriptor, frozen(self.value)))

    def __repr__(self) -> str:
        return cut(f"Described({shorten(self.descriptor)}, {shorten(self.value, 160)})")


class Array:
    """Values of one type (1.6.24).

    `element_type` is the standard's name of the primitive type ("uint", "symbol", ...), `items` the values,
    and `descriptors` (outermost first) says how each element is described; the items themselves are not
    wrapped.
    """

    __slots__ = ("element_type", "items", "descriptors")

    def __init__(self, element_type: str, items: list[object], descriptors: tuple[object, ...] = ()) -> None:
        self.element_type: str = element_type
        self.items: list[object] = items
        self.descriptors: tuple[object, ...] = descriptors

    @property
    def value(self) -> list[object]:
        """The elements."""
        return self.items

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Array)
            and other.element_type == self.element_type
            and other.descriptors == self.descriptors
            and frozen(other.items) == frozen(self.items)
        )

    def __hash__(self) -> int:
        return hash(("Array", self.element_type, self.descriptors, frozen(self.items)))

    def __repr__(self) -> str:
        described = f", {shorten(self.descriptors)}" if self.descriptors else ""
        return cut(f"Array({shorten(self.element_type)}, {shorten(self.items, 120)}{described})")


def plain_value(value: Any) -> Any:
    """The value with the classes of the wire's types taken off: Ulong(1) is 1, Symbol("a") is "a", an array
    is a list, a described value its value; inside of maps and lists, too.
    """
    if isinstance(value, dict):
        return {plain_value(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, Array):
        return [plain_value(item) for item in value.items]
    if isinstance(value, Described):
        return plain_value(value.value)
    return getattr(value, "value", value)


class CompoundKey:
    """A list or map as the key of a map: legal on the wire, not hashable in Python (1.6.23)."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompoundKey) and frozen(other.value) == frozen(self.value)

    def __hash__(self) -> int:
        return hash(("CompoundKey", frozen(self.value)))

    def __repr__(self) -> str:
        return cut(f"CompoundKey({shorten(self.value, 160)})")
