"""Reading by offset: the journal, logs, and queues that retain, the newest last. By the user's own
connection, which needs the right for that address.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.client.errors import WaitTimeout
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.console.broker_view import Login
from amqp_broker.console.limits import ASK_S
from amqp_broker.frames import SETTLE_MODE_SETTLED, Described, Source, Symbol, Ulong

JOURNAL: Final = "$events"
RETAINED: Final = "$retained"


@attrs.frozen
class Page:
    """Messages by offset; those from `first` on, before `next`, are there."""

    messages: list[ReceivedMessage]
    first: int
    next: int


def ends_of(login: Login, address: str) -> tuple[int, int]:
    """The offsets that can be read: from the first on, before the second. Raises ClientError."""
    requester = login.connection.open_requester(RETAINED)
    try:
        (node,) = requester.request("describe", {"address": address})["nodes"]
        return node["first"], node["next"]
    finally:
        requester.close()


def read_page(login: Login, address: str, count: int, offset: int | None = None) -> Page:
    """At most `count` messages from `offset` on, or the newest ones. Raises ClientError."""
    first, behind = ends_of(login, address)
    low = max(first, behind - count if offset is None else offset)
    high = min(behind, low + count)
    if low >= high:
        return Page([], first, behind)
    filters: dict[str, Any] = {"rabbitmq:stream-offset-spec": Ulong(low), "amqp-broker:until": Ulong(high)}
    source = Source(
        address=address, distribution_mode="copy",
        filter={name: Described(Symbol(name), value) for name, value in filters.items()},
    )  # fmt: skip
    receiver = login.connection.open_receiver(
        address, credit=high - low, source=source, snd_settle_mode=SETTLE_MODE_SETTLED
    )
    found: list[ReceivedMessage] = []
    try:
        while len(found) < high - low:
            found.append(receiver.receive(ASK_S))
    except WaitTimeout:
        pass  # what was removed by an administrator does not come
    finally:
        receiver.close()
    return Page(found, first, behind)
