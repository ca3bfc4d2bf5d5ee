"""Why a node does not do what it is asked, and how its asker hears of it."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.frames import DecodeError, Error, Target

LINK_ENDED: Final = "its link has ended"
"""Why what came on a link is not done, although nothing is wrong with it."""


class NodeRefused(Exception):
    """There is no such node, or it can't be had, or do, as asked: `error` is what its asker is told, `limit`
    the setting that was met, where that is known.
    """

    def __init__(
        self, condition: str, description: str, info: dict[str, Any] | None = None, limit: str = ""
    ) -> None:
        super().__init__(description)
        self.limit = limit
        self.error = Error(condition=condition, description=description, info=info)


def refusal_of(refused: NodeRefused | DecodeError) -> Error:
    """What the sender of a message is told that a node does not take, or whose sections are not as the
    standard says.
    """
    if isinstance(refused, NodeRefused):
        return refused.error
    return Error(condition=refused.condition, description=refused.description)


def detach_error(target: object, error: Error, delivery_tag: bytes) -> Error:
    """Why the link ends. On one to the anonymous terminus "the info field MUST contain an entry with symbolic
    key `delivery-tag` and binary value of the delivery-tag of the message which caused the failure"
    (Anonymous Terminus 1.0, 2.2.2).
    """
    if not isinstance(target, Target) or target.address is not None:
        return error
    info = {**(error.info or {}), "delivery-tag": delivery_tag}
    return Error(condition=error.condition, description=error.description, info=info)
