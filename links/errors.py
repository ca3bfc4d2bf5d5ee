"""Whose fault it is, and what closes because of it."""

from enum import Enum
from typing import Any, Final

from amqp_broker.frames import AmqpError


class Scope(Enum):
    """What an error of the peer takes down with it."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class RemoteProtocolError(AmqpError):
    """The peer broke a rule; `scope` says what closes (2.4.8, 2.5.4, 2.6.5), `limit` which setting it met, if
    that is known.
    """

    condition = "amqp:not-allowed"

    def __init__(
        self, scope: Scope, condition: str, description: str, info: dict[str, Any] | None = None,
        limit: str = "",
    ) -> None:  # fmt: skip
        super().__init__(description, condition, info)
        self.scope = scope
        self.limit = limit


class LocalProtocolError(AmqpError):
    """Our caller asked for what the protocol does not allow now. Nothing was sent."""

    condition = "amqp:illegal-state"


DECODE_ERROR: Final = "amqp:decode-error"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
ILLEGAL_STATE: Final = "amqp:illegal-state"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"


def connection_error(condition: str, description: str, limit: str = "") -> RemoteProtocolError:
    """Closes the connection."""
    return RemoteProtocolError(Scope.CONNECTION, condition, description, limit=limit)


def session_error(condition: str, description: str, limit: str = "") -> RemoteProtocolError:
    """Ends the session."""
    return RemoteProtocolError(Scope.SESSION, condition, description, limit=limit)


def link_error(condition: str, description: str, limit: str = "") -> RemoteProtocolError:
    """Detaches the link."""
    return RemoteProtocolError(Scope.LINK, condition, description, limit=limit)
