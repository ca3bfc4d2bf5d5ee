"""How a sender hears that a message was not taken: by `rejected`, or by the end of its link."""

from __future__ import annotations

from typing import Final

from amqp_broker.frames import DecodeError, Error, Source, Target

REJECTED: Final = "amqp:rejected:list"


def takes_rejected(source: object) -> bool:
    """Whether the sender hears of it by `rejected`: it offers that outcome, or says nothing of outcomes."""
    outcomes = source.outcomes if isinstance(source, Source) else None
    return not outcomes or REJECTED in outcomes


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
