"""What was refused, closed or slowed down for a limit: counted by the limit, where the peer is told.

    close, end, detach, rejected --> `told`, by the setting that the error's text names, else by its condition
    what ends or waits without an error --> `met`, by its name

Each refusal of the broker says by which setting it is made (`tests/tidy/test_refusals.py`), so the labels are
the names of settings and the few words here. What peers have written stands in quotes in a text, and is
passed over. Never called for what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from amqp_broker.frames import Error, Rejected, TransactionalState

LOGIN: Final = "login"
"""Who could not prove who he is."""
RIGHTS: Final = "rights"
"""Who may not do that."""
DISK: Final = "disk"
"""There is no room in the store."""
OTHER: Final = "other"
"""A limit that no setting changes."""

_BY_CONDITION: Final = {
    "amqp:unauthorized-access": RIGHTS,
    "amqp:link:message-size-exceeded": "max_message_size_bytes",
    "amqp:link:transfer-limit-exceeded": "link_credit",
    "amqp:session:window-violation": "max_unsettled_per_session",
    "amqp:transaction:timeout": "transaction_timeout_ms",
    "amqp:link:detach-forced": OTHER,
    "amqp:resource-limit-exceeded": OTHER,
}
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_WORD: Final = re.compile(r"[a-z]+(?:_[a-z]+)+|disk")


class Refusals:
    """Of one broker since it began. `settings` are the names that a text is searched for."""

    __slots__ = ("_settings", "counts")

    def __init__(self, settings: Collection[str] = ()) -> None:
        self._settings = frozenset(settings)
        self.counts: dict[str, int] = {}
        """How often each limit was met, of those that were."""

    def met(self, limit: str, count: int = 1) -> None:
        """A limit was met so often."""
        self.counts[limit] = self.counts.get(limit, 0) + count

    def told(self, error: Error, count: int = 1) -> None:
        """The peer is told this error about so many things; errors that are no refusal are not counted."""
        limit = self._named(error.description or "") or _BY_CONDITION.get(error.condition)
        if limit is not None:
            self.met(limit, count)

    def said(self, reason: str) -> None:
        """Something ended before the peer could be told; the reason may name a setting."""
        limit = self._named(reason)
        if limit is not None:
            self.met(limit)

    def told_outcome(self, state: Any, count: int) -> None:
        """So many deliveries get this outcome."""
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if isinstance(outcome, Rejected) and outcome.error is not None:
            self.told(outcome.error, count)

    def _named(self, description: str) -> str | None:
        for word in _WORD.findall(_QUOTED.sub("", description)):
            if word == DISK or word in self._settings:
                return str(word)
        return None
