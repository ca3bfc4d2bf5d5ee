"""What came to a queue since the broker started, and what became of it: one number for each, by its index.

    make_available --> ARRIVED        sent on a link --> SENT (again, where it came back)
    retire --> ACCEPTED, REJECTED, FAILED, UNDELIVERABLE, EXPIRED, REMOVED       returned --> RETURNED

Runs of messages are counted, after the commit that made it true, where one is needed. Each message that is
there since before the start, or has arrived, either left by one of the reasons of `retire`, or is there.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.frames import Accepted, Modified, Rejected

ARRIVED: Final = 0
SENT: Final = 1
ACCEPTED: Final = 2
RETURNED: Final = 3
REJECTED: Final = 4
FAILED: Final = 5
UNDELIVERABLE: Final = 6
EXPIRED: Final = 7
REMOVED: Final = 8
DEAD_LETTERS: Final = 9

COUNTS: Final = (
    "arrived", "sent", "accepted", "returned", "rejected", "failed", "undeliverable", "expired", "removed",
    "dead_letters",
)  # fmt: skip
"""Their names, as management tells them. `accepted` are also those that were sent settled; `returned` came
back, released, modified or from a lost link; `failed` were tried too often; `removed` were purged, moved,
dropped, or deleted with their queue; `dead_letters` are those among the others that went to a queue of dead
letters.
"""

_LEFT_BY: Final[dict[type, int]] = {Accepted: ACCEPTED, Rejected: REJECTED, Modified: FAILED}


def left_by(outcome: object) -> int:
    """What is counted of messages that leave their queue by an outcome; by others none leave."""
    return _LEFT_BY.get(type(outcome), RETURNED)


def added(counts: list[int], more: list[int]) -> None:
    """Add the counts of a queue to those of others."""
    for at, count in enumerate(more):
        counts[at] += count
