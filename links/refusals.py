"""What was refused, closed or slowed down for a limit: counted by the limit, by the code that refuses.

    who knows the limit --> `met`, by its name
    what the peer is told (close, end, detach, rejected) --> `told`, by the condition of the error

No text is looked at, so nothing that a peer has written can choose what is counted. Called by what refuses
only: never for what is accepted, for a state that came from a peer, or for one that is told again.
"""

from __future__ import annotations

from typing import Final

LOGIN: Final = "login"
"""Who could not prove who he is."""
RIGHTS: Final = "rights"
"""Who may not do that."""

LABELS: Final = {
    "amqp:unauthorized-access": RIGHTS,
    "amqp:link:message-size-exceeded": "max_message_size_bytes",
    "amqp:link:transfer-limit-exceeded": "credit",
    "amqp:session:window-violation": "window",
    "amqp:transaction:timeout": "transaction_timeout_ms",
    "amqp:link:detach-forced": "consumer_timeout_ms",
    "amqp:resource-limit-exceeded": "resources",
}
"""What the conditions that refuse are counted as."""


class Refusals:
    """Of one broker since it began."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """How often each limit was met, of those that were."""

    def met(self, limit: str, count: int = 1) -> None:
        """A limit was met so often."""
        self.counts[limit] = self.counts.get(limit, 0) + count

    def told(self, condition: str, count: int = 1) -> None:
        """The peer is told an error about so many things; conditions that are no refusal are not counted."""
        label = LABELS.get(condition)
        if label is not None:
            self.met(label, count)
