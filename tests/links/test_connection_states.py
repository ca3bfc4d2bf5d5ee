"""The table of a connection's states (2.4.6): total, and exactly the transitions below."""

from amqp_broker.links.connection_states import CONNECTION_TABLE, ConnectionInput, ConnectionState

# state, input, next state: everything else is forbidden. A change here is a change of the protocol.
ALLOWED = {
    ("START", "R:HDR", "HDR_RCVD"),
    ("START", "S:HDR", "HDR_SENT"),
    ("START", "LOST", "END"),
    ("HDR_RCVD", "S:HDR", "HDR_EXCH"),
    ("HDR_RCVD", "S:HDR[!=R:HDR]", "END"),
    ("HDR_RCVD", "LOST", "END"),
    ("HDR_SENT", "R:HDR", "HDR_EXCH"),
    ("HDR_SENT", "R:HDR[!=S:HDR]", "END"),
    ("HDR_SENT", "S:OPEN", "OPEN_PIPE"),
    ("HDR_SENT", "LOST", "END"),
    ("HDR_EXCH", "R:OPEN", "OPEN_RCVD"),
    ("HDR_EXCH", "S:OPEN", "OPEN_SENT"),
    ("HDR_EXCH", "LOST", "END"),
    ("OPEN_PIPE", "R:HDR", "OPEN_SENT"),
    ("OPEN_PIPE", "R:HDR[!=S:HDR]", "END"),
    ("OPEN_PIPE", "S:FRAME", "OPEN_PIPE"),
    ("OPEN_PIPE", "S:CLOSE", "OC_PIPE"),
    ("OPEN_PIPE", "S:CLOSE(error)", "OC_PIPE"),
    ("OPEN_PIPE", "LOST", "END"),
    ("OC_PIPE", "R:HDR", "CLOSE_PIPE"),
    ("OC_PIPE", "R:HDR[!=S:HDR]", "END"),
    ("OC_PIPE", "LOST", "END"),
    ("OPEN_RCVD", "S:OPEN", "OPENED"),
    ("OPEN_RCVD", "LOST", "END"),
    ("OPEN_SENT", "R:OPEN", "OPENED"),
    ("OPEN_SENT", "S:FRAME", "OPEN_SENT"),
    ("OPEN_SENT", "S:CLOSE", "CLOSE_PIPE"),
    ("OPEN_SENT", "S:CLOSE(error)", "CLOSE_PIPE"),
    ("OPEN_SENT", "LOST", "END"),
    ("CLOSE_PIPE", "R:OPEN", "CLOSE_SENT"),
    ("CLOSE_PIPE", "LOST", "END"),
    ("OPENED", "R:FRAME", "OPENED"),
    ("OPENED", "S:FRAME", "OPENED"),
    ("OPENED", "R:CLOSE", "CLOSE_RCVD"),
    ("OPENED", "S:CLOSE", "CLOSE_SENT"),
    ("OPENED", "S:CLOSE(error)", "DISCARDING"),
    ("OPENED", "LOST", "END"),
    ("CLOSE_RCVD", "S:FRAME", "CLOSE_RCVD"),
    ("CLOSE_RCVD", "S:CLOSE", "END"),
    ("CLOSE_RCVD", "S:CLOSE(error)", "END"),
    ("CLOSE_RCVD", "LOST", "END"),
    ("CLOSE_SENT", "R:FRAME", "CLOSE_SENT"),
    ("CLOSE_SENT", "R:CLOSE", "END"),
    ("CLOSE_SENT", "LOST", "END"),
    ("DISCARDING", "R:OPEN", "DISCARDING"),
    ("DISCARDING", "R:FRAME", "DISCARDING"),
    ("DISCARDING", "R:CLOSE", "END"),
    ("DISCARDING", "LOST", "END"),
    ("END", "LOST", "END"),
}


def test_the_table_is_total() -> None:
    """Every pair of state and input has its entry."""
    assert set(CONNECTION_TABLE) == set(ConnectionState)
    assert all(set(row) == set(ConnectionInput) for row in CONNECTION_TABLE.values())


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    found = set()
    for state in ConnectionState:
        for what in ConnectionInput:
            following = CONNECTION_TABLE[state][what]
            if following is not None:
                found.add((state.value, what.value, following.value))
    assert found == ALLOWED


def test_every_state_leads_to_the_end() -> None:
    """A lost transport ends the connection from every state, and nothing leaves the end (2.4.6)."""
    for state in ConnectionState:
        assert CONNECTION_TABLE[state][ConnectionInput.LOST] is ConnectionState.END
    assert set(CONNECTION_TABLE[ConnectionState.END].values()) == {
        None,
        ConnectionState.END,
    }
