"""What a producer of half messages is told when the broker does not do what was asked."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.client.errors import ClientError, MessageRefused
from amqp_broker.frames import Error, plain_value


class HalfRefused(ClientError):
    """The broker did not do what was asked for this half message. `half_id` is its id."""

    def __init__(self, text: str, error: Error | None = None, half_id: Any = None) -> None:
        super().__init__(text, error)
        self.half_id = half_id


class HalfConflict(HalfRefused):
    """It was decided otherwise. After a put: do not run the local transaction."""

    @property
    def state(self) -> str | None:
        """`committed` or `rolled-back`."""
        return _text(self.info.get("half_state"))

    @property
    def resolved_by(self) -> str | None:
        """`producer`, `check`, `admin` or `deadline`."""
        return _text(self.info.get("half_resolved_by"))

    @property
    def resolved_at_ms(self) -> int | None:
        """When; ms since the Unix epoch."""
        value = self.info.get("half_resolved_at")
        return None if value is None else number_of(value)


class HalfIdConflict(HalfRefused):
    """Another message has this id. Do not run the local transaction."""


class HalfUnknown(HalfRefused):
    """Nothing of this id is stored, or it was forgotten: decisions are remembered for days."""


class HalfNotSupported(ClientError):
    """The peer has a node of this name, but it is not one for half messages."""


_REFUSALS: Final[dict[str, type[HalfRefused]]] = {
    "half:conflict": HalfConflict,
    "half:id-conflict": HalfIdConflict,
    "half:unknown-id": HalfUnknown,
}


def half_refusal(refused: MessageRefused, what: str, half_id: Any) -> ClientError:
    """The error for a put or a resolution that was refused; what has no name of its own stays what it is."""
    kind = _REFUSALS.get(refused.condition or "")
    if kind is None:
        return refused
    words = f"{refused.condition}: {refused.description}" if refused.description else str(refused.condition)
    return kind(
        f"expected {what} of half message {half_id!r} to be accepted, but {words}", refused.error, half_id
    )


def number_of(value: Any) -> int:
    """The int of any integer type of the wire; -1 for anything else."""
    found = plain_value(value)
    return found if isinstance(found, int) else -1


def _text(value: Any) -> str | None:
    found = plain_value(value)
    return found if isinstance(found, str) else None
