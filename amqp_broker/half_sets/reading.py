"""Reading the messages that are staged in a set, page by page, so that others have a turn in between: for its
checksum after a start, and for the events that name its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from amqp_broker.log_setup import logger
from amqp_broker.message_events import put_by_set
from amqp_broker.persistence import Journal, Record, Store
from amqp_broker.persistence.questions import PageOf

if TYPE_CHECKING:
    from amqp_broker.coordinator.half_sets import SetPart
    from amqp_broker.operations.writer import Writer
    from amqp_broker.queue import Queue

PAGE_MESSAGES: Final = 1_000  # what the loop does at once
PAGE_BYTES: Final = 4 << 20
NAMED_MESSAGES: Final = 200_000  # of one commit, whose names are kept until then; the rest has offsets only


class ReadBack:
    """Reads the messages of a part that were staged before the start of the broker, for its checksum. `then`
    is called when it is known, or `failed` after a fault of the broker: who waits for it finds it unread.
    """

    def __init__(
        self, writer: Writer, part: SetPart, then: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._part = part
        self._then = then
        self._not_read = failed
        self._at = 0
        self._sum = 0
        self._ended = False

    def start(self) -> None:
        """Read, between commits; others have a turn after each page."""
        self._writer.read(self._look, self._failed)

    def _failed(self, error: Exception) -> None:
        if not self._ended:
            self._ended = True
            self._not_read()

    def _look(self, store: Store) -> None:
        part = self._part
        if part.unread_to and part.staged.state is not None:  # else another has read it, or it is gone
            page = store.ask(PageOf(part.queue_id, self._at, PAGE_MESSAGES, PAGE_BYTES))
            self._sum += sum([crc32(each.body) for each in page.records if each.offset < part.unread_to])
            for lost in page.quarantined:
                part.count -= 1
                logger("half_sets").error("message.quarantined", set=part.staged.set_id, reason=lost.reason)
            self._at = page.next_offset
            if self._at < part.unread_to and (page.records or page.quarantined):
                self.start()
                return
            part.unread_to = 0
            part.add(0, 0, self._sum)
        self._ended = True
        self._then()


class NameReading:
    """Reads the messages of sealed parts, for the events that name them. `part.put_events` has them then,
    with how many messages are before each. Empty: the journal gets only their offsets.
    """

    def __init__(
        self, writer: Writer, destinations: Iterable[tuple[Queue, SetPart]], then: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._destinations = deque(destinations)
        self._then = then
        self._room = NAMED_MESSAGES
        self._at = 0
        self._events: list[tuple[int, Journal]] = []
        self._count = 0

    def start(self) -> None:
        """Read, between commits; others have a turn after each page."""
        while self._destinations and self._destinations[0][1].count > self._room:
            self._destinations.popleft()[1].put_events = []
        if self._destinations:
            self._writer.read(self._look, self._failed)
        else:
            self._then()

    def _failed(self, error: Exception) -> None:
        """A fault of the broker met the page: the commit reads the part again."""
        if self._destinations:
            self._next(None)

    def _look(self, store: Store) -> None:
        queue, part = self._destinations[0]
        if part.staged.state is None:
            self._next([])
            return
        page = store.ask(PageOf(part.queue_id, self._at, PAGE_MESSAGES, PAGE_BYTES))
        self._at = page.next_offset
        if page.records:
            self._events.extend(put_events_of(queue, part, page.records, self._count))
            self._count += len(page.records)
        if not page.records or self._count >= part.count:
            self._next(self._events if self._count == part.count else None)  # else the commit reads it again
        else:
            self.start()

    def _next(self, events: list[tuple[int, Journal]] | None) -> None:
        _, part = self._destinations.popleft()
        part.put_events = events
        self._room -= part.count
        self._at = self._count = 0
        self._events = []
        self.start()


def put_events_of(
    queue: Queue, part: SetPart, records: list[Record], before: int
) -> list[tuple[int, Journal]]:
    """The events that will tell that some messages of a part were put; `before` others stand before them."""
    staged = part.staged
    events: list[tuple[int, Journal]] = []
    for verb in put_by_set(
        queue, 0, len(records), staged.producer.group, staged.set_id, staged.producer.name, staged.epoch,
        0, records,
    ):  # fmt: skip
        assert isinstance(verb, Journal), "only entries of the journal name messages"
        events.append((before, verb))
        before += verb.event.count
    return events


def named(part: SetPart) -> bool:
    """Whether the events are known that name all its messages, or it has too many for that."""
    if part.count > NAMED_MESSAGES:
        part.put_events = []
    return part.put_events is not None and (not part.put_events or _count(part.put_events) == part.count)


def name(store: Store, queue: Queue, part: SetPart) -> None:
    """Read the events that name its messages at once: for the few that were staged meanwhile."""
    events: list[tuple[int, Journal]] = []
    at = count = 0
    while count < part.count:
        page = store.ask(PageOf(part.queue_id, at, PAGE_MESSAGES, PAGE_BYTES))
        if not page.records:
            break
        at = page.next_offset
        events.extend(put_events_of(queue, part, page.records, count))
        count += len(page.records)
    part.put_events = events if count == part.count else []


def _count(events: list[tuple[int, Journal]]) -> int:
    before, last = events[-1]
    return before + last.event.count
