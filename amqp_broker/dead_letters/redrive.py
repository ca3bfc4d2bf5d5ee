"""The way back: dead letters go to the queues that they came from, a page of them in each commit.

    a page --> by their former address --> Moved: leave here, come there --COMMIT--> there
                 |
                 +-- none, or its queue is gone or full: they stay
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from amqp_broker.addresses import TEMPORARY_PREFIX, AddressError, parse_address
from amqp_broker.dead_letters.moving import ADDRESS
from amqp_broker.frames import DecodeError, Message, Symbol
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.moving import Moved, fitting, posting
from amqp_broker.operations.posting import Posting
from amqp_broker.persistence import Record, Store
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

PAGE_MESSAGES: Final = 1_000  # of one commit
EVERYTHING: Final = 1 << 62


async def redrive(nodes: BrokerNodes, address: str, count: int = EVERYTHING) -> int:
    """Move at most `count` of the messages that are in the queue now and with nobody, the oldest first, back
    to their former addresses; returns how many. Their tries begin anew. Those that can't go stay. Raises
    NodeRefused where there is no such queue, and StoreError.
    """
    queue = nodes.queues.find(address)
    if queue is None:
        raise NodeRefused("amqp:not-found", f"no queue {address!r}")
    end, offset, moved = queue.backlog.available_to, 0, 0
    while offset < end and moved < count and not queue.deleted:
        went, offset = await redrive_page(nodes, queue, offset, min(PAGE_MESSAGES, count - moved))
        moved += went
    return moved


async def redrive_page(nodes: BrokerNodes, queue: Queue, start: int, count: int) -> tuple[int, int]:
    """Have at most `count` messages from offset `start` on go back, in one commit: how many went, and the
    offset behind the last that was looked at. Raises StoreError.
    """
    ahead, _ = await nodes.writer.ask(lambda store: nodes.page_at(queue, store, start, count))
    for name in {former_address(record) for record in ahead}:
        if _is_elsewhere(queue, name) and not name.startswith(TEMPORARY_PREFIX):
            with suppress(NodeRefused):
                await nodes.queues.site_by_name(name).make()
    moved, next_offset = await nodes.writer.ask(partial(_go, nodes, queue, start, count))
    if moved is None:
        return 0, next_offset
    await moved.done()
    return moved.count, next_offset


def _go(
    nodes: BrokerNodes, queue: Queue, start: int, count: int, store: Store
) -> tuple[Moved | None, int]:  # fmt: skip
    """What can go is on its way when this returns."""
    page, next_offset = nodes.page_at(queue, store, start, count)
    targets: dict[str, list[Record]] = {}
    for record in page:
        name = former_address(record)
        if _is_elsewhere(queue, name):
            targets.setdefault(name, []).append(record)
    going: list[Record] = []
    posts: list[Posting] = []
    for name, records in targets.items():
        target = nodes.queues.find(name)
        fit = fitting(target, records) if target is not None else []
        if target is not None and fit:
            posts.append(posting(nodes, target, fit))
            going += fit
    if not going:
        return None, next_offset
    moved = Moved(nodes, queue, going, posts, "it went back to where it came from")
    nodes.writer.submit(moved)
    return moved, next_offset


def _is_elsewhere(queue: Queue, name: str) -> bool:
    """Whether messages of `queue` can go to this address, as far as the address says."""
    try:
        return name != queue.name and not parse_address(name).reserved
    except AddressError:
        return False


def former_address(record: Record) -> str:
    """Where a dead letter comes from; empty if it does not say."""
    try:
        found = (Message(record.body).message_annotations or {}).get(Symbol(ADDRESS))
    except DecodeError:
        return ""
    return found if isinstance(found, str) else ""
