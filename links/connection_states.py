"""The states of a connection as one table (2.4.6, 2.4.7). It does not know which side we are.

             R:HDR @=======@ S:HDR             R:HDR[!=S:HDR]
          +--------| START |-----+    +--------------------------------+
          |        @=======@     |    |                                |
         \\|/                    \\|/   |                                |
     @==========@             @==========@ S:OPEN                      |
+----| HDR_RCVD |             | HDR_SENT |------+                      |
|    @==========@             @==========@      |      R:HDR[!=S:HDR]  |
|   S:HDR |                      | R:HDR        |    +-----------------+
|         +--------+      +------+              |    |                 |
|                 \\|/    \\|/                   \\|/   |                 |
|                @==========@               +-----------+ S:CLOSE      |
|                | HDR_EXCH |               | OPEN_PIPE |----+         |
|                @==========@               +-----------+    |         |
|           R:OPEN |      | S:OPEN              | R:HDR      |         |
|         +--------+      +------+      +-------+            |         |
|        \\|/                    \\|/    \\|/                  \\|/        |
|   @===========@             @===========@ S:CLOSE       +---------+  |
|   | OPEN_RCVD |             | OPEN_SENT |-----+         | OC_PIPE |--+
|   @===========@             @===========@     |         +---------+  |
|  S:OPEN |                      | R:OPEN      \\|/           | R:HDR   |
|         |       @========@     |          +------------+   |         |
|         +------>| OPENED |<----+          | CLOSE_PIPE |<--+         |
|                 @========@                +------------+             |
|           R:CLOSE |    | S:CLOSE              | R:OPEN               |
|         +---------+    +-------+              |                      |
|        \\|/                    \\|/             |                      |
|   @============@          @=============@     |                      |
|   | CLOSE_RCVD |          | CLOSE_SENT* |<----+                      |
|   @============@          @=============@                            |
| S:CLOSE |                      | R:CLOSE                             |
|         |         @=====@      |                                     |
|         +-------->| END |<-----+                                     |
|                   @=====@                                            |
|                     /|\\                                              |
|    S:HDR[!=R:HDR]    |                R:HDR[!=S:HDR]                 |
+----------------------+-----------------------------------------------+

                     * Also could be DISCARDING if an error condition
                       triggered the CLOSE

S:/R:FRAME below is any frame but open and close, and an empty frame. What the picture does not show and its
table of legal sends and receives forbids is forbidden here; what is sent after `close` was sent by the peer
to us in vain (CLOSE_SENT, DISCARDING) is legal and dropped. A lost transport leads to END from everywhere.
"""

from enum import Enum
from typing import Final


class ConnectionState(Enum):
    """Where a connection endpoint stands (2.4.6)."""

    START = "START"
    HDR_RCVD = "HDR_RCVD"
    HDR_SENT = "HDR_SENT"
    HDR_EXCH = "HDR_EXCH"
    OPEN_PIPE = "OPEN_PIPE"
    OC_PIPE = "OC_PIPE"
    OPEN_RCVD = "OPEN_RCVD"
    OPEN_SENT = "OPEN_SENT"
    CLOSE_PIPE = "CLOSE_PIPE"
    OPENED = "OPENED"
    CLOSE_RCVD = "CLOSE_RCVD"
    CLOSE_SENT = "CLOSE_SENT"
    DISCARDING = "DISCARDING"
    END = "END"


class ConnectionInput(Enum):
    """What is received (R) or sent (S)."""

    R_HDR = "R:HDR"
    S_HDR = "S:HDR"
    R_OTHER_HDR = "R:HDR[!=S:HDR]"
    S_OTHER_HDR = "S:HDR[!=R:HDR]"
    R_OPEN = "R:OPEN"
    S_OPEN = "S:OPEN"
    R_FRAME = "R:FRAME"
    S_FRAME = "S:FRAME"
    R_CLOSE = "R:CLOSE"
    S_CLOSE = "S:CLOSE"
    S_CLOSE_ERROR = "S:CLOSE(error)"
    LOST = "LOST"


_S: Final = ConnectionState
_I: Final = ConnectionInput

_MOVES: Final[dict[ConnectionState, dict[ConnectionInput, ConnectionState]]] = {
    _S.START: {_I.R_HDR: _S.HDR_RCVD, _I.S_HDR: _S.HDR_SENT, _I.LOST: _S.END},
    _S.HDR_RCVD: {_I.S_HDR: _S.HDR_EXCH, _I.S_OTHER_HDR: _S.END, _I.LOST: _S.END},
    _S.HDR_SENT: {_I.R_HDR: _S.HDR_EXCH, _I.R_OTHER_HDR: _S.END, _I.S_OPEN: _S.OPEN_PIPE, _I.LOST: _S.END},
    _S.HDR_EXCH: {_I.R_OPEN: _S.OPEN_RCVD, _I.S_OPEN: _S.OPEN_SENT, _I.LOST: _S.END},
    _S.OPEN_PIPE: {
        _I.R_HDR: _S.OPEN_SENT, _I.R_OTHER_HDR: _S.END, _I.S_FRAME: _S.OPEN_PIPE, _I.S_CLOSE: _S.OC_PIPE,
        _I.S_CLOSE_ERROR: _S.OC_PIPE, _I.LOST: _S.END,
    },
    _S.OC_PIPE: {_I.R_HDR: _S.CLOSE_PIPE, _I.R_OTHER_HDR: _S.END, _I.LOST: _S.END},
    # Legal receives of OPEN_RCVD are "*", but we answer an open before we read on, so nothing comes here.
    _S.OPEN_RCVD: {_I.S_OPEN: _S.OPENED, _I.LOST: _S.END},
    _S.OPEN_SENT: {
        _I.R_OPEN: _S.OPENED, _I.S_FRAME: _S.OPEN_SENT, _I.S_CLOSE: _S.CLOSE_PIPE,
        _I.S_CLOSE_ERROR: _S.CLOSE_PIPE, _I.LOST: _S.END,
    },
    _S.CLOSE_PIPE: {_I.R_OPEN: _S.CLOSE_SENT, _I.LOST: _S.END},
    _S.OPENED: {
        _I.R_FRAME: _S.OPENED, _I.S_FRAME: _S.OPENED, _I.R_CLOSE: _S.CLOSE_RCVD,
        _I.S_CLOSE: _S.CLOSE_SENT, _I.S_CLOSE_ERROR: _S.DISCARDING, _I.LOST: _S.END,
    },
    _S.CLOSE_RCVD: {_I.S_FRAME: _S.CLOSE_RCVD, _I.S_CLOSE: _S.END, _I.S_CLOSE_ERROR: _S.END, _I.LOST: _S.END},
    _S.CLOSE_SENT: {_I.R_FRAME: _S.CLOSE_SENT, _I.R_CLOSE: _S.END, _I.LOST: _S.END},
    _S.DISCARDING: {_I.R_OPEN: _S.DISCARDING, _I.R_FRAME: _S.DISCARDING, _I.R_CLOSE: _S.END, _I.LOST: _S.END},
    _S.END: {_I.LOST: _S.END},
}  # fmt: skip

# Every pair has its entry; None is forbidden. The test walks them all.
CONNECTION_TABLE: Final[dict[ConnectionState, dict[ConnectionInput, ConnectionState | None]]] = {
    state: {what: _MOVES[state].get(what) for what in ConnectionInput} for state in ConnectionState
}
