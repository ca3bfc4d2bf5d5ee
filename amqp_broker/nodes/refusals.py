"""How a sender hears that a message was not taken when its link ends for it."""

from __future__ import annotations

from typing import Final

from amqp_broker.frames import DecodeError, Error, Target

LINK_ENDED: Final = "its link has ended"
"""Why what came on a link is not done, although nothing is wrong with it."""


def malformed_error(error: DecodeError) -> Error:
    """What the sender of a message is told whose sections are not as the standard says."""
    return Error(condition=error.condition, description=error.description)


def detach_error(target: object, error: Error, delivery_tag: bytes) -> Error:
    """Why the link ends. On one to the anonymous terminus "the info field MUST contain an entry with symbolic
    key `delivery-tag` and binary value of the delivery-tag of the message which caused the failure"
    (Anonymous Terminus 1.0, 2.2.2).
    """
    if not isinstance(target, Target) or target.address is not None:
        return error
    info = {**(error.info or {}), "delivery-tag": delivery_tag}
    return Error(condition=error.condition, description=error.description, info=info)
