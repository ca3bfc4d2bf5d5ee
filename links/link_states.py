"""The states of a link endpoint as one table (2.6.2 to 2.6.6). It does not know which side we are.

The standard names attached, detached and half attached; its pictures of establishing, refusing, detaching and
closing a link come to this:

                        DETACHED<-------------------+
                           |                        |
                   +-------+-------+                |
          S:ATTACH |               | R:ATTACH       |
                  \\|/             \\|/               |
              ATTACH_SENT     ATTACH_RCVD           |
          R:ATTACH |               | S:ATTACH       |
                   +-------+-------+                |
                          \\|/                       |
                        ATTACHED                    |
                           |                        |
               +-----------+-----------+            |
     S:DETACH  | S:DETACH  |           | R:DETACH   |
      (error)  |           |           |            |
              \\|/         \\|/         \\|/           |
          DISCARDING   DETACH_SENT  DETACH_RCVD     |
      R:DETACH |  R:DETACH |           | S:DETACH   |
               +-----------+-----------+------------+

FRAME is a transfer or a flow on the link's handle. After our detach, frames that were on their way are
dropped until the peer's detach: 2.6.5 would end the session with errant-link, but a peer cannot know of our
detach before it arrives. A pipelined detach may follow an attach that is not answered yet. LOST: the session
is gone.
"""

from enum import Enum
from typing import Final


class LinkState(Enum):
    """Where a link endpoint stands (2.6)."""

    DETACHED = "DETACHED"
    ATTACH_SENT = "ATTACH_SENT"
    ATTACH_RCVD = "ATTACH_RCVD"
    ATTACHED = "ATTACHED"
    DETACH_SENT = "DETACH_SENT"
    DETACH_RCVD = "DETACH_RCVD"
    DISCARDING = "DISCARDING"


class LinkInput(Enum):
    """What is received (R) or sent (S)."""

    R_ATTACH = "R:ATTACH"
    S_ATTACH = "S:ATTACH"
    R_FRAME = "R:FRAME"
    S_FRAME = "S:FRAME"
    R_DETACH = "R:DETACH"
    S_DETACH = "S:DETACH"
    S_DETACH_ERROR = "S:DETACH(error)"
    LOST = "LOST"


_S: Final = LinkState
_I: Final = LinkInput

_MOVES: Final[dict[LinkState, dict[LinkInput, LinkState]]] = {
    _S.DETACHED: {_I.R_ATTACH: _S.ATTACH_RCVD, _I.S_ATTACH: _S.ATTACH_SENT, _I.LOST: _S.DETACHED},
    _S.ATTACH_SENT: {_I.R_ATTACH: _S.ATTACHED, _I.S_FRAME: _S.ATTACH_SENT, _I.LOST: _S.DETACHED},
    _S.ATTACH_RCVD: {_I.S_ATTACH: _S.ATTACHED, _I.LOST: _S.DETACHED},
    _S.ATTACHED: {
        _I.R_FRAME: _S.ATTACHED, _I.S_FRAME: _S.ATTACHED, _I.R_DETACH: _S.DETACH_RCVD,
        _I.S_DETACH: _S.DETACH_SENT, _I.S_DETACH_ERROR: _S.DISCARDING, _I.LOST: _S.DETACHED,
    },
    _S.DETACH_SENT: {_I.R_FRAME: _S.DETACH_SENT, _I.R_DETACH: _S.DETACHED, _I.LOST: _S.DETACHED},
    _S.DETACH_RCVD: {_I.S_DETACH: _S.DETACHED, _I.S_DETACH_ERROR: _S.DETACHED, _I.LOST: _S.DETACHED},
    _S.DISCARDING: {_I.R_FRAME: _S.DISCARDING, _I.R_DETACH: _S.DETACHED, _I.LOST: _S.DETACHED},
}  # fmt: skip

# Every pair has its entry; None is forbidden. The test walks them all.
LINK_TABLE: Final[dict[LinkState, dict[LinkInput, LinkState | None]]] = {
    state: {what: _MOVES[state].get(what) for what in LinkInput} for state in LinkState
}
