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


def _row(
    state: SetState | None, done: dict[SetInput, SetState | None], told: dict[SetAnswer, tuple[SetInput, ...]]
) -> _Row:
    """What is answered in this state: an input that is `done` leads to another one, all others change
    nothing.
    """
    moves: _Row = {what: (_A.DONE, after) for what, after in done.items()}
    return moves | {what: (answer, state) for answer, inputs in told.items() for what in inputs}


_GONE: Final[dict[SetInput, SetState | None]] = dict.fromkeys(
    (_I.LOSE, _I.LOSE_AT_COORDINATOR, _I.VOID, _I.AGE, _I.VOID_AT_COORDINATOR)
)
_SEALS: Final = (_I.SEAL_SAME, _I.SEAL_OTHER, _I.PREPARE)
_WINS: Final = (_I.WIN_SAME, _I.WIN_OTHER, _I.APPLY_SAME)

# State found (None: never seen, or voided), input: (answer, state after).
SET_TABLE: Final[dict[SetState | None, _Row]] = {
    None: _row(
        None,
        {_I.STAGE: _S.OPEN, _I.ENLIST: _S.SEALED, _I.VOTE: _S.VOIDED},
        {_A.UNKNOWN: (*_SEALS, *_WINS), _A.REPEAT: tuple(_GONE)},
    ),
    _S.OPEN: _row(
        _S.OPEN,
        {_I.SEAL_SAME: _S.SEALED, _I.PREPARE: _S.PREPARED, **_GONE},
        {
            _A.REPEAT: (_I.STAGE,),
            # To a vote: its messages are here, and nobody else has to be told.
            _A.MISMATCH: (_I.SEAL_OTHER, _I.ENLIST, _I.VOTE),
            _A.UNSEALED: _WINS,
        },
    ),
    _S.SEALED: _row(
        _S.SEALED,
        {_I.WIN_SAME: _S.COMMITTED, **_GONE, _I.VOTE: _S.VOIDED},
        {
            _A.SEALED: (_I.STAGE, _I.PREPARE),
            _A.REPEAT: (_I.SEAL_SAME, _I.ENLIST),
            _A.MISMATCH: (_I.SEAL_OTHER, _I.WIN_OTHER),
            _A.UNSEALED: (_I.APPLY_SAME,),  # it was sealed without a coordinator
        },
    ),
    _S.PREPARED: _row(
        _S.PREPARED,
        {_I.APPLY_SAME: _S.COMMITTED, _I.LOSE_AT_COORDINATOR: None, _I.VOID_AT_COORDINATOR: None},
        {
            _A.SEALED: (_I.STAGE,),
            _A.REPEAT: (_I.PREPARE,),
            _A.MISMATCH: (_I.SEAL_OTHER, _I.ENLIST, _I.WIN_OTHER, _I.VOTE),
            _A.PREPARED: (_I.SEAL_SAME, _I.WIN_SAME, _I.LOSE, _I.VOID, _I.AGE),
        },
    ),
    _S.VOIDED: _row(
        _S.VOIDED,
        # Of an epoch that takes nothing any more, of its age, or by force.
        dict.fromkeys((_I.LOSE, _I.LOSE_AT_COORDINATOR, _I.AGE, _I.VOID_AT_COORDINATOR)),
        {
            _A.VOIDED: (_I.STAGE, *_SEALS, _I.ENLIST),
            _A.UNKNOWN: _WINS,
            _A.REPEAT: (_I.VOID, _I.VOTE),
        },
    ),
    _S.COMMITTED: _row(
        _S.COMMITTED,
        {},
        {
            _A.DECIDED: (_I.STAGE, *_SEALS, _I.ENLIST, *_WINS),
            _A.REPEAT: (_I.LOSE, _I.LOSE_AT_COORDINATOR),
            _A.CONFLICT: (_I.VOID, _I.AGE, _I.VOID_AT_COORDINATOR, _I.VOTE),
        },
    ),
}

# DONE goes on to the table of sets.
EPOCH_TABLE: Final[dict[EpochState, dict[EpochInput, SetAnswer]]] = {
    EpochState.AHEAD: dict.fromkeys(EpochInput, _A.DONE),
    # The commit of a decided one is a repeat, whatever it names: what was decided stands.
    EpochState.DECIDED: dict.fromkeys(EpochInput, _A.DECIDED) | {EpochInput.COMMIT: _A.REPEAT},
    EpochState.PASSED: dict.fromkeys(EpochInput, _A.STALE),
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
