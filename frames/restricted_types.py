"""The restricted types of parts 2, 3 and 5: a name, the primitive type it is made of, and its choices if it
is closed.

Sets that a peer may extend (error conditions, distribution modes, capabilities) have no choices here.
"""

from typing import Final

from amqp_broker.frames.limits import DELIVERY_TAG_OCTETS_MAX

SENDER: Final = False
"""The role of the peer that sends transfers (2.8.1)."""
RECEIVER: Final = True
"""The role of the peer that receives transfers (2.8.1)."""

SETTLE_MODE_UNSETTLED: Final = 0
SETTLE_MODE_SETTLED: Final = 1
SETTLE_MODE_MIXED: Final = 2
SETTLE_MODE_FIRST: Final = 0
SETTLE_MODE_SECOND: Final = 1

class RestrictedType:
    """One row: `source` is a primitive type, `choices` all values that are allowed (empty: any)."""

    __slots__ = ("choices", "name", "octets_max", "source")

    def __init__(self, name: str, source: str, choices: tuple[object, ...] = (), octets_max: int = 0) -> None:
        self.name: str = name
        self.source: str = source
        self.choices: tuple[object, ...] = choices
        self.octets_max: int = octets_max


_ROWS: Final = (
    RestrictedType("role", "boolean"),
    RestrictedType("sender-settle-mode", "ubyte", (0, 1, 2)),
    RestrictedType("receiver-settle-mode", "ubyte", (0, 1)),
    RestrictedType("handle", "uint"),
    RestrictedType("seconds", "uint"),
    RestrictedType("milliseconds", "uint"),
    RestrictedType("delivery-tag", "binary", (), DELIVERY_TAG_OCTETS_MAX),
    RestrictedType("delivery-number", "uint"),
    RestrictedType("transfer-number", "uint"),
    RestrictedType("sequence-no", "uint"),
    RestrictedType("message-format", "uint"),
    RestrictedType("ietf-language-tag", "symbol"),
    RestrictedType("fields", "map"),
    RestrictedType("filter-set", "map"),
    RestrictedType("node-properties", "map"),
    RestrictedType("terminus-durability", "uint", (0, 1, 2)),
    RestrictedType(
        "terminus-expiry-policy", "symbol", ("link-detach", "session-end", "connection-close", "never")
    ),
    RestrictedType("sasl-code", "ubyte", (0, 1, 2, 3, 4)),
)

RESTRICTED_TYPES: Final = {row.name: row for row in _ROWS}

SYMBOL_KEYED: Final = frozenset({"fields", "filter-set", "node-properties"})
"""Maps whose keys are symbols (2.8.14, 3.5.9, 3.5.10); in Python the keys are plain str."""

ARCHETYPE_PRIMITIVES: Final[dict[str, tuple[str, ...]]] = {
    "address": ("string",),
    "message-id": ("ulong", "uuid", "binary", "string"),
    "txn-id": ("binary",),
}
"""Primitive types that provide an archetype, through message-id-ulong, address-string, transaction-id (3.2,
4.5).
"""

COMPOSITE_ARCHETYPES: Final = frozenset({"source", "target", "delivery-state", "outcome"})
"""Archetypes that only described types provide."""
