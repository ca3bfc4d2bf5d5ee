"""The SASL dialogue as one table (5.3.2). It does not know which side we are; who may send what stands below
it.

    SASL Client       SASL Server
    ================================
                  <-- SASL-MECHANISMS
    SASL-INIT     -->
                  ...
                  <-- SASL-CHALLENGE *
    SASL-RESPONSE -->
                  ...
                  <-- SASL-OUTCOME

    START --MECHANISMS--> OFFERED --INIT--> ANSWER_DUE --OUTCOME(ok)------> DONE
                                             |  /|\\  \\---OUTCOME(failed)--> FAILED
                                   CHALLENGE |   | RESPONSE
                                            \\|/  |
                                          RESPONSE_DUE
"""

from enum import Enum
from typing import Final


class SaslState(Enum):
    """Where the SASL dialogue stands."""

    START = "START"
    OFFERED = "OFFERED"
    ANSWER_DUE = "ANSWER_DUE"
    RESPONSE_DUE = "RESPONSE_DUE"
    DONE = "DONE"
    FAILED = "FAILED"


class SaslInput(Enum):
    """Which frame is sent, by whichever side."""

    MECHANISMS = "sasl-mechanisms"
    INIT = "sasl-init"
    CHALLENGE = "sasl-challenge"
    RESPONSE = "sasl-response"
    OUTCOME_OK = "sasl-outcome(ok)"
    OUTCOME_FAILED = "sasl-outcome(failed)"


_S: Final = SaslState
_I: Final = SaslInput

_MOVES: Final[dict[SaslState, dict[SaslInput, SaslState]]] = {
    _S.START: {_I.MECHANISMS: _S.OFFERED},
    _S.OFFERED: {_I.INIT: _S.ANSWER_DUE},
    _S.ANSWER_DUE: {_I.CHALLENGE: _S.RESPONSE_DUE, _I.OUTCOME_OK: _S.DONE, _I.OUTCOME_FAILED: _S.FAILED},
    _S.RESPONSE_DUE: {_I.RESPONSE: _S.ANSWER_DUE},
    _S.DONE: {},
    _S.FAILED: {},
}  # fmt: skip

# Every pair has its entry; None is forbidden. The test walks them all.
SASL_TABLE: Final[dict[SaslState, dict[SaslInput, SaslState | None]]] = {
    state: {what: _MOVES[state].get(what) for what in SaslInput} for state in SaslState
}

# 5.3.2: the server is the TCP server, and only it announces, challenges and decides.
SENT_BY_SERVER: Final[dict[SaslInput, bool]] = {
    _I.MECHANISMS: True, _I.INIT: False, _I.CHALLENGE: True, _I.RESPONSE: False,
    _I.OUTCOME_OK: True, _I.OUTCOME_FAILED: True,
}  # fmt: skip
