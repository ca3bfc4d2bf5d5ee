r"""The life of a set of half messages as tables (`pipeline`: sink).

          attach        seal, with its count and checksum      its epoch is committed with it
    None ---------> OPEN ------------------------------> SEALED ------------------------> COMMITTED
      /|\            |                                     |                                 /|\
       +-------------+-------------------------------------+                                  |
       |  voided: by its producer, by the commit of its epoch or a later one without it,      |
       |  by its age                                                                          |
       |             seal, with a coordinator: which decides          coordinator decided with it |
       |           OPEN ------------------------------> PREPARED -----------------------------+
       +-------------------------------------------------+
          voided: by its coordinator's vote only (or by force)

At the coordinator the sets of other brokers are SEALED, and VOIDED once it voted that they never win. That
one leaves a trace until its epoch is decided or its time is over, so that a late message brings nothing
back. Any other set that was voided leaves none: it is harmless, since its producer does its work again in
another set. Whether an epoch takes anything at all is decided before what becomes of a set in it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class SetState(Enum):
    """Where a set stands; the values are what the store and the wire say."""

    OPEN = "open"
    SEALED = "sealed"
    PREPARED = "prepared"
    VOIDED = "voided"
    COMMITTED = "committed"


class SetInput(Enum):
    """What can happen to a set."""

    STAGE = "a link to stage messages in it"
    SEAL_SAME = "sealed with the count and checksum that are there"
    SEAL_OTHER = "sealed with others, or its messages are elsewhere than is said"
    PREPARE = "sealed with what is there for the coordinator that it has or had none"
    ENLIST = "sealed with the store that has its messages, as it is known or unknown yet"
    WIN_SAME = "named by the commit of its epoch with the count and checksum that are there"
    WIN_OTHER = "named so with others"
    APPLY_SAME = "named so, and its coordinator decided it"
    LOSE = "not named by the commit of its epoch or of a later one"
    LOSE_AT_COORDINATOR = "not named by the commit of its epoch, and its coordinator decided it"
    VOID = "voided by its producer, a check or an administrator"
    AGE = "its maximum age"
    VOID_AT_COORDINATOR = "voided after its coordinator voted, or by an administrator by force"
    VOTE = "it is never to win: its coordinator votes"


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
    PREPARED = "half:prepared"
    UNDECIDED = "half:undecided"
    VOIDED = "half:voided"


class EpochState(Enum):
    """Where an epoch of a producer stands."""

    AHEAD = "above the latest decided one"
    DECIDED = "decided"
    PASSED = "without a decision, below the latest decided one"


class EpochInput(Enum):
    """What can be asked of an epoch."""

    STAGE = "a link to stage messages in a set of it"
    SEAL = "a set of it is sealed"
    COMMIT = "it is committed"


_S: Final = SetState
_I: Final = SetInput
_A: Final = SetAnswer
_Row = dict[SetInput, tuple[SetAnswer, SetState | None]]

_GONE: Final[_Row] = {
    _I.LOSE: (_A.DONE, None),
    _I.LOSE_AT_COORDINATOR: (_A.DONE, None),
    _I.VOID: (_A.DONE, None),
    _I.AGE: (_A.DONE, None),
    _I.VOID_AT_COORDINATOR: (_A.DONE, None),
}

# State found (None: never seen, or voided), input: (answer, state after).
SET_TABLE: Final[dict[SetState | None, _Row]] = {
    None: {
        _I.STAGE: (_A.DONE, _S.OPEN),
        _I.SEAL_SAME: (_A.UNKNOWN, None),
        _I.SEAL_OTHER: (_A.UNKNOWN, None),
        _I.PREPARE: (_A.UNKNOWN, None),
        _I.ENLIST: (_A.DONE, _S.SEALED),
        _I.WIN_SAME: (_A.UNKNOWN, None),
        _I.WIN_OTHER: (_A.UNKNOWN, None),
        _I.APPLY_SAME: (_A.UNKNOWN, None),
        _I.LOSE: (_A.REPEAT, None),
        _I.LOSE_AT_COORDINATOR: (_A.REPEAT, None),
        _I.VOID: (_A.REPEAT, None),
        _I.AGE: (_A.REPEAT, None),
        _I.VOID_AT_COORDINATOR: (_A.REPEAT, None),
        _I.VOTE: (_A.DONE, _S.VOIDED),
    },
    _S.OPEN: {
        _I.STAGE: (_A.REPEAT, _S.OPEN),
        _I.SEAL_SAME: (_A.DONE, _S.SEALED),
        _I.SEAL_OTHER: (_A.MISMATCH, _S.OPEN),
        _I.PREPARE: (_A.DONE, _S.PREPARED),
        _I.ENLIST: (_A.MISMATCH, _S.OPEN),
        _I.WIN_SAME: (_A.UNSEALED, _S.OPEN),
        _I.WIN_OTHER: (_A.UNSEALED, _S.OPEN),
        _I.APPLY_SAME: (_A.UNSEALED, _S.OPEN),
        **_GONE,
        _I.VOTE: (_A.MISMATCH, _S.OPEN),  # its messages are here: nobody else has to be told by a vote
    },
    _S.SEALED: {
        _I.STAGE: (_A.SEALED, _S.SEALED),
        _I.SEAL_SAME: (_A.REPEAT, _S.SEALED),
        _I.SEAL_OTHER: (_A.MISMATCH, _S.SEALED),
        _I.PREPARE: (_A.SEALED, _S.SEALED),
        _I.ENLIST: (_A.REPEAT, _S.SEALED),
        _I.WIN_SAME: (_A.DONE, _S.COMMITTED),
        _I.WIN_OTHER: (_A.MISMATCH, _S.SEALED),
        _I.APPLY_SAME: (_A.UNSEALED, _S.SEALED),  # it was sealed without a coordinator
        **_GONE,
        _I.VOTE: (_A.DONE, _S.VOIDED),
    },
    _S.PREPARED: {
        _I.STAGE: (_A.SEALED, _S.PREPARED),
        _I.SEAL_SAME: (_A.PREPARED, _S.PREPARED),
        _I.SEAL_OTHER: (_A.MISMATCH, _S.PREPARED),
        _I.PREPARE: (_A.REPEAT, _S.PREPARED),
        _I.ENLIST: (_A.MISMATCH, _S.PREPARED),
        _I.WIN_SAME: (_A.PREPARED, _S.PREPARED),
        _I.WIN_OTHER: (_A.MISMATCH, _S.PREPARED),
        _I.APPLY_SAME: (_A.DONE, _S.COMMITTED),
        _I.LOSE: (_A.PREPARED, _S.PREPARED),
        _I.LOSE_AT_COORDINATOR: (_A.DONE, None),
        _I.VOID: (_A.PREPARED, _S.PREPARED),
        _I.AGE: (_A.PREPARED, _S.PREPARED),
        _I.VOID_AT_COORDINATOR: (_A.DONE, None),
        _I.VOTE: (_A.MISMATCH, _S.PREPARED),
    },
    _S.VOIDED: {
        _I.STAGE: (_A.VOIDED, _S.VOIDED),
        _I.SEAL_SAME: (_A.VOIDED, _S.VOIDED),
        _I.SEAL_OTHER: (_A.VOIDED, _S.VOIDED),
        _I.PREPARE: (_A.VOIDED, _S.VOIDED),
        _I.ENLIST: (_A.VOIDED, _S.VOIDED),
        _I.WIN_SAME: (_A.UNKNOWN, _S.VOIDED),
        _I.WIN_OTHER: (_A.UNKNOWN, _S.VOIDED),
        _I.APPLY_SAME: (_A.UNKNOWN, _S.VOIDED),
        _I.LOSE: (_A.DONE, None),  # its epoch takes nothing any more
        _I.LOSE_AT_COORDINATOR: (_A.DONE, None),
        _I.VOID: (_A.REPEAT, _S.VOIDED),
        _I.AGE: (_A.DONE, None),
        _I.VOID_AT_COORDINATOR: (_A.DONE, None),  # by force
        _I.VOTE: (_A.REPEAT, _S.VOIDED),
    },
    _S.COMMITTED: {
        _I.STAGE: (_A.DECIDED, _S.COMMITTED),
        _I.SEAL_SAME: (_A.DECIDED, _S.COMMITTED),
        _I.SEAL_OTHER: (_A.DECIDED, _S.COMMITTED),
        _I.PREPARE: (_A.DECIDED, _S.COMMITTED),
        _I.ENLIST: (_A.DECIDED, _S.COMMITTED),
        _I.WIN_SAME: (_A.DECIDED, _S.COMMITTED),
        _I.WIN_OTHER: (_A.DECIDED, _S.COMMITTED),
        _I.APPLY_SAME: (_A.DECIDED, _S.COMMITTED),
        _I.LOSE: (_A.REPEAT, _S.COMMITTED),
        _I.LOSE_AT_COORDINATOR: (_A.REPEAT, _S.COMMITTED),
        _I.VOID: (_A.CONFLICT, _S.COMMITTED),
        _I.AGE: (_A.CONFLICT, _S.COMMITTED),
        _I.VOID_AT_COORDINATOR: (_A.CONFLICT, _S.COMMITTED),
        _I.VOTE: (_A.CONFLICT, _S.COMMITTED),
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
    """The answer to `what` for an epoch in this state, from the table."""
    return EPOCH_TABLE[state][what]


def decide_set(found: SetState | None, what: SetInput) -> tuple[SetAnswer, SetState | None]:
    """The answer to `what` for a set in this state, and its next state, from the table."""
    return SET_TABLE[found][what]
