"""What a controller can do wrong, and what can go wrong for it; the condition is what the wire knows (4.5.8).

Which link pays: an error with a `control` terminates that control link. Any other one is the answer to a
declare or discharge (`failed_answer`), or ends the link that carried the transfer, disposition or flow.
"""

from __future__ import annotations

from amqp_broker.frames import AmqpError, Error


class TransactionError(AmqpError):
    """Base of the errors of transactions."""

    condition = "amqp:transaction:rollback"

    def error(self) -> Error:
        """The error that a `rejected` or a detach carries."""
        return Error(condition=self.condition, description=self.description)


class UnknownTransaction(TransactionError):
    """No live transaction of this connection (or, at a discharge, of this control link) has the id."""

    condition = "amqp:transaction:unknown-id"


class TransactionRollback(TransactionError):
    """The transaction was rolled back, or can only be rolled back; the description says why."""


class TransactionTimeout(TransactionError):
    """The transaction lasted too long, and the broker rolled it back."""

    condition = "amqp:transaction:timeout"


class TransactionLimitExceeded(TransactionError):
    """Too many live transactions, or too much work in one."""

    condition = "amqp:resource-limit-exceeded"


class NotSupported(TransactionError):
    """What this coordinator does not offer (4.5.2, 4.4.3)."""

    condition = "amqp:not-implemented"


class NotAllowed(TransactionError):
    """What the standard forbids on a control link; the link is terminated (4.2, 4.3)."""

    condition = "amqp:not-allowed"


class SettledRequest(NotAllowed):
    """A declare or discharge that the controller has settled: "it SHOULD detach with an amqp:illegal-state
    error" (4.2), and "as with the declare" (4.3).
    """

    condition = "amqp:illegal-state"


class MalformedRequest(TransactionError):
    """A message to the coordinator that is neither a declare nor a discharge (4.2, 4.3)."""

    condition = "amqp:decode-error"


class ControlLinkTerminated(TransactionRollback):
    """The control link `control` MUST be terminated with this error (4.4.1, 4.4.2); what it declared rolls
    back.
    """

    def __init__(self, description: str, control: object) -> None:
        super().__init__(description)
        self.control = control
