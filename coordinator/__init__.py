"""Room `coordinator`: the transactions of a connection (part 4), pure: no clock, no randomness, no I/O."""

from amqp_broker.coordinator.effects import DECISIONS, Effect, Given, Kind, decide, given_by
from amqp_broker.coordinator.errors import (
    ControlLinkTerminated,
    MalformedRequest,
    NotAllowed,
    NotSupported,
    TransactionError,
    TransactionLimitExceeded,
    TransactionRollback,
    TransactionTimeout,
    UnknownTransaction,
)
from amqp_broker.coordinator.half_checks import CHECK_OUTCOMES, CheckEffect, CheckGiven, check_given
from amqp_broker.coordinator.half_group import (
    PARK_POLICY,
    ROLLBACK_POLICY,
    Checker,
    HalfGroup,
    HalfSettings,
    OpenHalf,
)
from amqp_broker.coordinator.half_ids import half_id_of, half_id_value, shown_half_id
from amqp_broker.coordinator.half_states import (
    HALF_TABLE,
    HalfAnswer,
    HalfInput,
    HalfState,
    Resolver,
    decide_half,
    is_open,
)
from amqp_broker.coordinator.limits import CONTROL_LINK_CREDIT, TXN_ID_BYTES, TransactionLimits
from amqp_broker.coordinator.order_acknowledgement import (
    FLUSH_PART,
    ORDER_DEBOUNCE_MS,
    ORDER_MAX_DELAY_MS,
    OrderTimer,
)
from amqp_broker.coordinator.requests import (
    CAPABILITIES,
    coordinator_answer,
    decode_request,
    failed_answer,
)
from amqp_broker.coordinator.sequence_table import (
    SEQ_ID_MAX,
    SEQ_NO_MAX,
    Numbering,
    SequenceAnswer,
    StreamPosition,
    accept,
    expected_prev,
)
from amqp_broker.coordinator.transaction import Transaction
from amqp_broker.coordinator.transaction_states import (
    TRANSACTION_TABLE,
    TransactionInput,
    TransactionState,
)
from amqp_broker.coordinator.transaction_table import TransactionTable
from amqp_broker.coordinator.work import Disposed, Ended, Enlisted, Late, Work

__all__ = [
    "CHECK_OUTCOMES",
    "CheckEffect",
    "CheckGiven",
    "check_given",
    "PARK_POLICY",
    "ROLLBACK_POLICY",
    "Checker",
    "HalfGroup",
    "HalfSettings",
    "OpenHalf",
    "half_id_of",
    "half_id_value",
    "shown_half_id",
    "HALF_TABLE",
    "HalfAnswer",
    "HalfInput",
    "HalfState",
    "Resolver",
    "decide_half",
    "is_open",
    "ORDER_DEBOUNCE_MS",
    "ORDER_MAX_DELAY_MS",
    "FLUSH_PART",
    "Numbering",
    "OrderTimer",
    "SEQ_ID_MAX",
    "SEQ_NO_MAX",
    "SequenceAnswer",
    "StreamPosition",
    "accept",
    "expected_prev",
    "CAPABILITIES",
    "CONTROL_LINK_CREDIT",
    "ControlLinkTerminated",
    "DECISIONS",
    "Disposed",
    "Effect",
    "Ended",
    "Enlisted",
    "Given",
    "Kind",
    "Late",
    "MalformedRequest",
    "NotAllowed",
    "NotSupported",
    "TRANSACTION_TABLE",
    "TXN_ID_BYTES",
    "Transaction",
    "TransactionError",
    "TransactionInput",
    "TransactionLimitExceeded",
    "TransactionLimits",
    "TransactionRollback",
    "TransactionState",
    "TransactionTable",
    "TransactionTimeout",
    "UnknownTransaction",
    "Work",
    "coordinator_answer",
    "decide",
    "decode_request",
    "failed_answer",
    "given_by",
]
