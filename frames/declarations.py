"""What a declaration of a composite becomes: for each field a table from the constructor that comes to what
to do.

A composite on the wire is a described list (1.4):

    0x00 descriptor   0x45                          no fields
    0x00 descriptor   0xc0 size count  field field ...
    0x00 descriptor   0xd0 size count  field field ...      trailing fields that are absent are left out
"""

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames.primitive_types import codes_of
from amqp_broker.frames.restricted_types import RESTRICTED_TYPES, SYMBOL_KEYED, RestrictedType

# What to do with a constructor in a field. 0 is "not this field's type", so that a fresh table refuses
# everything.
WRONG: Final = 0
ABSENT: Final = 1
ZERO: Final = 2
ONE_OCTET: Final = 3
FOUR_OCTETS: Final = 4
TRUE: Final = 5
FALSE: Final = 6
SHORT_BINARY: Final = 7
OTHER: Final = 8
"""Everything that is rare or needs a second look; `composite_decoding.read_field` does it."""

# Kinds of fields, for both directions.
SCALAR: Final = 1
MULTIPLE: Final = 2
MAP: Final = 3
ANY: Final = 4
COMPOSITE: Final = 5

# How a field is encoded: 0 the general way, else without a call.
PUT_OTHER: Final = 0
PUT_UINT: Final = 1
PUT_BOOLEAN: Final = 2
PUT_BINARY: Final = 3
PUT_MULTIPLE: Final = 4

_ACTION_OF_CODE: Final = {
    0x41: TRUE,
    0x42: FALSE,
    0x43: ZERO,
    0x44: ZERO,
    0x50: ONE_OCTET,
    0x52: ONE_OCTET,
    0x53: ONE_OCTET,
    0x70: FOUR_OCTETS,
    0xA0: SHORT_BINARY,
}


class FieldDeclaration:
    """One field of a composite: what the standard's table says about it, and what the codec makes of it."""

    __slots__ = (
        "actions",
        "attribute",
        "choices",
        "default",
        "kind",
        "mandatory",
        "multiple",
        "name",
        "octets_max",
        "path",
        "put",
        "requires",
        "secret",
        "source",
        "symbol_keyed",
        "type_name",
    )

    def __init__(
        self,
        attribute: str,
        type_name: str,
        mandatory: bool,
        default: object,
        multiple: bool,
        requires: str,
        secret: bool,
        composite_name: str,
    ) -> None:
        self.attribute: str = attribute
        self.name: str = attribute.rstrip("_").replace("_", "-")
        self.path: str = f"{composite_name}.{self.name}"
        self.type_name: str = type_name
        self.mandatory: bool = mandatory
        self.default: object = default
        self.multiple: bool = multiple
        self.requires: str = requires
        self.secret: bool = secret
        restricted = RESTRICTED_TYPES.get(type_name, RestrictedType(type_name, type_name))
        self.source: str = restricted.source
        self.choices: tuple[object, ...] = restricted.choices
        self.octets_max: int = restricted.octets_max
        self.symbol_keyed: bool = type_name in SYMBOL_KEYED
        self.kind: int = self._kind()
        self.actions: bytes = self._actions()
        self.put: int = self._put()

    def _kind(self) -> int:
        if self.multiple:
            return MULTIPLE
        if self.source == "map":
            return MAP
        if self.source == "*":
            return ANY
        if self.source == "error":
            return COMPOSITE
        return SCALAR

    def _put(self) -> int:
        if self.kind == MULTIPLE:
            return PUT_MULTIPLE
        if self.kind != SCALAR or self.choices:
            return PUT_OTHER
        return {"uint": PUT_UINT, "boolean": PUT_BOOLEAN, "binary": PUT_BINARY}.get(self.source, PUT_OTHER)

    def _actions(self) -> bytes:
        actions = bytearray(256)
        if self.kind == ANY:
            actions = bytearray([OTHER] * 256)
        elif self.kind == COMPOSITE:
            actions[0x00] = OTHER
        else:
            has_second_look = self.kind != SCALAR or bool(self.choices)
            for code in codes_of(self.source):
                actions[code] = OTHER if has_second_look else _ACTION_OF_CODE.get(code, OTHER)
            if self.kind == MULTIPLE:
                for code in codes_of("array"):
                    actions[code] = OTHER
        # A mandatory null takes the slow way to its error.
        actions[0x40] = OTHER if self.mandatory else ABSENT
        return bytes(actions)


class CompositeDeclaration:
    """One composite type: its descriptor, its fields, and how to build and read the Python object."""

    __slots__ = (
        "by_count",
        "code",
        "fields",
        "frame_type",
        "get_values",
        "make",
        "name",
        "prefix",
        "provides",
        "required_count",
        "symbol",
        "tails",
    )

    def __init__(
        self,
        name: str,
        code: int,
        provides: tuple[str, ...],
        fields: tuple[FieldDeclaration, ...],
        make: Callable[..., Any],
        get_values: Callable[[Any], tuple[object, ...]],
    ) -> None:
        self.name: str = name
        self.code: int = code
        self.symbol: str = f"amqp:{name}:list"
        self.provides: tuple[str, ...] = provides
        self.fields: tuple[FieldDeclaration, ...] = fields
        self.make: Callable[..., Any] = make
        self.get_values: Callable[[Any], tuple[object, ...]] = get_values
        # The type of the frames whose body it may begin; -1 for none.
        self.frame_type: int = 0 if "frame" in provides else 1 if "sasl-frame" in provides else -1
        self.prefix: bytes = bytes((0x00, 0x53, code))
        # How many fields a list must have at least, so that no mandatory one is missing.
        self.required_count: int = max(
            (i + 1 for i, field in enumerate(fields) if field.mandatory), default=0
        )
        # Prefixes and rests for each count of fields, so that decoding cuts nothing.
        self.by_count: tuple[tuple[FieldDeclaration, ...], ...] = tuple(
            fields[:n] for n in range(len(fields) + 1)
        )
        self.tails: tuple[tuple[object, ...], ...] = tuple(
            tuple(field.default for field in fields[n:]) for n in range(len(fields) + 1)
        )


DECLARATIONS: Final[dict[type, CompositeDeclaration]] = {}
BY_DESCRIPTOR_CODE: Final[dict[int, CompositeDeclaration]] = {}
BY_DESCRIPTOR_SYMBOL: Final[dict[str, CompositeDeclaration]] = {}


def declare(value_class: type, declaration: CompositeDeclaration) -> None:
    """Makes a composite known to the codec."""
    assert declaration.code not in BY_DESCRIPTOR_CODE, declaration.name
    DECLARATIONS[value_class] = declaration
    BY_DESCRIPTOR_CODE[declaration.code] = declaration
    BY_DESCRIPTOR_SYMBOL[declaration.symbol] = declaration
