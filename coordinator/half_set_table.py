r"""The life of a set of half messages as tables (`pipeline`: sink).

          attach        seal, with its count and checksum      its epoch is committed with it
    None ---------> OPEN ------------------------------> SEALED ------------------------> COMMITTED
      /|\            |                                     |
       +-------------+-------------------------------------+
          voided: by its producer, by the commit of its epoch or a later one without it, by its age

A set that was voided leaves no trace: it is harmless, since its producer does its work again in another set.
Whether an epoch takes anything at all is decided before what becomes of a set in it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class SetState(Enum):
    """Where a set stands; the values are what the store and the wire say."""

    OPEN = "open"
    SEALED = "sealed"
    COMMITTED = "committed"


class SetInput(Enum):
    """What can happen to one."""

    STAGE = "a link to stage messages in it"
    SEAL_SAME = "sealed with the count and checksum that are there"
    SEAL_OTHER = "sealed with others"
    WIN_SAME = "named by the commit of its epoch with the count and checksum that are there"
    WIN_OTHER = "named so with others"
    LOSE = "not named by the commit of its epoch or of a later one"
    VOID = "voided by its producer, a check, an administrator or its age"


class SetAnswer(Enum):
    """What the asker is told; the values of the refusals are the wire's conditions."""

    DONE = "done"
    REPEAT = "repeat"
    """It was so already: accepted, and nothing changes."""
    MISMATCH = "half:mismatch"
    UNKNOWN = "half:unknown-set"
    UNSEALED = "half:unsealed"
    SEALED = "half:sealed"
    DECIDED = "half:decided"
    STALE = "half:stale-epoch"
    CONFLICT = "half:conflict"


class EpochState(Enum):
    """Where an epoch of a producer stands."""

    AHEAD = "above the latest decided one"
    DECIDED = "decided"
    PASSED = "without a decision, below the latest decided one"


class EpochInput(Enum):
    """What is asked of one."""

    STAGE = "a link to stage messages in a set of it"
    SEAL = "a set of it is sealed"
    COMMIT = "it is committed"


_S: Final = SetState
_I: Final = SetInput
_A: Final = SetAnswer
_Row = dict[SetInput, tuple[SetAnswer, SetState | None]]

_VOIDED: Final[_Row] = {_I.LOSE: (_A.DONE, None), _I.VOID: (_A.DONE, None)}

# State found (None: never seen, or voided), input: (answer, state after).
SET_TABLE: Final[dict[SetState | None, _Row]] = {
    None: {
        _I.STAGE: (_A.DONE, _S.OPEN),
        _I.SEAL_SAME: (_A.UNKNOWN, None),
        _I.SEAL_OTHER: (_A.UNKNOWN, None),
        _I.WIN_SAME: (_A.UNKNOWN, None),
        _I.WIN_OTHER: (_A.UNKNOWN, None),
        _I.LOSE: (_A.REPEAT, None),
        _I.VOID: (_A.REPEAT, None),
    },
    _S.OPEN: {
        _I.STAGE: (_A.REPEAT, _S.OPEN),
        _I.SEAL_SAME: (_A.DONE, _S.SEALED),
        _I.SEAL_OTHER: (_A.MISMATCH, _S.OPEN),
        _I.WIN_SAME: (_A.UNSEALED, _S.OPEN),
        _I.WIN_OTHER: (_A.UNSEALED, _S.OPEN),
        **_VOIDED,
    },
    _S.SEALED: {
        _I.STAGE: (_A.SEALED, _S.SEALED),
        _I.SEAL_SAME: (_A.REPEAT, _S.SEALED),
        _I.SEAL_OTHER: (_A.MISMATCH, _S.SEALED),
        _I.WIN_SAME: (_A.DONE, _S.COMMITTED),
        _I.WIN_OTHER: (_A.MISMATCH, _S.SEALED),
        **_VOIDED,
    },
    _S.COMMITTED: {
        _I.STAGE: (_A.DECIDED, _S.COMMITTED),
        _I.SEAL_SAME: (_A.DECIDED, _S.COMMITTED),
        _I.SEAL_OTHER: (_A.DECIDED, _S.COMMITTED),
        _I.WIN_SAME: (_A.DECIDED, _S.COMMITTED),
        _I.WIN_OTHER: (_A.DECIDED, _S.COMMITTED),
        _I.LOSE: (_A.REPEAT, _S.COMMITTED),
        _I.VOID: (_A.CONFLICT, _S.COMMITTED),
    },
}

# DONE goes on to the table of sets.
EPOCH_TABLE: Final[dict[EpochState, dict[EpochInput, SetAnswer]]] = {
    EpochState.AHEAD: {
        EpochInput.STAGE: _A.DONE,
        EpochInput.SEAL: _A.DONE,
        EpochInput.COMMIT: _A.DONE,
    },
    EpochState.DECIDED: {
        EpochInput.STAGE: _A.DECIDED,
        EpochInput.SEAL: _A.DECIDED,
        EpochInput.COMMIT: _A.REPEAT,  # whatever it names: what was decided stands
    },
    EpochState.PASSED: {
        EpochInput.STAGE: _A.STALE,
        EpochInput.SEAL: _A.STALE,
        EpochInput.COMMIT: _A.STALE,
    },
}


def epoch_state(epoch: int, decided: bool, latest: int | None) -> EpochState:
    """Where an epoch stands, if there is a decision of it, and the latest decided one is known (None: none
    is).
    """
    if decided:
        return EpochState.DECIDED
    return EpochState.AHEAD if latest is None or epoch > latest else EpochState.PASSED


def decide_epoch(state: EpochState, what: EpochInput) -> SetAnswer:
    """The row of the table."""
    return EPOCH_TABLE[state][what]


def decide_set(found: SetState | None, what: SetInput) -> tuple[SetAnswer, SetState | None]:
    """The row of the table."""
    return SET_TABLE[found][what]
