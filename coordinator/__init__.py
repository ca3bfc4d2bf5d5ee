"""Room `coordinator`: the transactions of a connection (part 4), pure: no clock, no randomness, no I/O."""

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
from amqp_broker.coordinator.half_set_table import (
    EpochInput,
    EpochState,
    SetAnswer,
    SetInput,
    SetState,
    decide_epoch,
    decide_set,
    epoch_state,
)
from amqp_broker.coordinator.half_sets import (
    CHECKSUM_MODULUS,
    ELSEWHERE,
    EPOCH_MAX,
    NEVER_MS,
    EpochVerdict,
    OpenSet,
    ProducerSets,
    SetPart,
    StagedSet,
    Winner,
    judge_winners,
    set_key,
)
from amqp_broker.coordinator.half_states import (
    HalfAnswer,
    HalfInput,
    HalfState,
    Resolver,
    decide_half,
    is_open,
)
from amqp_broker.coordinator.requests import coordinator_answer, decode_request, failed_answer
from amqp_broker.coordinator.sequences import (
    FLUSH_PART,
    ORDER_DEBOUNCE_MS,
    ORDER_MAX_DELAY_MS,
    SEQ_ID_MAX,
    SEQ_NO_MAX,
    Numbering,
    OrderTimer,
    SequenceAnswer,
    StreamPosition,
    accept,
    expected_prev,
)
from amqp_broker.coordinator.transaction import Transaction
from amqp_broker.coordinator.transaction_states import TransactionState
from amqp_broker.coordinator.transaction_table import (
    CONTROL_LINK_CREDIT,
    TXN_ID_BYTES,
    TransactionLimits,
    TransactionTable,
)
from amqp_broker.coordinator.work import Disposed, Ended, Work

__all__ = [
    "Asked", "CHECKSUM_MODULUS", "CONTROL_LINK_CREDIT", "CheckEffect", "CheckGiven", "Checker",
    "ControlLinkTerminated", "Disposed", "ELSEWHERE", "EPOCH_MAX", "Effect", "Ended", "EpochInput",
    "EpochState", "EpochVerdict", "FLUSH_PART", "HalfAnswer", "HalfGroup", "HalfInput", "HalfSettings",
    "HalfState", "NEVER_MS", "Numbering", "ORDER_DEBOUNCE_MS", "ORDER_MAX_DELAY_MS", "OpenHalf", "OpenSet",
    "OrderTimer", "PARK_POLICY", "ProducerSets", "ROLLBACK_POLICY", "Resolver", "SEQ_ID_MAX", "SEQ_NO_MAX",
    "SequenceAnswer", "SetAnswer", "SetInput", "SetPart", "SetState", "StagedSet", "StreamPosition",
    "TXN_ID_BYTES", "Transaction", "TransactionError", "TransactionLimits", "TransactionRollback",
    "TransactionState", "TransactionTable", "Winner", "Work", "accept", "check_given", "coordinator_answer",
    "decide_epoch", "decide_half", "decide_set", "decode_request", "epoch_state", "expected_prev",
    "failed_answer", "half_id_of", "half_id_value", "is_open", "judge_winners",
    "set_key", "shown_half_id",
]  # fmt: skip
