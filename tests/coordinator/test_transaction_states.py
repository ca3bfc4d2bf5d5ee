"""The table of a transaction's states (4.2, 4.3): total, and exactly the transitions below."""

from amqp_broker.coordinator import TransactionState
from amqp_broker.coordinator.transaction_states import TRANSACTION_TABLE, TransactionInput
from tests.support.state_tables import moves

# For each state what may happen and where it leads: everything else is forbidden. A change here is a change
# of the protocol.
ALLOWED = {
    "UNDECLARED": "DECLARE > LIVE",
    "LIVE": "ENLIST > LIVE, FAIL > ROLLBACK_ONLY, DISCHARGE > DISCHARGING, DISCHARGE(fail) > ROLLED_BACK, "
    "TIMEOUT > ABORTED, CONTROL_CLOSED > ROLLED_BACK, FORCED > ABORTED",
    "ROLLBACK_ONLY": "ENLIST > ROLLBACK_ONLY, FAIL > ROLLBACK_ONLY, DISCHARGE > ROLLED_BACK, "
    "DISCHARGE(fail) > ROLLED_BACK, TIMEOUT > ABORTED, CONTROL_CLOSED > ROLLED_BACK, FORCED > ABORTED",
    "DISCHARGING": "COMMIT_DONE > COMMITTED, COMMIT_FAILED > ROLLED_BACK, TIMEOUT > DISCHARGING, "
    "CONTROL_CLOSED > DISCHARGING",
    "ABORTED": "DISCHARGE > ROLLED_BACK, DISCHARGE(fail) > ROLLED_BACK, CONTROL_CLOSED > ROLLED_BACK",
    "COMMITTED": "",
    "ROLLED_BACK": "",
}  # fmt: skip


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    assert moves(TRANSACTION_TABLE, TransactionState, TransactionInput) == ALLOWED


def test_only_a_discharge_leads_to_a_commit() -> None:
    """Nothing is committed that was not discharged without fail, and what is over stays so (4.3)."""
    ways = [state for state, found in ALLOWED.items() if "> COMMITTED" in found]
    assert ways == ["DISCHARGING"] and ALLOWED["DISCHARGING"].startswith("COMMIT_DONE > COMMITTED, ")
    entered = [state for state, found in ALLOWED.items() if "> DISCHARGING" in found]
    assert entered == ["LIVE", "DISCHARGING"] and "DISCHARGE > DISCHARGING" in ALLOWED["LIVE"]
    assert ALLOWED["COMMITTED"] == ALLOWED["ROLLED_BACK"] == ""
