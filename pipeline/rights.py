"""A right that is missing, by its name: from what the broker refused to the right that somebody has to grant.

    the link or message that was refused          condition              the right
    a link that sends to an address               unauthorized-access    send
                                                  not-found              create, or the queue is to be made
    a link that asks: its queue for replies       unauthorized-access    create on temporary.**
    a message that asks, whose reply may not go   unauthorized-access    send on temporary.**

Each function returns None for a refusal that is about something else.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.client import ClientError, LinkRefused, MessageRefused
from amqp_broker.pipeline.errors import MissingRight

UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_FOUND: Final = "amqp:not-found"
TEMPORARY: Final = "temporary."
REPLIES: Final = f"'{TEMPORARY}**', where the broker's replies go,"


def missing(right: str, node: str, refused: ClientError, otherwise: str = "") -> MissingRight:
    """The error; `otherwise` is what else may be the cause."""
    return MissingRight(
        f"the right {right} on {node} is missing{otherwise}: the user of the option amqp.credentials needs "
        f"an [[access]] rule at the broker ({refused.condition}: {refused.description})"
    )


def missing_to_send(refused: ClientError, address: str) -> MissingRight | None:
    """For a link that sends to an address."""
    if refused.condition == UNAUTHORIZED:
        return missing("send", repr(address), refused)
    if refused.condition == NOT_FOUND:
        return missing("create", repr(address), refused, ", and there is no such queue")
    return None


def missing_to_ask(refused: ClientError) -> MissingRight | None:
    """For a node that is asked, and its replies."""
    if refused.condition != UNAUTHORIZED:
        return None
    if isinstance(refused, LinkRefused):
        return missing("create", REPLIES, refused)
    if isinstance(refused, MessageRefused) and TEMPORARY in str(refused.description):
        return missing("send", REPLIES, refused)
    return None
