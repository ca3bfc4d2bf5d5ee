"""A queue that the configuration has made a log: what waits in it for a consumer is archived at the start.

    offsets   0 .............. 499 | 500 .................. 999 | 1000 ...........
              live, and published  | live or archived, kept by  | those on the left
              before its retention | its retention              | come again here
              began

What retention covers is archived where it stands. What was published before cannot be kept there, because
offsets are dense from the beginning of retention on: it is posted once more, at the end. Each page is one
commit, which takes away what it posts, so a start that is cut off goes on at the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker import message_events
from amqp_broker.log import Log
from amqp_broker.log_setup import logger
from amqp_broker.operations.posting import retire_verbs
from amqp_broker.persistence import Post, Record, Retire, Unit
from amqp_broker.persistence.questions import PageOf, RetainedBy

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

PAGE_MESSAGES: Final = 1_000  # of one commit
PAGE_BYTES: Final = 4 << 20


@attrs.define
class Made:
    """What became of the messages that waited: archived in their places, or posted again."""

    archived: int = 0
    posted_again: int = 0


async def make_logs(nodes: BrokerNodes) -> None:
    """For every log that messages wait in; before anybody is served. Raises StoreError."""
    for queue in nodes.queues.queues():
        if isinstance(queue, Log) and queue.message_count:
            made = await _Making(nodes, queue).run()
            queue.take_no_room()
            logger("retained").info("queue.made_log", queue=queue.name, **attrs.asdict(made))


class _Making:
    def __init__(self, nodes: BrokerNodes, queue: Log) -> None:
        self._nodes = nodes
        self._queue = queue
        self._made = Made()

    async def run(self) -> Made:
        queue, made = self._queue, self._made
        end = queue.next_offset
        retained = await self._nodes.writer.ask(RetainedBy(queue.queue_id))
        assert retained is not None, f"a log retains, {queue.name!r} does not"
        first_kept = retained.first_offset
        at = queue.backlog.disk_from
        while 0 <= at < (end if queue.events else first_kept):
            at = await self._page(at, first_kept)
        left = queue.message_count - made.archived - made.posted_again
        if left > 0 and not queue.events:
            await self._nodes.store_step([Retire(queue.queue_id, first_kept, end - 1)])
            made.archived += left
        return made

    async def _page(self, at: int, first_kept: int) -> int:
        """One commit; where the next one goes on."""
        queue = self._queue
        page = await self._nodes.writer.ask(PageOf(queue.queue_id, at, PAGE_MESSAGES, PAGE_BYTES))
        self._nodes.lose(queue, page)
        if page.records:
            await self._nodes.store_step(self._verbs(page.records, first_kept))
        return page.next_offset

    def _verbs(self, records: list[Record], first_kept: int) -> Unit:
        queue = self._queue
        former = [record.offset for record in records]
        unit = retire_verbs(queue.queue_id, records)
        again = [record for record in records if record.offset < first_kept]
        if again:
            queue.number(again)
            unit += [Post(queue.queue_id, again), queue.archive_verb(again[0].offset, len(again))]
        if queue.events:
            unit += message_events.made_log(queue, former, again, self._nodes.clock.now_ms())
        self._made.posted_again += len(again)
        self._made.archived += len(records) - len(again)
        return unit
