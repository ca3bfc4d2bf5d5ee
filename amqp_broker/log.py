"""A log, a kind of queue: what comes is archived in the unit that posts it. Nobody takes its messages, none
expires; they are read by offset, until its retention drops them.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqp_broker.counts import ARRIVED
from amqp_broker.links import Account
from amqp_broker.persistence import Record, Retire, Unit
from amqp_broker.queue import ARCHIVED, Queue


class Log(Queue):
    """A queue without consumers, whose backlog holds nothing but its end."""

    __slots__ = ()

    def post_verbs(self, records: Sequence[Record], durable_count: int) -> Unit:
        """The verbs that post messages and archive them."""
        if not durable_count:
            return []
        posts = super().post_verbs(records, durable_count)
        return [*posts, self.archive_verb(records[0].offset, len(records))]

    def archive_verb(self, first_offset: int, count: int) -> Retire:
        """What makes messages ARCHIVED, in the unit that brings them: a log retains, so they are kept."""
        return Retire(self.queue_id, first_offset, first_offset + count - 1)

    def outcome_at_once(self) -> str:
        """ARCHIVED: nobody else will give a message of a log an outcome."""
        return ARCHIVED

    def make_available(self, records: Sequence[Record], size: int, account: Account | None = None) -> None:
        """The messages can be read, once their commit has returned; they take no room."""
        if records:
            self.counts[ARRIVED] += len(records)
            self.backlog.available_to = records[-1].offset + 1

    def make_stored_available(
        self, first_offset: int, count: int, size: int, *, may_expire: bool = False
    ) -> None:
        """`count` messages that are on disk only can be read; they take no room."""
        self.counts[ARRIVED] += count
        self.backlog.available_to = first_offset + count

    def take_no_room(self) -> None:
        """What waited for consumers before its queue became a log is archived: nothing of it is for them."""
        self.message_count = self.byte_count = 0
        self.forget_messages()
        self.backlog.available_to = self.next_offset
