"""Ring queues: so many messages or octets wait, and a new message drops the oldest that do until it fits.

What a consumer holds, or held and gave back, does not count, and is never dropped: a message comes back at
once, before what was posted earlier is judged, so that grouping would decide which one is the oldest. After a
start nobody knows who held what, and all that wait are equal. What waits for its time does not count either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.persistence import Record, Store, octets_of, size_of

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

LOOKED_AT: Final = 16  # messages at a time, where octets are what is too much


class Ring:
    """The bounds of one queue, each 0 for none, and what there is too much under the group under way."""

    def __init__(self, nodes: BrokerNodes, queue: JudgedQueue, messages: int, octets: int) -> None:
        self._nodes = nodes
        self._queue = queue
        self._most_messages = messages
        self._most_octets = octets
        self._messages = 0  # too many
        self._octets = 0
        self._held: set[int] = set()
        self._undone: set[int] = set()  # came back, and nobody has held them

    def count(self, coming: Sequence[Record], asked: int) -> None:
        """See what is too much with what comes, beside those that links have asked for."""
        queue = self._queue
        self._held = self.held_ones()
        if self._most_messages:
            waiting = queue.backlog.available() - len(self._held)
            self._messages = waiting + len(coming) - asked - self._most_messages
        if self._most_octets:
            brought = octets_of(coming[asked:])
            self._octets = queue.byte_count - queue.held_bytes + brought - self._most_octets

    def too_much(self) -> bool:
        """Whether something has to go."""
        return self._messages > 0 or self._octets > 0

    def held_ones(self) -> set[int]:
        """The offsets of those that wait and were held."""
        backlog = self._queue.backlog
        if not backlog.back:
            self._undone.clear()
            return set()
        if self._undone:
            self._undone &= backlog.back
        return backlog.back - backlog.ahead - self._undone

    def take(self, store: Store) -> list[Record]:
        """The oldest that wait, as many as are too many, in memory or on disk, but for those that were
        held.
        """
        queue, nodes, held, start = self._queue, self._nodes, self._held, 0
        taken: list[Record] = []
        while self.too_much():
            if queue.backlog.loaded() <= len(held) and queue.backlog.disk_from >= 0:
                nodes.page_in(queue, store)
            count = max(self._messages, LOOKED_AT if self._octets > 0 else 1)
            page, next_offset = nodes.page_at(queue, store, start, count + len(held))
            found: list[Record] = []
            for record in page:
                if record.offset not in held and self.too_much():
                    self._less(record)
                    found.append(record)
            queue.take_out(found)
            taken += found
            if next_offset <= start:
                break
            start = next_offset
        return taken

    def drops(self, coming: Sequence[Record], place: int) -> bool:
        """Whether what comes at this place is dropped at once. The last one is only if it never fits."""
        record = coming[place]
        last = place == len(coming) - 1
        if not self.too_much() or (last and not 0 < self._most_octets < size_of(record)):
            return False
        self._less(record)
        return True

    def _less(self, record: Record) -> None:
        self._messages -= 1
        self._octets -= size_of(record)

    def undone(self, records: Sequence[Record]) -> None:
        """These are about to wait again, and nobody has held them."""
        self._undone.update([record.offset for record in records])
        self._queue.hold_no_more(records)
