"""Reading by offset: the journal, logs, and queues that retain, the newest last. By the user's own
connection, which needs the right for that address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import attrs

from amqp_broker.client.errors import WaitTimeout
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.console.limits import READ_BYTES_MAX, READ_CREDIT
from amqp_broker.frames import SETTLE_MODE_SETTLED, Described, Source, Symbol, Ulong
from amqp_broker.looking.broker_view import Login
from amqp_broker.looking.limits import ASK_S

JOURNAL: Final = "$events"
RETAINED: Final = "$retained"


T = TypeVar("T")


@attrs.frozen
class Page(Generic[T]):
    """What was kept of messages by offset; those from `first` on, before `next`, are there."""

    messages: list[T]
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


def read_page(
    login: Login, address: str, count: int, offset: int | None, keep: Callable[[ReceivedMessage], T]
) -> Page[T]:
    """At most `count` messages from `offset` on, or the newest ones, and no more than READ_BYTES_MAX: what
    `keep` makes of each as it comes stays, and the message goes. Raises ClientError.
    """
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
    # Events are small, each of them; messages are as large as who sent them liked.
    credit = high - low if address == JOURNAL else min(high - low, READ_CREDIT)
    receiver = login.connection.open_receiver(
        address, credit=credit, source=source, snd_settle_mode=SETTLE_MODE_SETTLED
    )
    found: list[T] = []
    octets = 0
    try:
        while len(found) < high - low and octets < READ_BYTES_MAX:
            received = receiver.receive(ASK_S)
            octets += len(received.delivery.payload)
            found.append(keep(received))
    except WaitTimeout:
        pass  # what was removed by an administrator does not come
    finally:
        receiver.close()
    return Page(found, first, behind)
