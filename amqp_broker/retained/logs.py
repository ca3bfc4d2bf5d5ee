"""What can be read by offset: the messages of a retaining queue, and the journal.

Both are dense: an offset below `next` that is not below `first` is there, unless it is damaged. Pages come
ready to be sent: the bare message octet for octet, with the annotations that say where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from amqp_broker.clock import BrokerClock
from amqp_broker.configuration import LOG_KIND, QUEUE_KIND
from amqp_broker.event_checksums import MODULUS, checksum
from amqp_broker.event_types import event_fields, event_type
from amqp_broker.frames import Header, OffsetStamp, Properties, encode_composite
from amqp_broker.frames import encode_section as section
from amqp_broker.frames.flat_maps import encode_flat_map
from amqp_broker.log import Log
from amqp_broker.log_setup import logger
from amqp_broker.persistence import JOURNAL_ID, Event, Record, Store
from amqp_broker.persistence.questions import EventRange, EventsFrom, OffsetAt, RetainedBy, RetainedPageOf
from amqp_broker.queue import Queue
from amqp_broker.records import UINT_MAX, replace_annotations
from amqp_broker.retained.filters import AT_OFFSET, AT_TIME, FIRST, LAST, Start

EVENTS: Final = "$events"
"""What cursors know the journal by."""

EVENTS_KIND: Final = "events"

STAMP: Final = OffsetStamp("x-stream-offset", "x-opt-enqueued-time")
_EVENT_HEADER: Final = encode_composite(Header(durable=True))
_VALUE: Final = section("amqp-value", None)[:-1]
"""The descriptor of an amqp-value section, without the value."""
_HEADERS_MAX: Final = 1_024  # distinct priorities and delivery counts: far fewer in practice

_headers: dict[tuple[int, int], bytes] = {}
_subjects: dict[str, bytes] = {}


@attrs.frozen
class Page:
    """Messages in order, ready to be sent; `next_offset` is where the next page begins."""

    records: list[Record]
    next_offset: int


@attrs.frozen
class Bounds:
    """The offsets that can be read: from `first`, and before `next_offset`; `byte_count` of them in all."""

    first: int
    next_offset: int
    byte_count: int = 0


class RetainedLog(Protocol):
    """Something that is read by offset. What takes a store is called between two commits."""

    address: str
    log_id: int
    kind: str

    def bounds(self, store: Store) -> Bounds:
        """What can be read now."""

    @property
    def end(self) -> int:
        """The next offset, as far as it is known without the store."""

    def page(self, store: Store, start: int, messages: int, size: int) -> Page:
        """The next messages at or after `start`."""

    def offset_at(self, store: Store, at_ms: int) -> int:
        """The first offset of that time of the clock on the wall, or later; the next offset if there is none.
        """


class QueueLog:
    """The messages of a queue that retains them, settled ones included."""

    def __init__(self, queue: Queue, clock: BrokerClock) -> None:
        self.queue = queue
        self._clock = clock
        self.address = queue.name
        self.log_id = queue.queue_id
        self.kind = LOG_KIND if isinstance(queue, Log) else QUEUE_KIND
        self._log = logger("retained")

    def bounds(self, store: Store) -> Bounds:
        """What can be read now; nothing if its retention ended."""
        found = store.ask(RetainedBy(self.log_id))
        if found is None:
            return Bounds(self.queue.next_offset, self.queue.next_offset)
        end = max(found.next_offset, self.queue.next_offset)  # with what the group under way has numbered
        return Bounds(found.first_offset, end, found.byte_count)

    @property
    def end(self) -> int:
        """The next offset after the messages whose commits have returned."""
        return self.queue.backlog.available_to

    def page(self, store: Store, start: int, messages: int, size: int) -> Page:
        """Messages with a header of their own: nobody acquires a copy, and it does not expire. A message that
        cannot be told where it stands is passed over as a damaged one: it is as missing, and it is logged.
        """
        found = store.ask(RetainedPageOf(self.log_id, start, messages, size))
        for lost in found.quarantined:
            self._log.error("retained.damaged", queue=self.address, offset=lost.offset, reason=lost.reason)
        records = found.records
        shown = self._clock.shown
        for record in records:
            record.enqueued_at_ms = shown(record.enqueued_at_ms)
            if record.annotations is not None:
                replace_annotations(record)
            key = (record.priority, record.delivery_count)
            record.header_bytes = _headers.get(key) or _header(key)
        for place, reason in reversed(STAMP.write(records)):
            offset = records.pop(place).offset
            self._log.error("retained.malformed", queue=self.address, offset=offset, reason=reason)
        return Page(records, found.next_offset)

    def offset_at(self, store: Store, at_ms: int) -> int:
        """The first offset that was published at that time or later; the next offset if there is none."""
        return store.ask(OffsetAt(self.log_id, self._clock.time_of(at_ms)))


def _header(key: tuple[int, int]) -> bytes:
    if len(_headers) >= _HEADERS_MAX:
        _headers.clear()
    header = Header(durable=True, priority=key[0], delivery_count=min(key[1], UINT_MAX))
    found = _headers[key] = encode_composite(header)
    return found


class JournalLog:
    """The store's journal: offsets are the numbers of the events. `end` is as of the last look."""

    def __init__(self, clock: BrokerClock) -> None:
        self._clock = clock
        self.address = EVENTS
        self.log_id = JOURNAL_ID
        self.kind = EVENTS_KIND
        self.end = 0

    def bounds(self, store: Store) -> Bounds:
        """What can be read now."""
        first, self.end = store.ask(EventRange())
        return Bounds(first, self.end)

    def page(self, store: Store, start: int, messages: int, size: int) -> Page:
        """Each event as a message: its type is the subject, its fields are a map."""
        shown = self._clock.shown
        events = store.ask(EventsFrom(start, messages))
        records = [_event_message(event, shown(event.at_ms)) for event in events]
        kept = _within(records, size)
        unchanged = STAMP.write(kept)
        assert not unchanged, "an event has no annotations"
        first, self.end = store.ask(EventRange())
        return Page(kept, kept[-1].offset + 1 if kept else max(start, first))

    def checksum(self, store: Store, start: int, count: int) -> tuple[int, int]:
        """How many of the `count` events from `start` on there are, and their checksum."""
        shown = self._clock.shown
        events = store.ask(EventsFrom(start, count))
        total = 0
        for event in events:
            if event.seq < start + count:  # further ones stand for those that are damaged
                total += checksum(_wire_fields(event, shown(event.at_ms)))
        return sum([event.seq < start + count for event in events]), total % MODULUS

    def offset_at(self, store: Store, at_ms: int) -> int:
        """By bisection: events stand in the order of their commits, and so nearly in that of their times."""
        at_ms = self._clock.time_of(at_ms)
        low, high = store.ask(EventRange())
        while low < high:
            middle = (low + high) // 2
            found = store.ask(EventsFrom(middle, 1))
            if found and found[0].at_ms < at_ms:
                low = middle + 1
            else:
                high = middle
        return low


def _event_message(event: Event, at_ms: int) -> Record:
    fields = _wire_fields(event, at_ms)
    kind = event_type(event.kind)
    subject = _subjects.get(kind)
    if subject is None:
        subject = _subjects[kind] = section("properties", Properties(subject=kind))
    body = subject + _VALUE + encode_flat_map(fields)
    return Record(event.seq, body, enqueued_at_ms=at_ms, header_bytes=_EVENT_HEADER)


def _wire_fields(event: Event, at_ms: int) -> dict[str, str | int]:
    """What a reader is told of an event, which was at that time of the clock on the wall."""
    fields: dict[str, str | int] = {"type": event_type(event.kind), "lsn": event.seq, "time": at_ms}
    fields.update(event_fields(event))
    return fields


def _within(records: Sequence[Record], size: int) -> list[Record]:
    """The first records whose bodies have at most `size` octets together; at least one."""
    total = 0
    for count, record in enumerate(records):
        total += len(record.body)
        if total > size and count:
            return list(records[:count])
    return list(records)


def begin_at(start: Start, log: RetainedLog, bounds: Bounds, store: Store) -> int:
    """The offset that `start` means now. An offset is taken as it is, also one that is not there."""
    if start.kind == FIRST:
        return bounds.first
    if start.kind == LAST:
        return max(bounds.first, bounds.next_offset - 1)
    if start.kind == AT_OFFSET:
        return start.number
    if start.kind == AT_TIME:
        return max(bounds.first, log.offset_at(store, start.number))
    return bounds.next_offset
