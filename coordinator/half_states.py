r"""The life of a half message as tables (`half-messages`: put, resolve).

           put                  COMMIT, from whoever has the right
      +--> PREPARED ----------------------------> COMMITTED    the message is in its queue
      |      |   \     ROLLBACK, or the deadline
      |      |    \-----------------------------> ROLLED_BACK  nobody ever sees it
      |      | deadline (policy "park")            /|\
      |     \|/           COMMIT, ROLLBACK          |
      +-- PARKED -----------------------------------+--> COMMITTED
     RESUME  (by an administrator: asked again)

Decided once: a repeat is accepted, a contradiction is told what was decided. What is decided leaves a
tombstone, so that late repeats are known for a while.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class HalfState(Enum):
    """Where a half message stands; the values are what the store and the wire say."""

    __hash__ = object.__hash__  # identity: a member is unique

    PREPARED = "prepared"
    PARKED = "parked"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"


class HalfInput(Enum):
    """What can be asked of a half message."""

    __hash__ = object.__hash__  # identity: a member is unique

    PUT_SAME = "put with the same content"
    PUT_OTHER = "put with other content"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    PARK = "park"
    RESUME = "resume"


class HalfAnswer(Enum):
    """What the asker is told; the values of the refusals are the wire's conditions."""

    __hash__ = object.__hash__  # identity: a member is unique

    DONE = "done"
    REPEAT = "repeat"
    """It was so already: accepted, and nothing changes."""
    CONFLICT = "half:conflict"
    ID_CONFLICT = "half:id-conflict"
    UNKNOWN = "half:unknown-id"


class Resolver(Enum):
    """Who decided a half message."""

    __hash__ = object.__hash__  # identity: a member is unique

    PRODUCER = "producer"
    CHECK = "check"
    ADMIN = "admin"
    DEADLINE = "deadline"


_S: Final = HalfState
_I: Final = HalfInput
_A: Final = HalfAnswer
_Row = dict[HalfInput, tuple[HalfAnswer, HalfState | None]]

_OPEN_RESOLUTIONS: Final[_Row] = {
    _I.COMMIT: (_A.DONE, _S.COMMITTED),
    _I.ROLLBACK: (_A.DONE, _S.ROLLED_BACK),
}


def _decided(state: HalfState, again: HalfInput) -> _Row:
    """Decided once: what decided it may be said again, and all else contradicts."""
    told: _Row = dict.fromkeys(HalfInput, (_A.CONFLICT, state))
    return told | {_I.PUT_OTHER: (_A.ID_CONFLICT, state), again: (_A.REPEAT, state)}


# State found (None: never seen, or its tombstone is gone), input: (answer, state after).
HALF_TABLE: Final[dict[HalfState | None, _Row]] = {
    None: {
        _I.PUT_SAME: (_A.DONE, _S.PREPARED),
        _I.PUT_OTHER: (_A.DONE, _S.PREPARED),
        **dict.fromkeys((_I.COMMIT, _I.ROLLBACK, _I.PARK, _I.RESUME), (_A.UNKNOWN, None)),
    },
    _S.PREPARED: {
        _I.PUT_SAME: (_A.REPEAT, _S.PREPARED),
        _I.PUT_OTHER: (_A.ID_CONFLICT, _S.PREPARED),
        _I.PARK: (_A.DONE, _S.PARKED),
        _I.RESUME: (_A.REPEAT, _S.PREPARED),
        **_OPEN_RESOLUTIONS,
    },
    _S.PARKED: {
        _I.PUT_SAME: (_A.REPEAT, _S.PARKED),
        _I.PUT_OTHER: (_A.ID_CONFLICT, _S.PARKED),
        _I.PARK: (_A.REPEAT, _S.PARKED),
        _I.RESUME: (_A.DONE, _S.PREPARED),
        **_OPEN_RESOLUTIONS,
    },
    _S.COMMITTED: _decided(_S.COMMITTED, _I.COMMIT),
    _S.ROLLED_BACK: _decided(_S.ROLLED_BACK, _I.ROLLBACK),
}


def decide_half(found: HalfState | None, what: HalfInput) -> tuple[HalfAnswer, HalfState | None]:
    """The answer to `what` for a half message in this state, and its next state, from the table."""
    return HALF_TABLE[found][what]


def is_open(state: HalfState | None) -> bool:
    """Whether nothing is decided yet."""
    return state is HalfState.PREPARED or state is HalfState.PARKED
