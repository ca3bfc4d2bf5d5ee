"""The tables of states (2.4.6, 2.5.5, 2.6, 5.3.2): total, and exactly the transitions below."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from amqp_broker.links.connection_states import CONNECTION_TABLE, ConnectionInput, ConnectionState
from amqp_broker.links.link_states import LINK_TABLE, LinkInput, LinkState
from amqp_broker.links.sasl_states import SASL_TABLE, SENT_BY_SERVER, SaslInput, SaslState
from amqp_broker.links.session_states import SESSION_TABLE, SessionInput, SessionState
from tests.support.state_tables import moves

TABLES: dict[str, tuple[dict[Any, dict[Any, Any]], type[Enum], type[Enum]]] = {
    "connection": (CONNECTION_TABLE, ConnectionState, ConnectionInput),
    "session": (SESSION_TABLE, SessionState, SessionInput),
    "link": (LINK_TABLE, LinkState, LinkInput),
    "sasl": (SASL_TABLE, SaslState, SaslInput),
}

# For each state what may happen and where it leads: everything else is forbidden. A change here is a change
# of the protocol.
ALLOWED = {
    "connection": {
        "START": "R:HDR > HDR_RCVD, S:HDR > HDR_SENT, LOST > END",
        "HDR_RCVD": "S:HDR > HDR_EXCH, S:HDR[!=R:HDR] > END, LOST > END",
        "HDR_SENT": "R:HDR > HDR_EXCH, R:HDR[!=S:HDR] > END, S:OPEN > OPEN_PIPE, LOST > END",
        "HDR_EXCH": "R:OPEN > OPEN_RCVD, S:OPEN > OPEN_SENT, LOST > END",
        "OPEN_PIPE": "R:HDR > OPEN_SENT, R:HDR[!=S:HDR] > END, S:FRAME > OPEN_PIPE, S:CLOSE > OC_PIPE, "
        "S:CLOSE(error) > OC_PIPE, LOST > END",
        "OC_PIPE": "R:HDR > CLOSE_PIPE, R:HDR[!=S:HDR] > END, LOST > END",
        "OPEN_RCVD": "S:OPEN > OPENED, LOST > END",
        "OPEN_SENT": "R:OPEN > OPENED, S:FRAME > OPEN_SENT, S:CLOSE > CLOSE_PIPE, "
        "S:CLOSE(error) > CLOSE_PIPE, LOST > END",
        "CLOSE_PIPE": "R:OPEN > CLOSE_SENT, LOST > END",
        "OPENED": "R:FRAME > OPENED, S:FRAME > OPENED, R:CLOSE > CLOSE_RCVD, S:CLOSE > CLOSE_SENT, "
        "S:CLOSE(error) > DISCARDING, LOST > END",
        "CLOSE_RCVD": "S:FRAME > CLOSE_RCVD, S:CLOSE > END, S:CLOSE(error) > END, LOST > END",
        "CLOSE_SENT": "R:FRAME > CLOSE_SENT, R:CLOSE > END, LOST > END",
        "DISCARDING": "R:OPEN > DISCARDING, R:FRAME > DISCARDING, R:CLOSE > END, LOST > END",
        "END": "LOST > END",
    },
    "session": {
        "UNMAPPED": "R:BEGIN > BEGIN_RCVD, S:BEGIN > BEGIN_SENT, LOST > UNMAPPED",
        "BEGIN_SENT": "R:BEGIN > MAPPED, S:FRAME > BEGIN_SENT, LOST > UNMAPPED",
        "BEGIN_RCVD": "S:BEGIN > MAPPED, R:FRAME > BEGIN_RCVD, LOST > UNMAPPED",
        "MAPPED": "R:FRAME > MAPPED, S:FRAME > MAPPED, R:END > END_RCVD, S:END > END_SENT, "
        "S:END(error) > DISCARDING, LOST > UNMAPPED",
        "END_SENT": "R:FRAME > END_SENT, R:END > UNMAPPED, LOST > UNMAPPED",
        "END_RCVD": "S:FRAME > END_RCVD, S:END > UNMAPPED, S:END(error) > UNMAPPED, LOST > UNMAPPED",
        "DISCARDING": "R:FRAME > DISCARDING, R:END > UNMAPPED, LOST > UNMAPPED",
    },
    "link": {
        "DETACHED": "R:ATTACH > ATTACH_RCVD, S:ATTACH > ATTACH_SENT, LOST > DETACHED",
        "ATTACH_SENT": "R:ATTACH > ATTACHED, S:FRAME > ATTACH_SENT, LOST > DETACHED",
        "ATTACH_RCVD": "S:ATTACH > ATTACHED, LOST > DETACHED",
        "ATTACHED": "R:FRAME > ATTACHED, S:FRAME > ATTACHED, R:DETACH > DETACH_RCVD, S:DETACH > DETACH_SENT, "
        "S:DETACH(error) > DISCARDING, LOST > DETACHED",
        "DETACH_SENT": "R:FRAME > DETACH_SENT, R:DETACH > DETACHED, LOST > DETACHED",
        "DETACH_RCVD": "S:DETACH > DETACHED, S:DETACH(error) > DETACHED, LOST > DETACHED",
        "DISCARDING": "R:FRAME > DISCARDING, R:DETACH > DETACHED, LOST > DETACHED",
    },
    "sasl": {
        "START": "sasl-mechanisms > OFFERED",
        "OFFERED": "sasl-init > ANSWER_DUE",
        "ANSWER_DUE": "sasl-challenge > RESPONSE_DUE, sasl-outcome(ok) > DONE, sasl-outcome(failed) > FAILED",
        "RESPONSE_DUE": "sasl-response > ANSWER_DUE",
        "DONE": "",
        "FAILED": "",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_exactly_the_allowed_transitions_are_allowed(name: str) -> None:
    """All pairs of state and input are walked, and each has its entry; a pair that becomes allowed or
    forbidden, or leads elsewhere, fails here.
    """
    table, states, inputs = TABLES[name]
    assert moves(table, states, inputs) == ALLOWED[name]


def test_every_state_leads_to_the_end() -> None:
    """A lost transport ends the connection from every state, and nothing leaves the end (2.4.6)."""
    for state in ConnectionState:
        assert CONNECTION_TABLE[state][ConnectionInput.LOST] is ConnectionState.END
    assert set(CONNECTION_TABLE[ConnectionState.END].values()) == {None, ConnectionState.END}


def test_each_frame_of_sasl_has_its_sender() -> None:
    """Only the server announces, challenges and decides (5.3.2)."""
    client = {what for what, server in SENT_BY_SERVER.items() if not server}
    assert client == {SaslInput.INIT, SaslInput.RESPONSE}
    assert set(SENT_BY_SERVER) == set(SaslInput)
