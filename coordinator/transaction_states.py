r"""The life of a transaction as one table (4.2, 4.3). It knows nothing of links, messages or stores.

            UNDECLARED
                | DECLARE
               \|/     FAIL
              LIVE --------------> ROLLBACK_ONLY
                |                        |
                +-----------+------------+----------+
      DISCHARGE |           | DISCHARGE  | TIMEOUT, | DISCHARGE(fail),
     (from LIVE)|           | (fails)    | FORCED   | CONTROL_CLOSED
               \|/          |           \|/         |
           DISCHARGING      |         ABORTED       |
   COMMIT_DONE |   |        |            | DISCHARGE, DISCHARGE(fail), CONTROL_CLOSED
               |   | COMMIT_FAILED       |          |
              \|/  +--------+-----------\|/---------+
          COMMITTED                ROLLED_BACK

ROLLBACK_ONLY: something of it cannot be done, so it can't commit (4.4.4.1); its
work is still held, and what is acquired still belongs to it. ABORTED:
the broker rolled it back by itself and the controller does not know yet; only the id and the reason are kept.
DISCHARGING: its commit is in progress, so neither a deadline nor the end of the control link changes anything
any more.
"""

from enum import Enum
from typing import Final


class TransactionState(Enum):
    """Where a transaction stands."""

    __hash__ = object.__hash__  # identity: a member is unique

    UNDECLARED = "UNDECLARED"
    LIVE = "LIVE"
    ROLLBACK_ONLY = "ROLLBACK_ONLY"
    DISCHARGING = "DISCHARGING"
    ABORTED = "ABORTED"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"


class TransactionInput(Enum):
    """What can happen to it."""

    __hash__ = object.__hash__  # identity: a member is unique

    DECLARE = "DECLARE"
    ENLIST = "ENLIST"
    FAIL = "FAIL"
    DISCHARGE = "DISCHARGE"
    DISCHARGE_FAIL = "DISCHARGE(fail)"
    COMMIT_DONE = "COMMIT_DONE"
    COMMIT_FAILED = "COMMIT_FAILED"
    TIMEOUT = "TIMEOUT"
    CONTROL_CLOSED = "CONTROL_CLOSED"
    FORCED = "FORCED"


_S: Final = TransactionState
_I: Final = TransactionInput

_MOVES: Final[dict[TransactionState, dict[TransactionInput, TransactionState]]] = {
    _S.UNDECLARED: {_I.DECLARE: _S.LIVE},
    _S.LIVE: {
        _I.ENLIST: _S.LIVE, _I.FAIL: _S.ROLLBACK_ONLY, _I.DISCHARGE: _S.DISCHARGING,
        _I.DISCHARGE_FAIL: _S.ROLLED_BACK, _I.TIMEOUT: _S.ABORTED, _I.CONTROL_CLOSED: _S.ROLLED_BACK,
        _I.FORCED: _S.ABORTED,
    },
    _S.ROLLBACK_ONLY: {
        _I.ENLIST: _S.ROLLBACK_ONLY, _I.FAIL: _S.ROLLBACK_ONLY, _I.DISCHARGE: _S.ROLLED_BACK,
        _I.DISCHARGE_FAIL: _S.ROLLED_BACK, _I.TIMEOUT: _S.ABORTED, _I.CONTROL_CLOSED: _S.ROLLED_BACK,
        _I.FORCED: _S.ABORTED,
    },
    _S.DISCHARGING: {
        _I.COMMIT_DONE: _S.COMMITTED, _I.COMMIT_FAILED: _S.ROLLED_BACK, _I.TIMEOUT: _S.DISCHARGING,
        _I.CONTROL_CLOSED: _S.DISCHARGING,
    },
    _S.ABORTED: {
        _I.DISCHARGE: _S.ROLLED_BACK, _I.DISCHARGE_FAIL: _S.ROLLED_BACK,
        _I.CONTROL_CLOSED: _S.ROLLED_BACK,
    },
    _S.COMMITTED: {},
    _S.ROLLED_BACK: {},
}  # fmt: skip

# Every pair has its entry; None is forbidden. The test walks them all.
TRANSACTION_TABLE: Final[dict[TransactionState, dict[TransactionInput, TransactionState | None]]] = {
    state: {what: _MOVES[state].get(what) for what in TransactionInput} for state in TransactionState
}
