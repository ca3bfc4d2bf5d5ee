"""Messages to the coordinator, and what it says of itself (4.2, 4.3, 4.5.1).

transfer payload   [other sections, ignored] | amqp-value: declare(global-id) or discharge(txn-id, fail)
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.coordinator.errors import (
    ControlLinkTerminated,
    MalformedRequest,
    NotAllowed,
    NotSupported,
    SettledRequest,
    TransactionError,
)
from amqp_broker.coordinator.transaction_table import TransactionTable
from amqp_broker.frames import (
    AmqpValue,
    Coordinator,
    Declare,
    DecodeError,
    Discharge,
    Message,
    Rejected,
    TransactionalState,
    shorten,
    takes_rejected,
)
from amqp_broker.frames.message_peek import read_request

# Each capability with what implements it; what is offered is read from here and written nowhere else. A
# transaction is found by its id among all of its connection's, so sessions do not matter to it.
CAPABILITIES: Final[dict[str, Any]] = {
    "amqp:local-transactions": TransactionTable.discharge,
    "amqp:multi-txns-per-ssn": TransactionTable.declare,
    "amqp:multi-ssns-per-txn": TransactionTable.find,
}


def coordinator_answer() -> Coordinator:
    """The target of our attach: what this coordinator can do, whatever was asked for (4.5.1)."""
    return Coordinator(capabilities=tuple(CAPABILITIES))


def decode_request(payload: bytes, settled: bool, state: object = None) -> Declare | Discharge:
    """What a controller asks with a message; 4.2, 4.3.

    Raises NotAllowed (the control link is terminated), MalformedRequest or NotSupported (see
    `failed_answer`).
    """
    if settled:
        raise SettledRequest("expected an unsettled declare or discharge, got a settled one (4.2, 4.3)")
    if isinstance(state, TransactionalState):
        raise NotAllowed("transactional work on a control link (4.1)")
    plain = read_request(payload)
    if plain is not None:
        return plain
    try:
        sections = Message(payload).body_sections()
    except DecodeError as error:
        raise MalformedRequest(error.description, error.condition) from error
    if len(sections) != 1 or not isinstance(sections[0], AmqpValue):
        raise MalformedRequest(
            f"expected one amqp-value section that holds declare or discharge, got {len(sections)} sections"
        )
    value = sections[0].value
    if isinstance(value, Declare):
        if value.global_id is not None:
            raise NotSupported("global-id needs the capability amqp:distributed-transactions (4.5.2)")
        return value
    if isinstance(value, Discharge):
        return value
    raise NotSupported(f"expected declare or discharge in the amqp-value section, got {shorten(value)}")


def failed_answer(source: object, error: TransactionError) -> Rejected | None:
    """How a failed declare or discharge is told: by `rejected`, unless the control link's source excludes it.

    None: the link is detached with `error.error()` (4.2, 4.3: "MUST detach the link to the coordinator"). So
    it is for NotAllowed and ControlLinkTerminated in any case. A source that says nothing of outcomes takes
    them all: clients that leave them unset wait for an outcome, and never learn of a detach.
    """
    if isinstance(error, (NotAllowed, ControlLinkTerminated)):
        return None
    if not takes_rejected(source):
        return None
    return Rejected(error=error.error())
