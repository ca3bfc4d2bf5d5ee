"""The available messages of one queue, in their order: in memory what is needed soon, the rest on disk.

    offsets   0 ........ 41 | 42 ............ 977 | 978 .................. 20,000,000
              gone or held  | ready (in memory)   | on disk only, read page by page
              with single ones that came back     | non-durable ones among them wait apart

Everything that a consumer holds came out of the window from its front, so a message that comes back always
stands before the window: the returned ones are served first, in the order of their offsets, and so take their
old places. Those that are too large for some of the links wait apart (`Oversized`), in memory, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from amqp_broker.oversized import Oversized
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, Record

WINDOW_MESSAGES: Final = 8_192  # of each queue in memory: eight times the credit that clients usually give
WINDOW_BYTES: Final = 8 << 20  # the same bound for large messages
_NEVER: Final = 1 << 62
_FEW: Final = 16  # messages that are taken out of the window one by one
_TRIM_AT: Final = 2_048  # taken messages at the front of the window before their places are freed


class Backlog:
    """What a queue has to give, first in first out. Pure: it never reads the disk, it says what it wants
    read.
    """

    __slots__ = (
        "_head",
        "_ready",
        "_ready_bytes",
        "_returned",
        "_taken_bytes",
        "_memory_only",
        "ahead",
        "back",
        "oversized",
        "disk_count",
        "disk_from",
        "available_to",
        "mixed",
        "volatile_bytes",
        "window_bytes",
        "window_messages",
    )

    def __init__(self, window_messages: int = WINDOW_MESSAGES, window_bytes: int = WINDOW_BYTES) -> None:
        self.window_messages = window_messages
        self.window_bytes = window_bytes
        self._ready: list[Record] = []
        self._head = 0
        self._ready_bytes = 0
        self._taken_bytes = 0
        self._returned: list[tuple[int, Record]] = []
        self.back: set[int] = set()
        """The offsets of messages that came back."""
        self.ahead: set[int] = set()
        """The offsets of messages that were taken from the disk before the window came to them."""
        self._memory_only: deque[Record] = deque()
        self.oversized = Oversized()
        self.mixed = False
        """Whether a more urgent message goes before others (`PriorityBacklog`)."""
        self.volatile_bytes = 0
        self.disk_from = -1
        self.disk_count = 0
        self.available_to = 0

    def recovered(self, first_offset: int, next_offset: int, count: int) -> None:
        """After a restart everything is on disk: `count` messages between the two offsets."""
        self.available_to = next_offset
        if count:
            self.disk_from = first_offset
            self.disk_count = count

    def available(self) -> int:
        """How many messages could be given, on disk or in memory."""
        ready = len(self._ready) - self._head
        return ready + len(self._returned) + len(self._memory_only) + self.disk_count + self.oversized.count

    def oldest(self) -> Record | None:
        """The first of those that could be given, where it is in memory."""
        if self._returned:
            return self._returned[0][1]
        return self._ready[self._head] if self._head < len(self._ready) else None

    def loaded(self) -> int:
        """How many messages could be given at once, without reading the disk, to whoever wants them."""
        return len(self._ready) - self._head + len(self._returned)

    def add(self, records: Sequence[Record], copies: bool = True) -> int:
        """Append newly available messages, which stand behind everything else. Without `copies` what is on
        disk is not kept in memory, too. Returns what those would take of which there is no copy.
        """
        if not records:
            return 0
        self.available_to = records[-1].offset + 1
        if self.disk_from < 0 and copies:
            room = self.window_messages - (len(self._ready) - self._head)
            if len(records) == 1:
                size = len(records[0].body)
            else:
                size = sum([len(record.body) for record in records])
            if len(records) <= room and self._ready_bytes + size <= self.window_bytes:
                self._ready.extend(records)
                self._ready_bytes += size
                return 0
        return self._spill(records, copies)

    def add_stored(self, first_offset: int, count: int) -> None:
        """Append newly available messages that are on disk only; nothing of them is loaded before it is
        needed.
        """
        self.available_to = first_offset + count
        if self.disk_from < 0:
            self.disk_from = first_offset
        self.disk_count += count

    def _spill(self, records: Sequence[Record], copies: bool) -> int:
        spilled = 0
        for record in records:
            size = len(record.body)
            if record.durable:
                if self.disk_from < 0:
                    full = len(self._ready) - self._head >= self.window_messages
                    if copies and not full and self._ready_bytes + size <= self.window_bytes:
                        self._ready.append(record)
                        self._ready_bytes += size
                        continue
                    self.disk_from = record.offset
                self.disk_count += 1
                spilled += size + RECORD_OVERHEAD_BYTES
            elif self.disk_from < 0:
                self._ready.append(record)
                self._ready_bytes += size
            else:
                self._memory_only.append(record)
                self.volatile_bytes += size + RECORD_OVERHEAD_BYTES
        return spilled

    def take(self, count: int) -> list[Record]:
        """Remove and return at most `count` messages from the front."""
        if not self._returned:
            return self._take_ready(count)
        run: list[Record] = []
        while self._returned and len(run) < count:
            first = self._returned[0][0]
            if self._head < len(self._ready) and self._ready[self._head].offset < first:
                run.extend(self._take_ready(min(self._stand_before(first), count - len(run))))
            elif 0 <= self.disk_from < first:
                return run  # what is on disk comes before it
            else:
                self.back.discard(first)
                run.append(heappop(self._returned)[1])
        if len(run) < count:
            run.extend(self._take_ready(count - len(run)))
        return run

    def _stand_before(self, offset: int) -> int:
        """How many messages of the window stand before this offset."""
        return bisect_left(self._ready, offset, lo=self._head, key=_offset) - self._head

    def take_for(self, largest: int, count: int) -> list[Record]:
        """`take` for a link that takes messages of `largest` octets (0 is of any size): what is oversized
        comes in its old place, as far as it is not known to be too large.
        """
        run: list[Record] = []
        while len(run) < count:
            front = self._ready[self._head].offset if self._head < len(self._ready) else self.available_to
            if self._returned:
                front = min(front, self._returned[0][0])
            record = self.oversized.take(largest, front)
            if record is not None:
                run.append(record)
            elif not self.loaded():
                break
            elif self.oversized.beyond(largest) == self.oversized.count:
                run.extend(self.take(count - len(run)))
                break
            else:
                run.extend(self.take(1))
        return run

    def _take_ready(self, count: int) -> list[Record]:
        head = self._head
        run = self._ready[head : head + count]
        head += len(run)
        if head >= len(self._ready):
            self._ready.clear()
            self._ready_bytes = self._taken_bytes = 0
            head = 0
        else:
            size = sum([len(record.body) for record in run])
            self._ready_bytes -= size
            self._taken_bytes += size
            if head >= _TRIM_AT or self._taken_bytes >= self.window_bytes:
                del self._ready[:head]
                head = self._taken_bytes = 0
        self._head = head
        return run

    def put_back(self, record: Record) -> None:
        """A message that somebody held is available again, in its old place."""
        self.back.add(record.offset)
        heappush(self._returned, (record.offset, record))

    def take_out(self, records: Sequence[Record]) -> list[Record]:
        """Remove messages from where they are; returns those that were on disk only."""
        offsets = {record.offset for record in records}
        returned = offsets & self.back
        if returned:
            self.back -= returned
            self._returned = [entry for entry in self._returned if entry[0] not in returned]
            heapify(self._returned)
        elsewhere = [record for record in records if record.offset not in returned]
        places = sorted([place for record in elsewhere if (place := self._place(record)) >= 0])
        window = {self._ready[place].offset for place in places}
        self._ready_bytes -= sum([len(self._ready[place].body) for place in places])
        for place in reversed(places) if len(places) < _FEW else ():
            del self._ready[place]
        if len(places) >= _FEW:
            self._ready[self._head :] = [
                record for record in self._ready[self._head :] if record.offset not in window
            ]
        rest = [record for record in elsewhere if record.offset not in window]
        return self._take_out_far(rest) if rest else []

    def withhold(self, offsets: Iterable[int]) -> None:
        """After a restart somebody still holds these, which are on disk only: as if they were taken out."""
        withheld = set(offsets)
        self.disk_count = max(0, self.disk_count - len(withheld))
        self.ahead |= withheld

    def _place(self, record: Record) -> int:
        place = bisect_left(self._ready, record.offset, lo=self._head, key=_offset)
        there = place < len(self._ready) and self._ready[place].offset == record.offset
        return place if there else -1

    def _take_out_far(self, records: list[Record]) -> list[Record]:
        """Remove messages that are not in the window: too large for some, in memory only, or on disk."""
        if self.oversized.count:
            known = {record.offset for record in self.oversized.records()}
            self.oversized.remove([record for record in records if record.offset in known])
            records = [record for record in records if record.offset not in known]
        volatile = {record.offset for record in records if not record.durable and self._memory_only}
        if volatile:
            gone = [record for record in self._memory_only if record.offset in volatile]
            self._memory_only = deque(each for each in self._memory_only if each.offset not in volatile)
            self.volatile_bytes -= sum([len(each.body) + RECORD_OVERHEAD_BYTES for each in gone])
            volatile = {record.offset for record in gone}
        records = [record for record in records if record.offset not in volatile]
        self.disk_count = max(0, self.disk_count - len(records))
        self.ahead.update(record.offset for record in records)
        return records

    def next_in_order(self, cursor: int, count: int) -> list[Record]:
        """At most `count` available messages in memory from offset `cursor` on, up to those that are on
        disk only.
        """
        end = self.disk_from if self.disk_from >= 0 else self.available_to
        start = bisect_left(self._ready, cursor, lo=self._head, key=_offset)
        found = self._ready[start : start + count]
        others = [record for offset, record in self._returned if cursor <= offset < end]
        if self.oversized.count:
            others.extend(record for record in self.oversized.records() if cursor <= record.offset < end)
        return sorted([*found, *others], key=_offset)[:count] if others else found

    def page_wanted(self) -> bool:
        """Whether messages are on disk only and the window is less than half full.

        Returned messages that no consumer wants (undeliverable-here) stay in memory, so they count, too.
        """
        return (
            self.disk_from >= 0
            and (len(self._ready) - self._head) * 2 < self.window_messages
            and (len(self._returned) <= self.window_messages or self._returned[0][0] > self.disk_from)
            and self._ready_bytes * 2 < self.window_bytes
        )

    def page_room(self) -> tuple[int, int]:
        """How many messages and bytes the next page may bring."""
        return self.window_messages - (len(self._ready) - self._head), self.window_bytes - self._ready_bytes

    def paged(self, records: Sequence[Record], next_offset: int, lost: int = 0) -> None:
        """Take what was read from `disk_from` up to `next_offset`; `lost` of them failed their checksums.

        Where the disk ends is not for a count to say: nobody knows for sure what damaged rows stood for.
        """
        self.disk_count = max(0, self.disk_count - len(records) - lost)
        if self.ahead:
            self.ahead = {offset for offset in self.ahead if offset >= next_offset > self.disk_from}
        at_end = next_offset >= self.available_to or next_offset <= self.disk_from
        self._ready.extend(self._merge_volatile(records, None if at_end else next_offset))
        self._ready_bytes += sum([len(record.body) for record in records])
        if at_end:
            self.disk_from = -1
            self.disk_count = 0
        else:
            self.disk_from = next_offset

    def _merge_volatile(self, records: Sequence[Record], before: int | None) -> Sequence[Record]:
        waiting = self._memory_only
        if not waiting:
            return records
        merged = list(records)
        while waiting and (before is None or waiting[0].offset < before):
            record = waiting.popleft()
            self.volatile_bytes -= len(record.body) + RECORD_OVERHEAD_BYTES
            self._ready_bytes += len(record.body)
            merged.append(record)
        merged.sort(key=_offset)
        return merged

    def take_expired(self, first: int, end: int, now_ms: int) -> tuple[list[Record], int]:
        """Remove what is expired of the messages in memory with offsets from `first` up to `end`, and the
        earliest expiry of those that stay; 0 if none of them ever expires.
        """
        lo = bisect_left(self._ready, first, lo=self._head, key=_offset)
        hi = bisect_left(self._ready, end, lo=lo, key=_offset)
        window = self._ready[lo:hi]
        expired, stays = _split(window, first, end, now_ms)
        if expired:
            self._ready_bytes -= sum([len(record.body) for record in expired])
            self._ready[lo:hi] = [record for record in window if not 0 < record.expires_at_ms <= now_ms]
        others = [record for _, record in self._returned] if self._returned else []
        gone, earliest = _split(others, first, end, now_ms)
        if gone:
            expired.extend(gone)
            offsets = {record.offset for record in gone}
            self._returned = [entry for entry in self._returned if entry[0] not in offsets]
            heapify(self._returned)
            self.back -= offsets
        stays = min(stays, earliest)
        if self._memory_only:
            gone, earliest = self._take_expired_volatile(first, end, now_ms)
            expired.extend(gone)
            stays = min(stays, earliest)
        if self.oversized.count:
            gone, earliest = _split(self.oversized.records(), first, end, now_ms)
            self.oversized.remove(gone)
            expired.extend(gone)
            stays = min(stays, earliest)
        return expired, 0 if stays == _NEVER else stays

    def _take_expired_volatile(self, first: int, end: int, now_ms: int) -> tuple[list[Record], int]:
        waiting = self._memory_only
        lo = bisect_left(waiting, first, key=_offset)
        hi = bisect_left(waiting, end, lo=lo, key=_offset)
        waiting.rotate(-lo)
        between = [waiting.popleft() for _ in range(hi - lo)]
        expired, earliest = _split(between, first, end, now_ms)
        if expired:
            self.volatile_bytes -= sum([len(record.body) + RECORD_OVERHEAD_BYTES for record in expired])
            between = [record for record in between if not 0 < record.expires_at_ms <= now_ms]
        waiting.extendleft(reversed(between))
        waiting.rotate(lo)
        return expired, earliest

    def first_offset(self) -> int:
        """At or below the offset of every available message."""
        first = self.available_to
        if self._head < len(self._ready):
            first = self._ready[self._head].offset
        if self._returned:
            first = min(first, self._returned[0][0])
        if self.disk_from >= 0:
            first = min(first, self.disk_from)
        if self._memory_only:
            first = min(first, self._memory_only[0].offset)
        return min([first, *[record.offset for record in self.oversized.records()]])

    def lose(self, count: int) -> None:
        """`count` of the messages on disk turned out to be damaged; they are not there any more."""
        self.disk_count = max(0, self.disk_count - count)

    def gone_ahead(self, records: Sequence[Record]) -> None:
        """Messages that `take_out` took have left the store, too: no page has them any more."""
        if self.ahead:
            self.ahead.difference_update([record.offset for record in records])

    def shown(
        self, records: Sequence[Record], start: int, before: int | None, count: int,
        others: Sequence[Record] = (),
    ) -> tuple[list[Record], int]:  # fmt: skip
        """What a browser sees of a page: at most `count` messages, those that only memory holds and `others`
        in their places, and the offset from which it goes on. `records` were read from `start` up to
        `before`; None is the end.
        """
        end = self.available_to if before is None else before
        merged = list(records)
        merged.extend([record for record in self._memory_only if start <= record.offset < end])
        if self.ahead:
            merged = [record for record in merged if record.offset not in self.ahead]
            merged.extend([record for offset, record in self._returned if start <= offset < end])
        merged.extend(others)
        merged.sort(key=_offset)
        if len(merged) > count:
            return merged[:count], merged[count].offset
        return merged, end

    def peek(self, cursor: int, count: int) -> list[Record]:
        """At most `count` available messages in memory from offset `cursor` on, which stay where they are."""
        found = self.next_loaded(cursor, count)
        if self.oversized.count:
            found.extend([record for record in self.oversized.records() if record.offset >= cursor])
            found = sorted(found, key=_offset)[:count]
        return found

    def next_loaded(self, cursor: int, count: int) -> list[Record]:
        """At most `count` messages in memory from offset `cursor` on that are not oversized; they stay."""
        end = self.disk_from if self.disk_from >= 0 else _NEVER
        found = sorted([record for offset, record in self._returned if cursor <= offset < end], key=_offset)
        start = bisect_left(self._ready, cursor, lo=self._head, key=_offset)
        window = self._ready[start : start + count]
        if found and window and found[-1].offset > window[0].offset:
            return sorted([*found, *window], key=_offset)[:count]
        return [*found, *window][:count]

    def clear(self) -> int:
        """Forget every available message; returns how many there were."""
        count = self.available()
        self._ready.clear()
        self._returned.clear()
        self.back.clear()
        self.ahead.clear()
        self._memory_only.clear()
        self.oversized.clear()
        self._head = self._ready_bytes = self._taken_bytes = self.volatile_bytes = self.disk_count = 0
        self.disk_from = -1
        return count

    def memory_bytes(self) -> int:
        """What the messages in memory take, about, of those that only memory holds or that the window
        keeps.
        """
        in_memory = self.loaded() + self.oversized.count
        return (
            self._ready_bytes
            + self.volatile_bytes
            + self.oversized.byte_count
            + in_memory * RECORD_OVERHEAD_BYTES
        )


def _split(records: Iterable[Record], first: int, end: int, now_ms: int) -> tuple[list[Record], int]:
    """The expired ones of `records` between the two offsets, and when the next one of the others expires."""
    expired: list[Record] = []
    earliest = _NEVER
    for record in records:
        at_ms = record.expires_at_ms
        if at_ms and first <= record.offset < end:
            if at_ms <= now_ms:
                expired.append(record)
            elif at_ms < earliest:
                earliest = at_ms
    return expired, earliest


def _offset(record: Record) -> int:
    return record.offset
