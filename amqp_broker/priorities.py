"""The available messages of a queue with priorities (3.2.1): the most urgent first, inside each in order.

    in memory     window, returned ones, up to AHEAD_MESSAGES that are more urgent than all on disk
    on disk only  in the order of coming, as in any backlog

A message's place stays its offset; what changes is which of those in memory goes next. Priority decides among
them all. What is on disk only is read in its order, so it is overtaken by what is in memory: by as much as
the window holds, and by what came later and is more urgent than all of it. Inside one priority nothing
overtakes. While all messages in memory have one priority, it is a backlog as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from amqp_broker.backlog import WINDOW_BYTES, WINDOW_MESSAGES, Backlog
from amqp_broker.persistence import Record

AHEAD_MESSAGES: Final = 1_024  # that are kept in memory though others before them are on disk only
_NOWHERE: Final = 1 << 62
_STALE: Final = 64  # entries of what is gone, beside as many as there are messages, before they are left out


class PriorityBacklog(Backlog):
    """What a queue with priorities has to give. Pure."""

    __slots__ = ("_any_on_disk", "_next", "_on_disk", "_priority")

    def __init__(self, window_messages: int = WINDOW_MESSAGES, window_bytes: int = WINDOW_BYTES) -> None:
        super().__init__(window_messages, window_bytes)
        self._priority = -1  # of all of them, while they have one
        self._next: list[tuple[int, int, Record]] = []  # by urgency; some are gone
        self._on_disk: dict[int, int] = {}  # the first offset of each priority that is on disk only
        self._any_on_disk = _NOWHERE  # from here on nobody has looked at priorities

    def recovered(self, first_offset: int, next_offset: int, count: int) -> None:
        """After a restart nobody knows how urgent what is on disk is."""
        super().recovered(first_offset, next_offset, count)
        if count:
            self._any_on_disk = first_offset

    def add_stored(self, first_offset: int, count: int) -> None:
        """As of what is on disk after a restart."""
        super().add_stored(first_offset, count)
        self._any_on_disk = min(self._any_on_disk, first_offset)

    def add(self, records: Sequence[Record], copies: bool = True) -> int:
        """Append newly available messages; those that are more urgent than all on disk stay in memory."""
        first = len(self._ready)
        spilled = super().add(records, copies)
        self._enter(self._ready[first:])
        return spilled

    def paged(self, records: Sequence[Record], next_offset: int, lost: int = 0) -> None:
        """What was read is in memory."""
        first = len(self._ready)
        super().paged(records, next_offset, lost)
        if self.disk_from < 0:
            self._on_disk.clear()
            self._any_on_disk = _NOWHERE
        self._enter(self._ready[first:])

    def put_back(self, record: Record) -> None:
        """A message that somebody held is available again, in its old place."""
        super().put_back(record)
        self._enter((record,))

    def _spill(self, records: Sequence[Record], copies: bool) -> int:
        spilled = 0
        highest = max(self._on_disk, default=-1)
        for record in records:
            urgent = self.disk_from >= 0 and self._any_on_disk == _NOWHERE and record.priority > highest
            if urgent and copies and len(self._returned) < AHEAD_MESSAGES:
                self.ahead.add(record.offset)
                self.mixed = True
                self.put_back(record)
                self._sort()
                continue
            spilled += super()._spill((record,), copies)
            if self.disk_from >= 0:
                self._on_disk.setdefault(record.priority, record.offset)
                highest = max(highest, record.priority)
        return spilled

    def _stands_behind(self, record: Record) -> bool:
        """Whether there may be one of its priority on disk before it."""
        first = min(self._on_disk.get(record.priority, _NOWHERE), self._any_on_disk)
        return 0 <= self.disk_from < record.offset and first < record.offset

    def _enter(self, records: Sequence[Record]) -> None:
        """These are in memory from now on."""
        if not self.mixed:
            if records and self.loaded() <= len(records):
                self._priority = records[0].priority  # of those that were there before none is left
            for record in records:
                if record.priority != self._priority:
                    self.mixed = True
                    self._sort()
                    return
            return
        for record in records:
            heappush(self._next, (-record.priority, record.offset, record))
        if len(self._next) > 2 * self.loaded() + _STALE:
            self._sort()

    def _sort(self) -> None:
        found = self._ready[self._head :] + [record for _, record in self._returned]
        self._next = [(-record.priority, record.offset, record) for record in found]
        heapify(self._next)

    def take(self, count: int) -> list[Record]:
        """Remove and return at most `count` messages, the most urgent ones in memory."""
        if not self.mixed:
            return super().take(count)
        run: list[Record] = []
        waits: list[tuple[int, int, Record]] = []
        taken: set[int] = set()
        while self._next and len(run) < count:
            entry = heappop(self._next)
            _, offset, record = entry
            if offset in taken or not (offset in self.back or self._place(record) >= 0):
                continue
            taken.add(offset)
            if self._stands_behind(record):
                waits.append(entry)
            else:
                run.append(record)
        for entry in waits:
            heappush(self._next, entry)
        self.take_out(run)
        if not self.loaded():
            self.mixed = False
            self._priority = -1
            self._next.clear()
        return run

    def clear(self) -> int:
        """Forget every available message; returns how many there were."""
        self.mixed = False
        self._priority = -1
        self._on_disk.clear()
        self._any_on_disk = _NOWHERE
        self._next.clear()
        return super().clear()
