"""The table of a transaction's states (4.2, 4.3): total, and exactly the transitions below."""

from amqp_broker.coordinator import TransactionState
from amqp_broker.coordinator.transaction_states import TRANSACTION_TABLE, TransactionInput

# state, input, next state: everything else is forbidden. A change here is a change of the protocol.
ALLOWED = {
    ("UNDECLARED", "DECLARE", "LIVE"),
    ("LIVE", "ENLIST", "LIVE"),
    ("LIVE", "FAIL", "ROLLBACK_ONLY"),
    ("LIVE", "DISCHARGE", "DISCHARGING"),
    ("LIVE", "DISCHARGE(fail)", "ROLLED_BACK"),
    ("LIVE", "TIMEOUT", "ABORTED"),
    ("LIVE", "CONTROL_CLOSED", "ROLLED_BACK"),
    ("LIVE", "FORCED", "ABORTED"),
    ("ROLLBACK_ONLY", "ENLIST", "ROLLBACK_ONLY"),
    ("ROLLBACK_ONLY", "FAIL", "ROLLBACK_ONLY"),
    ("ROLLBACK_ONLY", "DISCHARGE", "ROLLED_BACK"),
    ("ROLLBACK_ONLY", "DISCHARGE(fail)", "ROLLED_BACK"),
    ("ROLLBACK_ONLY", "TIMEOUT", "ABORTED"),
    ("ROLLBACK_ONLY", "CONTROL_CLOSED", "ROLLED_BACK"),
    ("ROLLBACK_ONLY", "FORCED", "ABORTED"),
    ("DISCHARGING", "COMMIT_DONE", "COMMITTED"),
    ("DISCHARGING", "COMMIT_FAILED", "ROLLED_BACK"),
    ("DISCHARGING", "TIMEOUT", "DISCHARGING"),
    ("DISCHARGING", "CONTROL_CLOSED", "DISCHARGING"),
    ("ABORTED", "DISCHARGE", "ROLLED_BACK"),
    ("ABORTED", "DISCHARGE(fail)", "ROLLED_BACK"),
    ("ABORTED", "CONTROL_CLOSED", "ROLLED_BACK"),
}


def test_the_table_is_total() -> None:
    """Every pair of state and input has its entry."""
    assert set(TRANSACTION_TABLE) == set(TransactionState)
    assert all(set(row) == set(TransactionInput) for row in TRANSACTION_TABLE.values())


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    found = set()
    for state in TransactionState:
        for what in TransactionInput:
            following = TRANSACTION_TABLE[state][what]
            if following is not None:
                found.add((state.value, what.value, following.value))
    assert found == ALLOWED


def test_only_a_discharge_leads_to_a_commit() -> None:
    """Nothing is committed that was not discharged without fail, and what is over stays so (4.3)."""
    ways = {(state, what) for state, what, following in ALLOWED if following == "COMMITTED"}
    assert ways == {("DISCHARGING", "COMMIT_DONE")}
    assert {(state, what) for state, what, following in ALLOWED if following == "DISCHARGING"} == {
        ("LIVE", "DISCHARGE"),
        ("DISCHARGING", "TIMEOUT"),
        ("DISCHARGING", "CONTROL_CLOSED"),
    }
    assert not any(state in ("COMMITTED", "ROLLED_BACK") for state, _, _ in ALLOWED)
