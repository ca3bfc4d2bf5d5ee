"""Room `coordinator`: the transactions of a connection (part 4) and half messages, pure: no clock, no
randomness, no I/O.

Numbered streams and sets of half messages have doors of their own: `sequences` and `half_sets`.
"""

from amqp_broker.coordinator.effects import Effect
from amqp_broker.coordinator.errors import ControlLinkTerminated, TransactionError, TransactionRollback
from amqp_broker.coordinator.half_checks import CheckEffect, CheckGiven, check_given
from amqp_broker.coordinator.half_group import (
    PARK_POLICY,
    ROLLBACK_POLICY,
    Asked,
    Checker,
    HalfGroup,
    HalfSettings,
    OpenHalf,
)
from amqp_broker.coordinator.half_ids import half_id_of, half_id_value, shown_half_id
from amqp_broker.coordinator.half_states import (
    HalfAnswer,
    HalfInput,
    HalfState,
    Resolver,
    decide_half,
    is_open,
)
from amqp_broker.coordinator.requests import coordinator_answer, decode_request, failed_answer
from amqp_broker.coordinator.transaction import Disposed, Ended, Transaction, Work
from amqp_broker.coordinator.transaction_states import TransactionState
from amqp_broker.coordinator.transaction_table import (
    CONTROL_LINK_CREDIT,
    TXN_ID_BYTES,
    TransactionLimits,
    TransactionTable,
)

__all__ = [
    "Asked", "CONTROL_LINK_CREDIT", "CheckEffect", "CheckGiven", "Checker", "ControlLinkTerminated",
    "Disposed", "Effect", "Ended", "HalfAnswer", "HalfGroup", "HalfInput", "HalfSettings", "HalfState",
    "OpenHalf", "PARK_POLICY", "ROLLBACK_POLICY", "Resolver", "TXN_ID_BYTES", "Transaction",
    "TransactionError", "TransactionLimits", "TransactionRollback", "TransactionState",
    "TransactionTable", "Work", "check_given", "coordinator_answer", "decide_half", "decode_request",
    "failed_answer", "half_id_of", "half_id_value", "is_open", "shown_half_id",
]  # fmt: skip
