"""The sections of a message (3.2): the two composites, and the three kinds of body."""

from typing import Any, Final

from amqp_broker.frames.composite import Composite, composite, wire
from amqp_broker.frames.declarations import DECLARATIONS
from amqp_broker.frames.primitive_types import codes_of
from amqp_broker.frames.printing import cut, shorten
from amqp_broker.frames.restricted_types import ARCHETYPE_PRIMITIVES


@composite(0x70, ("section",))
class Header(Composite):
    """Transport headers (3.2.1). `ttl` in ms.

    None means that the field is absent; the standard's table has no defaults here, its text means not
    durable, priority 4 and delivery-count 0.
    """

    durable: bool | None = wire("boolean", default=None)
    priority: int | None = wire("ubyte", default=None)
    ttl: int | None = wire("milliseconds", default=None)
    first_acquirer: bool | None = wire("boolean", default=None)
    delivery_count: int | None = wire("uint", default=None)


@composite(0x73, ("section",))
class Properties(Composite):
    """Immutable properties of a message (3.2.4). Times in ms since the Unix epoch.

    message_id and correlation_id are Ulong, uuid.UUID, bytes or str.
    """

    message_id: Any = wire("*", requires="message-id", default=None)
    user_id: bytes | None = wire("binary", default=None)
    to: Any = wire("*", requires="address", default=None)
    subject: str | None = wire("string", default=None)
    reply_to: Any = wire("*", requires="address", default=None)
    correlation_id: Any = wire("*", requires="message-id", default=None)
    content_type: str | None = wire("symbol", default=None)
    content_encoding: str | None = wire("symbol", default=None)
    absolute_expiry_time: int | None = wire("timestamp", default=None)
    creation_time: int | None = wire("timestamp", default=None)
    group_id: str | None = wire("string", default=None)
    group_sequence: int | None = wire("sequence-no", default=None)
    reply_to_group_id: str | None = wire("string", default=None)


HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78

SECTION_SYMBOLS: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:footer:map": FOOTER,
}
SECTION_NAMES: Final = {code: symbol.split(":")[1] for symbol, code in SECTION_SYMBOLS.items()}
SECTION_CODES: Final = {name: code for code, name in SECTION_NAMES.items()}
SECTION_SOURCES: Final = {code: symbol.split(":")[2] for symbol, code in SECTION_SYMBOLS.items()}
SECTION_CONSTRUCTORS: Final = {
    code: () if source == "*" else tuple(codes_of(source)) for code, source in SECTION_SOURCES.items()
}
"""The format codes that a section's value may have; empty: any."""

PROPERTY_CODES: Final = tuple(
    frozenset(
        code
        for source in ("null", *ARCHETYPE_PRIMITIVES.get(field.requires, (field.source,)))
        for code in codes_of(source)
    )
    for field in DECLARATIONS[Properties].fields
)
"""The format codes that each field of the properties may have (3.2.4)."""


class _BodySection:
    """A section of a body, equal to one of its own kind with the same value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return cut(f"{type(self).__name__}({shorten(self.value, 200)})")


class Data(_BodySection):
    """A body section of opaque octets (3.2.6)."""

    __slots__ = ()


class AmqpSequence(_BodySection):
    """A body section of a list of values (3.2.7)."""

    __slots__ = ()


class AmqpValue(_BodySection):
    """A body section of one value (3.2.8)."""

    __slots__ = ()
