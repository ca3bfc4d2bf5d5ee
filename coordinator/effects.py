"""What becomes of a message at the end of its transaction, as one table (4.4.4; rules 9 and 10).

    kind                  how the message got into the transaction
    given                 the last outcome that the controller gave it there
    settled               by the controller, or because its link has gone; then no disposition can follow
    left                  it is so only because the link has gone: the controller said nothing of settling
    committed             or rolled back
       --> effect         what happens to the message in its queue
       --> settles        whether we then send our settled disposition

It is the standard's section 4.4.4 ("Interaction of Settlement with Transactions"), row by row, for what is
delivered; what is posted becomes available with the commit, or never.
"""

from enum import Enum
from typing import Final

from amqp_broker.frames import Accepted, Modified, Rejected, Released


class Kind(Enum):
    """How a delivered message belongs to a transaction (4.4)."""

    __hash__ = object.__hash__  # identity: a member is unique

    RETIREMENT = "retirement"
    """Delivered outside of any transaction; its outcome was given in this one."""
    ACQUISITION = "acquisition"
    """Delivered unsettled, in this transaction."""
    ACQUISITION_SETTLED = "acquisition, settled by us"
    """Delivered settled, in this transaction: the commit is its acceptance."""


class Given(Enum):
    """What the outcome does to the message."""

    __hash__ = object.__hash__  # identity: a member is unique

    NOTHING = "no outcome"
    REMOVES = "accepted or rejected"
    RETURNS = "released or modified"


class Effect(Enum):
    """What the broker does with the message."""

    __hash__ = object.__hash__  # identity: a member is unique

    RETIRE = "retire"
    """It leaves its queue as the given outcome (accepted, rejected) says."""
    RETURN = "return"
    """It goes back to its place, changed as the given outcome (released, modified) says."""
    KEEP_HELD = "keep held"
    """It stays acquired by its link; whatever outcome it had in the transaction is forgotten."""
    APPLY_DEFAULT = "apply the source's default outcome"
    LEFT = "left without a word"
    """It becomes what a link's end makes of deliveries without an outcome."""
    RELEASE = "release"
    """The acquisition is undone: back to its place, its delivery-count unchanged. Settles: `released`."""


Decision = tuple[Effect, bool]

# kind, given: (unsettled: at commit, at rollback), (settled: at commit, at rollback).
DECISIONS: Final[
    dict[Kind, dict[Given, tuple[tuple[Decision, Decision], tuple[Decision, Decision]]]]
] = {
    Kind.RETIREMENT: {
        Given.NOTHING: (
            ((Effect.KEEP_HELD, False), (Effect.KEEP_HELD, False)),
            ((Effect.APPLY_DEFAULT, False), (Effect.APPLY_DEFAULT, False)),
        ),
        Given.REMOVES: (
            ((Effect.RETIRE, True), (Effect.KEEP_HELD, False)),
            ((Effect.RETIRE, False), (Effect.APPLY_DEFAULT, False)),
        ),
        Given.RETURNS: (
            ((Effect.RETURN, True), (Effect.KEEP_HELD, False)),
            ((Effect.RETURN, False), (Effect.APPLY_DEFAULT, False)),
        ),
    },
    Kind.ACQUISITION: {
        Given.NOTHING: (
            ((Effect.KEEP_HELD, False), (Effect.RELEASE, True)),
            ((Effect.APPLY_DEFAULT, False), (Effect.RELEASE, False)),
        ),
        Given.REMOVES: (
            ((Effect.RETIRE, True), (Effect.RELEASE, True)),
            ((Effect.RETIRE, False), (Effect.RELEASE, False)),
        ),
        Given.RETURNS: (
            ((Effect.RETURN, True), (Effect.RELEASE, True)),
            ((Effect.RETURN, False), (Effect.RELEASE, False)),
        ),
    },
    Kind.ACQUISITION_SETTLED: dict.fromkeys(
        Given,
        (
            ((Effect.RETIRE, False), (Effect.RELEASE, False)),
            ((Effect.RETIRE, False), (Effect.RELEASE, False)),
        ),
    ),
}  # fmt: skip

_GIVEN: Final[dict[type, Given]] = {
    Accepted: Given.REMOVES,
    Rejected: Given.REMOVES,
    Released: Given.RETURNS,
    Modified: Given.RETURNS,
}


def given_by(outcome: object) -> Given:
    """What an outcome does; None, `received` and what is no outcome do nothing."""
    return _GIVEN.get(type(outcome), Given.NOTHING)


def decide(kind: Kind, given: Given, settled: bool, committed: bool, left: bool = False) -> Decision:
    """The effect, from the table; the default outcome is for what the controller settled itself."""
    rows = DECISIONS[kind][given]
    row = rows[1] if settled else rows[0]
    decision = row[0] if committed else row[1]
    return (Effect.LEFT, False) if left and decision[0] is Effect.APPLY_DEFAULT else decision
