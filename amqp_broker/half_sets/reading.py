"""What is staged in a set is read, page by page, so that others have a turn in between: for its checksum
after a start, and for what the event log says of its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from amqp_broker.log_setup import logger
from amqp_broker.message_events import put_by_set
from amqp_broker.persistence import Journal, PageOf, Record, Store

if TYPE_CHECKING:
    from amqp_broker.coordinator import SetPart
    from amqp_broker.half_sets.half_sets import HalfSets
    from amqp_broker.operations.writer import Writer
    from amqp_broker.queue import Queue

PAGE_MESSAGES: Final = 1_000  # what the loop does at once
PAGE_BYTES: Final = 4 << 20
NAMED_MESSAGES: Final = 200_000  # of one commit, whose names are kept until then; the rest has offsets only


class ReadBack:
    """What was staged before the start of the broker is read for its checksum."""

    def __init__(self, half_sets: HalfSets, writer: Writer, part: SetPart, then: Callable[[], None]) -> None:
        self._half_sets = half_sets
        self._writer = writer
        self._part = part
        self._then = then
        self._at = 0
        self._sum = 0
        self._ended = False

    def start(self) -> None:
        """Read, between commits; others have a turn after each page."""
        self._writer.read(self._look, self._failed)

    def _failed(self, error: Exception) -> None:
        """A fault of the broker: what waits for the checksum finds it unread."""
        if not self._ended:
            self._ended = True
            self._then()

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
        self._half_sets.when_read(part.staged, self._then)


class NameReading:
    """Sealed parts are read for what their messages are called; `part.told` has it then: entries of the event
    log and how many messages are before each. Empty: nothing can be told but offsets.
    """

    def __init__(
        self, writer: Writer, placed: Iterable[tuple[Queue, SetPart]], then: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._placed = deque(placed)
        self._then = then
        self._room = NAMED_MESSAGES
        self._at = 0
        self._told: list[tuple[int, Journal]] = []
        self._count = 0

    def start(self) -> None:
        """Read, between commits; others have a turn after each page."""
        while self._placed and self._placed[0][1].count > self._room:
            self._placed.popleft()[1].told = []
        if self._placed:
            self._writer.read(self._look, self._failed)
        else:
            self._then()

    def _failed(self, error: Exception) -> None:
        """A fault of the broker: the commit looks again."""
        if self._placed:
            self._next(None)

    def _look(self, store: Store) -> None:
        queue, part = self._placed[0]
        if part.staged.state is None:
            self._next([])
            return
        page = store.ask(PageOf(part.queue_id, self._at, PAGE_MESSAGES, PAGE_BYTES))
        self._at = page.next_offset
        if page.records:
            self._told.extend(told_of(queue, part, page.records, self._count))
            self._count += len(page.records)
        if not page.records or self._count >= part.count:
            self._next(self._told if self._count == part.count else None)  # else the commit looks again
        else:
            self.start()

    def _next(self, told: list[tuple[int, Journal]] | None) -> None:
        _, part = self._placed.popleft()
        part.told = told
        self._room -= part.count
        self._at = self._count = 0
        self._told = []
        self.start()


def told_of(queue: Queue, part: SetPart, records: list[Record], before: int) -> list[tuple[int, Journal]]:
    """What the event log will say of some messages of a part, `before` of which others are."""
    staged = part.staged
    told: list[tuple[int, Journal]] = []
    for verb in put_by_set(
        queue, 0, len(records), staged.producer.group, staged.set_id, staged.producer.name, staged.epoch,
        0, records,
    ):  # fmt: skip
        assert isinstance(verb, Journal), "what is told goes into the event log"
        told.append((before, verb))
        before += verb.event.count
    return told


def named(part: SetPart) -> bool:
    """Whether it is known what the event log will say of all its messages."""
    if part.count > NAMED_MESSAGES:
        part.told = []
    return part.told is not None and (not part.told or _count(part.told) == part.count)


def name(store: Store, queue: Queue, part: SetPart) -> None:
    """The same as NameReading, at once: for the few that were staged while others were read."""
    told: list[tuple[int, Journal]] = []
    at = count = 0
    while count < part.count:
        page = store.ask(PageOf(part.queue_id, at, PAGE_MESSAGES, PAGE_BYTES))
        if not page.records:
            break
        at = page.next_offset
        told.extend(told_of(queue, part, page.records, count))
        count += len(page.records)
    part.told = told if count == part.count else []


def _count(told: list[tuple[int, Journal]]) -> int:
    before, last = told[-1]
    return before + last.event.count
