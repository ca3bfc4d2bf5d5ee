"""What a client is told when something else came than it asked for.

    ClientError
      ConnectFailed       no TCP connection, or no TLS
      LoginRefused        SASL ended without a success
      LinkRefused         the peer has no such node, or this user no right to it
      MessageRefused      the outcome of a message is not accepted
      WaitTimeout         nothing came in time
      WrongUse            what was asked for cannot be done with this object now
      Gone                what was waited for will never come
        ConnectionGone
        SessionGone
        LinkGone
        OutcomeUnknown    a message was sent, and nobody said what became of it

After a Gone the caller connects again, if it likes. All of them can be pickled: Spark sends the errors of its
executors home.
"""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import Error, Modified, Rejected


class ClientError(Exception):
    """Base of all. The text says what was expected and what came; `error` is the peer's, or None."""

    def __init__(self, text: str, error: Error | None = None) -> None:
        super().__init__(text)
        self.error = error

    @property
    def condition(self) -> str | None:
        """The peer's error condition, a symbol that programs read (2.8.15 and others)."""
        return None if self.error is None else self.error.condition

    @property
    def description(self) -> str | None:
        """The peer's words."""
        return None if self.error is None else self.error.description

    @property
    def info(self) -> dict[str, Any]:
        """The peer's details; empty where it gave none."""
        found = None if self.error is None else self.error.info
        return {} if found is None else dict(found)


class ConnectFailed(ClientError):
    """There is no connection: the address, the port or the TLS handshake."""


class LoginRefused(ClientError):
    """The peer did not take the login, offers no mechanism for it, or did not prove itself (5.3)."""


class LinkRefused(ClientError):
    """The peer answered an attach without a terminus and detached (2.6.3)."""


class MessageRefused(ClientError):
    """A message was not accepted; `outcome` is Rejected, Released or Modified (3.4)."""

    def __init__(self, text: str, error: Error | None = None, outcome: Any = None) -> None:
        super().__init__(text, error)
        self.outcome = outcome


class WaitTimeout(ClientError, TimeoutError):
    """Nothing came in time. For a message that was sent the outcome is unknown then, and the text says so."""


class WrongUse(ClientError, ValueError):
    """The caller asked for what this object cannot do now. Nothing was sent."""


class Gone(ClientError):
    """What was waited for will never come on this connection."""


class ConnectionGone(Gone):
    """The connection ended, by the peer's close or without a word."""


class SessionGone(Gone):
    """The session ended."""


class LinkGone(Gone):
    """The link was detached."""


class OutcomeUnknown(Gone):
    """The message was sent, but its outcome never came: it may have been stored, or not (2.6.12)."""


def shown(error: Error | None) -> str:
    """An error of the peer in words."""
    if error is None:
        return "without an error"
    return error.condition if not error.description else f"{error.condition}: {error.description}"


def shown_outcome(outcome: Any) -> str:
    """An outcome in words."""
    name = type(outcome).__name__.lower()
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return f"{name} ({shown(outcome.error)})"
    if isinstance(outcome, Modified):
        flags = [
            flag for flag in ("delivery_failed", "undeliverable_here") if getattr(outcome, flag, None) is True
        ]
        return f"{name} ({', '.join(flags)})" if flags else name
    return name
