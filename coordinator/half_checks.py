"""What the outcome of a check means, as one table (`half-messages`: check-back), and for sets as another.

given            by the receiver of the check, or by what happened to its link
by_outcome       on `$half-check/<group>/by-outcome`, where an outcome decides
   --> effect    on the half message
   --> never again on this link
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from amqp_broker.frames import Accepted, Modified, Rejected, Released


class CheckGiven(Enum):
    """How a check-back ended."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    FAILED = "modified, delivery-failed"
    UNDELIVERABLE = "modified, undeliverable-here"
    MODIFIED = "modified, neither of them"
    LOST = "link or connection lost"
    LATE = "no outcome within the lock"


class CheckEffect(Enum):
    """What becomes of the half message after a check-back."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    ATTEMPT = "one attempt, next ask by schedule"
    NOT_ASKED = "not asked, soon on another link"


_G: Final = CheckGiven
_E: Final = CheckEffect

_COMMON: Final[dict[CheckGiven, tuple[CheckEffect, bool]]] = {
    _G.RELEASED: (_E.NOT_ASKED, False),
    _G.FAILED: (_E.ATTEMPT, False),
    _G.UNDELIVERABLE: (_E.ATTEMPT, True),
    # The page is silent: without delivery-failed nothing was tried (3.4.5), as for released.
    _G.MODIFIED: (_E.NOT_ASKED, False),
    _G.LOST: (_E.NOT_ASKED, False),
    _G.LATE: (_E.NOT_ASKED, False),
}

# by_outcome, given: (effect, never again on this link).
CHECK_OUTCOMES: Final[dict[bool, dict[CheckGiven, tuple[CheckEffect, bool]]]] = {
    False: {_G.ACCEPTED: (_E.ATTEMPT, False), _G.REJECTED: (_E.ATTEMPT, False), **_COMMON},
    True: {_G.ACCEPTED: (_E.COMMIT, False), _G.REJECTED: (_E.ROLLBACK, False), **_COMMON},
}

# No outcome commits a set: it is committed with its epoch only.
SET_CHECK_OUTCOMES: Final[dict[bool, dict[CheckGiven, tuple[CheckEffect, bool]]]] = {
    False: CHECK_OUTCOMES[False],
    True: {**CHECK_OUTCOMES[True], _G.ACCEPTED: (_E.ATTEMPT, False)},
}


def check_given(outcome: object) -> CheckGiven:
    """What a terminal outcome of a check-back's receiver says."""
    if isinstance(outcome, Accepted):
        return CheckGiven.ACCEPTED
    if isinstance(outcome, Rejected):
        return CheckGiven.REJECTED
    if isinstance(outcome, Modified):
        if outcome.undeliverable_here:
            return CheckGiven.UNDELIVERABLE
        return CheckGiven.FAILED if outcome.delivery_failed else CheckGiven.MODIFIED
    assert isinstance(outcome, Released), f"no terminal outcome: {outcome!r:.80}"
    return CheckGiven.RELEASED
