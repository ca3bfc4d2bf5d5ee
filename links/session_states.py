"""The states of a session as one table (2.5.5). It does not know which side we are.

                        UNMAPPED<-------------------+
                           |                        |
                   +-------+-------+                |
           S:BEGIN |               | R:BEGIN        |
                   |               |                |
                  \\|/             \\|/               |
               BEGIN_SENT      BEGIN_RCVD           |
                   |               |                |
                   |               |                |
           R:BEGIN |               | S:BEGIN        |
                   +-------+-------+                |
                           |                        |
                          \\|/                       |
                         MAPPED                     |
                           |                        |
             +-------------+-------------+          |
S:END(error) |       S:END |             | R:END    |
             |             |             |          |
            \\|/           \\|/           \\|/         |
         DISCARDING     END_SENT      END_RCVD      |
             |             |             |          |
             |             |             |          |
       R:END |       R:END |             | S:END    |
             +-------------+-------------+          |
                           |                        |
                           +------------------------+

FRAME is attach, flow, transfer, disposition or detach on the session's channel. In END_SENT and DISCARDING
what still arrives is legal and dropped until the peer's end (2.5.4). LOST: the connection is gone.
"""

from enum import Enum
from typing import Final


class SessionState(Enum):
    """Where a session endpoint stands (2.5.5)."""

    UNMAPPED = "UNMAPPED"
    BEGIN_SENT = "BEGIN_SENT"
    BEGIN_RCVD = "BEGIN_RCVD"
    MAPPED = "MAPPED"
    END_SENT = "END_SENT"
    END_RCVD = "END_RCVD"
    DISCARDING = "DISCARDING"


class SessionInput(Enum):
    """What is received (R) or sent (S)."""

    R_BEGIN = "R:BEGIN"
    S_BEGIN = "S:BEGIN"
    R_FRAME = "R:FRAME"
    S_FRAME = "S:FRAME"
    R_END = "R:END"
    S_END = "S:END"
    S_END_ERROR = "S:END(error)"
    LOST = "LOST"


_S: Final = SessionState
_I: Final = SessionInput

_MOVES: Final[dict[SessionState, dict[SessionInput, SessionState]]] = {
    _S.UNMAPPED: {_I.R_BEGIN: _S.BEGIN_RCVD, _I.S_BEGIN: _S.BEGIN_SENT, _I.LOST: _S.UNMAPPED},
    _S.BEGIN_SENT: {_I.R_BEGIN: _S.MAPPED, _I.S_FRAME: _S.BEGIN_SENT, _I.LOST: _S.UNMAPPED},
    _S.BEGIN_RCVD: {_I.S_BEGIN: _S.MAPPED, _I.R_FRAME: _S.BEGIN_RCVD, _I.LOST: _S.UNMAPPED},
    _S.MAPPED: {
        _I.R_FRAME: _S.MAPPED, _I.S_FRAME: _S.MAPPED, _I.R_END: _S.END_RCVD, _I.S_END: _S.END_SENT,
        _I.S_END_ERROR: _S.DISCARDING, _I.LOST: _S.UNMAPPED,
    },
    _S.END_SENT: {_I.R_FRAME: _S.END_SENT, _I.R_END: _S.UNMAPPED, _I.LOST: _S.UNMAPPED},
    _S.END_RCVD: {
        _I.S_FRAME: _S.END_RCVD, _I.S_END: _S.UNMAPPED, _I.S_END_ERROR: _S.UNMAPPED, _I.LOST: _S.UNMAPPED,
    },
    _S.DISCARDING: {_I.R_FRAME: _S.DISCARDING, _I.R_END: _S.UNMAPPED, _I.LOST: _S.UNMAPPED},
}  # fmt: skip

# Every pair has its entry; None is forbidden. The test walks them all.
SESSION_TABLE: Final[dict[SessionState, dict[SessionInput, SessionState | None]]] = {
    state: {what: _MOVES[state].get(what) for what in SessionInput} for state in SessionState
}
