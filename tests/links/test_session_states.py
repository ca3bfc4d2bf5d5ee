"""The table of a session's states (2.5.5): total, and exactly the transitions below."""

from amqp_broker.links.session_states import SESSION_TABLE, SessionInput, SessionState

# state, input, next state: everything else is forbidden. A change here is a change of the protocol.
ALLOWED = {
    ("UNMAPPED", "R:BEGIN", "BEGIN_RCVD"),
    ("UNMAPPED", "S:BEGIN", "BEGIN_SENT"),
    ("UNMAPPED", "LOST", "UNMAPPED"),
    ("BEGIN_SENT", "R:BEGIN", "MAPPED"),
    ("BEGIN_SENT", "S:FRAME", "BEGIN_SENT"),
    ("BEGIN_SENT", "LOST", "UNMAPPED"),
    ("BEGIN_RCVD", "S:BEGIN", "MAPPED"),
    ("BEGIN_RCVD", "R:FRAME", "BEGIN_RCVD"),
    ("BEGIN_RCVD", "LOST", "UNMAPPED"),
    ("MAPPED", "R:FRAME", "MAPPED"),
    ("MAPPED", "S:FRAME", "MAPPED"),
    ("MAPPED", "R:END", "END_RCVD"),
    ("MAPPED", "S:END", "END_SENT"),
    ("MAPPED", "S:END(error)", "DISCARDING"),
    ("MAPPED", "LOST", "UNMAPPED"),
    ("END_SENT", "R:FRAME", "END_SENT"),
    ("END_SENT", "R:END", "UNMAPPED"),
    ("END_SENT", "LOST", "UNMAPPED"),
    ("END_RCVD", "S:FRAME", "END_RCVD"),
    ("END_RCVD", "S:END", "UNMAPPED"),
    ("END_RCVD", "S:END(error)", "UNMAPPED"),
    ("END_RCVD", "LOST", "UNMAPPED"),
    ("DISCARDING", "R:FRAME", "DISCARDING"),
    ("DISCARDING", "R:END", "UNMAPPED"),
    ("DISCARDING", "LOST", "UNMAPPED"),
}


def test_the_table_is_total() -> None:
    """Every pair of state and input has its entry."""
    assert set(SESSION_TABLE) == set(SessionState)
    assert all(set(row) == set(SessionInput) for row in SESSION_TABLE.values())


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    found = set()
    for state in SessionState:
        for what in SessionInput:
            following = SESSION_TABLE[state][what]
            if following is not None:
                found.add((state.value, what.value, following.value))
    assert found == ALLOWED
