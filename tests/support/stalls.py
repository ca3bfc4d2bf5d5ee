"""When nothing moves, nobody with credit waits: what every test beside which a broker rests holds it to."""

from __future__ import annotations

from collections.abc import Iterable

from amqp_broker.connection import Connection
from amqp_broker.links import SenderLink
from amqp_broker.queue import Consumer
from amqp_broker.resumption.sources import DurableSource


def check_nobody_waits(connections: Iterable[Connection]) -> None:
    """What a queue has assigned to a link is sent as far as the link can take it, and a link that could be
    sent more has asked for it.
    """
    for connection in connections:
        for link in connection.links:
            source = link.context
            if isinstance(link, SenderLink) and isinstance(source, Consumer) and not source.ended:
                _check(link, source)


def _check(link: SenderLink, source: Consumer) -> None:
    room = min(link.flow_state.credit, link._sendable(source.settled))
    if isinstance(source, DurableSource):
        most = source._nodes.config.limits.max_unsettled_per_link
        room = min(room, most - len(source._terminus.held) - link.unsettled_count)
    if room <= 0 or not link.attached:
        return
    where = f"{link.name!r} of {source.queue.name!r} could be sent {room} messages"
    assert not source.pending, f"{where}, and {len(source.pending)} that it was assigned wait"
    assert source.demand > 0, f"{where}, and has asked for none"
    queue = source.queue
    if not source.browser and queue.groups is None and not queue._excluded:  # whom a message is for is known
        free = queue.available_for(source)
        assert not free, f"{where}, and {free} are available"
