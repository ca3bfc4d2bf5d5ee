"""What becomes of a delivery when its link is resumed, as one table (2.6.13; the example of 3.4.6).

What each side has of a delivery, by its unsettled map:

                at the sender                         at the receiver
    UNKNOWN     nothing: it has settled it            nothing: it has settled it, or never got it
    WHOLE       null, received(0, 0): it can send     null, received(0, 0): that it has begun
                from the first octet
    RECEIVED    where it can go on at the earliest    where it wants the sender to go on
    OUTCOME     a terminal state                      a terminal state

It does not know which side we are: the sender reads what to send, the receiver what to do when it comes.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from amqp_broker.frames import Accepted, Modified, Received, Rejected, Released

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)


class Known(Enum):
    """What one side has of a delivery."""

    UNKNOWN = "unknown"
    WHOLE = "whole"
    RECEIVED = "received"
    OUTCOME = "outcome"


class Resumption(Enum):
    """What the sender does with the delivery, and so the receiver."""

    NOTHING = "nothing"
    """Neither has it, or the sender knows that it is done."""
    FORGET = "forget"
    """The sender has settled it: it is ignored there, and settled at the receiver."""
    ANEW = "anew"
    """The message is sent once more, as a new delivery: no resume flag."""
    GO_ON = "go on"
    """Resumed, with what the receiver has not got: it ignores what it has."""
    TELL = "tell"
    """Resumed without a message: the receiver's outcome is applied and told, and both settle."""
    SETTLE = "settle"
    """Resumed without a message: both have the same outcome, and the sender settles."""
    RESTATE = "restate"
    """Resumed without a message, unsettled: the sender's outcome stands; the receiver echoes and settles it.
    """
    ABORT = "abort"
    """Resumed and aborted: the rest can't be sent, and the receiver discards what it has."""


# (what the sender has, what the receiver has) -> what is done. The numbers are the delivery-tags of the
# example in 3.4.6. Where both have received(...), it depends on which stands first: GO_ON or ABORT.
RESUMPTIONS: Final[dict[tuple[Known, Known], Resumption]] = {
    (Known.UNKNOWN, Known.UNKNOWN): Resumption.NOTHING,
    (Known.UNKNOWN, Known.WHOLE): Resumption.FORGET,
    (Known.UNKNOWN, Known.RECEIVED): Resumption.FORGET,
    (Known.UNKNOWN, Known.OUTCOME): Resumption.FORGET,
    (Known.WHOLE, Known.UNKNOWN): Resumption.ANEW,  # 1
    (Known.WHOLE, Known.RECEIVED): Resumption.GO_ON,  # 2
    (Known.WHOLE, Known.OUTCOME): Resumption.TELL,  # 3
    (Known.WHOLE, Known.WHOLE): Resumption.GO_ON,  # 4
    (Known.RECEIVED, Known.UNKNOWN): Resumption.ANEW,  # 5
    (Known.RECEIVED, Known.RECEIVED): Resumption.GO_ON,  # 6; 7 is ABORT
    (Known.RECEIVED, Known.OUTCOME): Resumption.TELL,  # 8
    (Known.RECEIVED, Known.WHOLE): Resumption.ABORT,  # 9
    (Known.OUTCOME, Known.UNKNOWN): Resumption.NOTHING,  # 10
    (Known.OUTCOME, Known.RECEIVED): Resumption.ABORT,  # 11
    (Known.OUTCOME, Known.OUTCOME): Resumption.SETTLE,  # 12; 13, another outcome, is RESTATE
    (Known.OUTCOME, Known.WHOLE): Resumption.ABORT,  # 14
}


def known_of(unsettled: dict[Any, Any], delivery_tag: bytes) -> Known:
    """What a side has of a delivery by its unsettled map. A transaction is over with its link's connection:
    what it was to do with the delivery is not known any more.
    """
    if delivery_tag not in unsettled:
        return Known.UNKNOWN
    state = unsettled[delivery_tag]
    if isinstance(state, OUTCOMES):
        return Known.OUTCOME
    if isinstance(state, Received) and (state.section_number or state.section_offset):
        return Known.RECEIVED
    return Known.WHOLE


def resumption_of(
    at_sender: dict[Any, Any], at_receiver: dict[Any, Any], delivery_tag: bytes
) -> Resumption:
    """What becomes of a delivery, by the unsettled maps of both sides, each complete."""
    sender, receiver = known_of(at_sender, delivery_tag), known_of(at_receiver, delivery_tag)
    following = RESUMPTIONS[sender, receiver]
    if sender is receiver is Known.RECEIVED:
        if _place(at_receiver[delivery_tag]) < _place(at_sender[delivery_tag]):
            return Resumption.ABORT  # what the receiver needs next can't be sent any more
    elif sender is receiver is Known.OUTCOME and at_sender[delivery_tag] != at_receiver[delivery_tag]:
        return Resumption.RESTATE
    return following


def _place(state: Received) -> tuple[int, int]:
    """A place in the message (3.4.1)."""
    return state.section_number, state.section_offset
