"""The table of the SASL dialogue (5.3.2): total, and exactly the transitions below."""

from amqp_broker.links.sasl_states import SASL_TABLE, SENT_BY_SERVER, SaslInput, SaslState

# state, input, next state: everything else is forbidden. A change here is a change of the protocol.
ALLOWED = {
    ("START", "sasl-mechanisms", "OFFERED"),
    ("OFFERED", "sasl-init", "ANSWER_DUE"),
    ("ANSWER_DUE", "sasl-challenge", "RESPONSE_DUE"),
    ("ANSWER_DUE", "sasl-outcome(ok)", "DONE"),
    ("ANSWER_DUE", "sasl-outcome(failed)", "FAILED"),
    ("RESPONSE_DUE", "sasl-response", "ANSWER_DUE"),
}


def test_the_table_is_total() -> None:
    """Every pair of state and input has its entry."""
    assert set(SASL_TABLE) == set(SaslState)
    assert all(set(row) == set(SaslInput) for row in SASL_TABLE.values())


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    found = set()
    for state in SaslState:
        for what in SaslInput:
            following = SASL_TABLE[state][what]
            if following is not None:
                found.add((state.value, what.value, following.value))
    assert found == ALLOWED


def test_each_frame_has_its_sender() -> None:
    """Only the server announces, challenges and decides (5.3.2)."""
    assert {what for what, server in SENT_BY_SERVER.items() if not server} == {
        SaslInput.INIT,
        SaslInput.RESPONSE,
    }
    assert set(SENT_BY_SERVER) == set(SaslInput)
