"""Delivery states and outcomes (3.4), those of transactions (4.5), and the error that `rejected` carries
(2.8.14).
"""

from typing import Any, TypeAlias, Union

from amqp_broker.frames.composite import Composite, composite, wire
from amqp_broker.frames.values import Described


@composite(0x1D)
class Error(Composite):
    """Details of an error: a symbol that programs read, a text that people read, and more (2.8.14)."""

    condition: str = wire("symbol", requires="error-condition", mandatory=True, default=None)
    description: str | None = wire("string", default=None)
    info: dict[str, Any] | None = wire("fields", default=None)


@composite(0x23, ("delivery-state",))
class Received(Composite):
    """How much of a message has come: not an outcome (3.4.1). The offset in octets of the section."""

    section_number: int = wire("uint", mandatory=True, default=None)
    section_offset: int = wire("ulong", mandatory=True, default=None)


@composite(0x24, ("delivery-state", "outcome"))
class Accepted(Composite):
    """The message was processed (3.4.2)."""


@composite(0x25, ("delivery-state", "outcome"))
class Rejected(Composite):
    """The message is invalid and cannot be processed (3.4.3)."""

    error: Error | None = wire("error", default=None)


@composite(0x26, ("delivery-state", "outcome"))
class Released(Composite):
    """The message was not and will not be processed here (3.4.4)."""


@composite(0x27, ("delivery-state", "outcome"))
class Modified(Composite):
    """The message was changed, but not processed (3.4.5)."""

    delivery_failed: bool | None = wire("boolean", default=None)
    undeliverable_here: bool | None = wire("boolean", default=None)
    message_annotations: dict[str, Any] | None = wire("fields", default=None)


AnyOutcome: TypeAlias = Union[Accepted, Rejected, Released, Modified, "Declared", Described, None]


@composite(0x33, ("delivery-state", "outcome"))
class Declared(Composite):
    """The outcome of a declare: the id of the transaction that was allocated (4.5.6)."""

    txn_id: bytes = wire("*", requires="txn-id", mandatory=True, default=None)


@composite(0x34, ("delivery-state",))
class TransactionalState(Composite):
    """A transfer or an outcome within a transaction (4.5.8)."""

    txn_id: bytes = wire("*", requires="txn-id", mandatory=True, default=None)
    outcome: AnyOutcome = wire("*", requires="outcome", default=None)


DeliveryState: TypeAlias = (
    Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState | Described | None
)
