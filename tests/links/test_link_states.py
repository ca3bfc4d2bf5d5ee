"""The table of a link's states (2.6): total, and exactly the transitions below."""

from amqp_broker.links.link_states import LINK_TABLE, LinkInput, LinkState

# state, input, next state: everything else is forbidden. A change here is a change of the protocol.
ALLOWED = {
    ("DETACHED", "R:ATTACH", "ATTACH_RCVD"),
    ("DETACHED", "S:ATTACH", "ATTACH_SENT"),
    ("DETACHED", "LOST", "DETACHED"),
    ("ATTACH_SENT", "R:ATTACH", "ATTACHED"),
    ("ATTACH_SENT", "S:FRAME", "ATTACH_SENT"),
    ("ATTACH_SENT", "LOST", "DETACHED"),
    ("ATTACH_RCVD", "S:ATTACH", "ATTACHED"),
    ("ATTACH_RCVD", "LOST", "DETACHED"),
    ("ATTACHED", "R:FRAME", "ATTACHED"),
    ("ATTACHED", "S:FRAME", "ATTACHED"),
    ("ATTACHED", "R:DETACH", "DETACH_RCVD"),
    ("ATTACHED", "S:DETACH", "DETACH_SENT"),
    ("ATTACHED", "S:DETACH(error)", "DISCARDING"),
    ("ATTACHED", "LOST", "DETACHED"),
    ("DETACH_SENT", "R:FRAME", "DETACH_SENT"),
    ("DETACH_SENT", "R:DETACH", "DETACHED"),
    ("DETACH_SENT", "LOST", "DETACHED"),
    ("DETACH_RCVD", "S:DETACH", "DETACHED"),
    ("DETACH_RCVD", "S:DETACH(error)", "DETACHED"),
    ("DETACH_RCVD", "LOST", "DETACHED"),
    ("DISCARDING", "R:FRAME", "DISCARDING"),
    ("DISCARDING", "R:DETACH", "DETACHED"),
    ("DISCARDING", "LOST", "DETACHED"),
}


def test_the_table_is_total() -> None:
    """Every pair of state and input has its entry."""
    assert set(LINK_TABLE) == set(LinkState)
    assert all(set(row) == set(LinkInput) for row in LINK_TABLE.values())


def test_exactly_the_allowed_transitions_are_allowed() -> None:
    """All pairs are walked; a pair that becomes allowed or forbidden, or leads elsewhere, fails here."""
    found = set()
    for state in LinkState:
        for what in LinkInput:
            following = LINK_TABLE[state][what]
            if following is not None:
                found.add((state.value, what.value, following.value))
    assert found == ALLOWED
