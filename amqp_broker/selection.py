"""Who gets which message of a queue by a filter (3.5.8). Pure: no I/O, no clock.

Links with the same filter are one seeker. A seeker looks at each available message once, in order, as a
browser does, and takes those that it is for; all others stay where they are, for others.

    backlog   0 1 2 3 4 5 6 7 8 9
                    ^         ^
                    |         cohort of the seekers that have looked at everything: one place for all of them
                    cohort of a seeker that came later, or whose links had no credit for what it found

Seekers at the same place are a cohort, and go on together. Those that want one value of one field
(`equality`) are found by that value: with a thousand of them a message is judged by those alone whose value
it has.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from amqp_broker.backlog import Backlog
from amqp_broker.filters.fields import MessageFields
from amqp_broker.filters.source_filter import SourceFilter
from amqp_broker.hungry import Hungry
from amqp_broker.persistence import Record
from amqp_broker.records import octets

LOOKED_AT_ONCE: Final = 512
"""Messages that are looked at before others have their turn: some milliseconds."""

Grants = list[tuple[Any, list[Record]]]
"""Links, each with the messages that it gets."""


class Link(Protocol):
    """A link that receives from a queue: `demand` is how many messages it could be sent now, `largest` how
    many octets a message may have (0: any).
    """

    demand: int
    standing: Hungry | None
    largest: int
    priority: int
    filter: SourceFilter | None


class Messages(Protocol):
    """The queue: what is available of it, and what becomes of that."""

    backlog: Backlog
    expired: list[Record]

    def take_out(self, records: list[Record]) -> None:
        """Links get these messages."""

    def is_excluded(self, record: Record, consumer: Any) -> bool:
        """Whether a link said undeliverable-here of a message."""


class Seeker(Hungry):
    """The links of a queue that take the same messages, with the same priority. `asking` are those of the
    queue of which a link wants something, and perhaps some that did.
    """

    __slots__ = ("_asking", "back", "cohort", "filter", "key", "largest")

    def __init__(
        self, key: tuple[Any, ...], wanted: SourceFilter, largest: int, priority: int,
        asking: dict[Seeker, None],
    ) -> None:  # fmt: skip
        super().__init__(priority)
        self.key = key
        self.filter = wanted
        self.largest = largest
        self.cohort: Cohort | None = None
        self.back: dict[int, Record] = {}
        """By offset, what it is for and had looked at when it came back; it may be gone again."""
        self._asking = asking

    def enter(self, link: Any) -> None:
        """A link that wanted nothing wants something."""
        super().enter(link)
        self._asking[self] = None

    def give(self, record: Record, given: dict[Any, list[Record]]) -> bool:
        """Give a message to the link that is next, if one wants something."""
        consumer = self.take()
        if consumer is None:
            return False
        self._give_to(consumer, record, given)
        return True

    def give_fit(self, record: Record, given: dict[Any, list[Record]], queue: Messages) -> bool:
        """Give a message to the next link that wants something and has not said undeliverable-here of it."""
        passed: list[Any] = []
        consumer = self.take()
        while consumer is not None and queue.is_excluded(record, consumer):
            passed.append(consumer)
            consumer = self.take()
        if consumer is not None:
            self._give_to(consumer, record, given)
        self.put_back(passed)
        return consumer is not None

    def _give_to(self, consumer: Any, record: Record, given: dict[Any, list[Record]]) -> None:
        self.serve(consumer, 1)
        given.setdefault(consumer, []).append(record)
        self.put_back([consumer])

    def has_room(self, record: Record, now_ms: int) -> bool:
        """Whether a message is not too large for the links."""
        return not self.largest or octets(record, self.largest, now_ms) <= self.largest


class Cohort:
    """Seekers that have looked at everything before `cursor`."""

    __slots__ = ("_by_value", "_others", "cursor", "seekers")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.seekers: dict[tuple[Any, ...], Seeker] = {}
        self._others: dict[tuple[Any, ...], Seeker] = {}
        self._by_value: dict[str, dict[Any, dict[tuple[Any, ...], Seeker]]] = {}

    def add(self, seeker: Seeker) -> None:
        """A seeker is at this place."""
        seeker.cohort = self
        self.seekers[seeker.key] = seeker
        if seeker.filter.equality is None:
            self._others[seeker.key] = seeker
        else:
            name, value = seeker.filter.equality
            self._by_value.setdefault(name, {}).setdefault(value, {})[seeker.key] = seeker

    def remove(self, seeker: Seeker) -> None:
        """A seeker leaves this place."""
        seeker.cohort = None
        del self.seekers[seeker.key]
        if seeker.filter.equality is None:
            del self._others[seeker.key]
            return
        name, value = seeker.filter.equality
        values = self._by_value[name]
        del values[value][seeker.key]
        if not values[value]:
            del values[value]
            if not values:
                del self._by_value[name]

    def candidates(self, fields: MessageFields) -> Iterator[Seeker]:
        """Those that may be for a message; no other is."""
        for name, values in list(self._by_value.items()):
            value = fields.jms(name)
            if isinstance(value, (str, int, float)) and value in values:
                yield from list(values[value].values())
        yield from list(self._others.values())


class Selection:
    """The seekers of one queue. `unfinished` says that there is more to be looked at, in a turn to come."""

    __slots__ = (
        "_asking", "_back", "_cohorts", "_queue", "_rank", "_ranked", "_seekers", "_tail", "unfinished",
    )  # fmt: skip

    def __init__(self, queue: Messages) -> None:
        self._queue = queue
        self._seekers: dict[tuple[Any, ...], Seeker] = {}
        self._asking: dict[Seeker, None] = {}
        self._back: dict[Seeker, None] = {}  # for whom something came back
        self._rank: int | None = None  # while it is distributed to those of one priority
        self._cohorts: list[Cohort] = []
        self._tail: list[Record] = []
        self._ranked = False  # since a link had a priority
        self.unfinished = False

    def __bool__(self) -> bool:
        return bool(self._seekers)

    # Links, and what becomes of messages beside them

    def attach(self, consumer: Link) -> None:
        """A link with a filter begins to receive: it looks at everything that is there."""
        assert consumer.filter is not None, "links without a filter seek nothing"
        key = _key(consumer)
        self._ranked = self._ranked or consumer.priority != 0
        seeker = self._seekers.get(key)
        if seeker is None:
            seeker = Seeker(key, consumer.filter, consumer.largest, consumer.priority, self._asking)
            self._seekers[key] = seeker
            self._at(self._queue.backlog.first_offset()).add(seeker)
        seeker.join(consumer)

    def detach(self, consumer: Link) -> None:
        """A link with a filter receives no more."""
        seeker = self._seekers[_key(consumer)]
        seeker.leave(consumer)
        if not seeker.members:
            del self._seekers[seeker.key]
            self._asking.pop(seeker, None)
            self._back.pop(seeker, None)
            self._leave(seeker)
            if not self._seekers:
                self._tail = []

    def added(self, records: Iterable[Record]) -> None:
        """Messages became available behind all others: whoever has looked at those looks at them at once,
        before they are on disk only.
        """
        self._tail.extend(records)

    def added_on_disk(self) -> None:
        """Messages became available that are on disk only: what comes behind them is looked at after them."""
        self._tail = []

    def returned(self, record: Record) -> None:
        """A message is available again: those that had looked at it by then have to know."""
        fields = None
        for cohort in self._cohorts:
            if cohort.cursor > record.offset:
                fields = fields or MessageFields(record)
                for seeker in cohort.candidates(fields):
                    if seeker.filter.matches(fields):
                        seeker.back[record.offset] = record
                        self._back[seeker] = None

    def looked_at_all(self, consumer: Link) -> bool:
        """Whether there is nothing that a link could be sent now, nor after more was looked at."""
        seeker = self._seekers[_key(consumer)]
        cohort = seeker.cohort
        assert cohort is not None, "a seeker is somewhere"
        backlog = self._queue.backlog
        if cohort.cursor < backlog.available_to:
            return False
        queue = self._queue
        return not any(
            offset in backlog.back and not queue.is_excluded(record, consumer)
            for offset, record in seeker.back.items()
        )

    # Distribution

    def assign(self, grants: Grants, now_ms: int, rank: int) -> None:
        """Give to links of one priority that want something what they are for, in its order, as far as it is
        in memory.
        """
        self._rank = rank
        budget = LOOKED_AT_ONCE
        given: dict[Any, list[Record]] = {}
        for seeker in list(self._back):
            self._give_back(seeker, given, now_ms)
            if not seeker.back:
                del self._back[seeker]
        for cohort in list(self._cohorts):
            while budget > 0 and cohort.seekers and self._wants_to_look(cohort):
                records = self._in_memory(cohort.cursor, budget)
                if not records:
                    backlog = self._queue.backlog
                    self._move(cohort, backlog.disk_from if backlog.disk_from >= 0 else backlog.available_to)
                    break
                budget -= len(records)
                self._look(cohort, records, given, now_ms)
                if cohort not in self._cohorts:
                    break
        self._tail = []
        self.unfinished = budget <= 0
        self._rank = None
        grants.extend(given.items())

    def page_wanted(self) -> int:
        """From which offset on the disk has something that somebody who wants something has not looked at;
        -1: from none.
        """
        backlog = self._queue.backlog
        if backlog.disk_from < 0:
            return -1
        for cohort in self._cohorts:
            if self._wants_to_look(cohort) and not self._in_memory(cohort.cursor, 1):
                return max(cohort.cursor, backlog.disk_from)
        return -1

    def page(self, records: list[Record], start: int, end: int, grants: Grants, now_ms: int) -> None:
        """Look at what is there from `start` up to `end`, a part of what is on disk only."""
        given: dict[Any, list[Record]] = {}
        disk_from = self._queue.backlog.disk_from
        for cohort in list(self._cohorts):
            begins = max(cohort.cursor, disk_from)
            in_memory = self._in_memory(cohort.cursor, 1)
            if start <= begins < end and self._wants_to_look(cohort) and not in_memory:
                gone = {record.offset for run in given.values() for record in run}
                left = [each for each in records if each.offset >= begins and each.offset not in gone]
                self._look(cohort, left, given, now_ms, end)
        grants.extend(given.items())

    def _wants_to_look(self, cohort: Cohort) -> bool:
        if cohort.cursor >= self._queue.backlog.available_to:
            return False
        done: list[Seeker] = []
        found = False
        for seeker in self._asking:
            if not seeker.wants():
                done.append(seeker)
            elif seeker.cohort is cohort and self._in_turn(seeker):
                found = True
                break
        for seeker in done:
            del self._asking[seeker]
        return found

    def _in_turn(self, seeker: Seeker) -> bool:
        return self._rank is None or seeker.priority == self._rank

    def _hungry(self, seeker: Seeker) -> bool:
        """Whether one of its links wants something, and it is their turn."""
        return self._in_turn(seeker) and seeker.wants()

    def _in_memory(self, cursor: int, count: int) -> list[Record]:
        """The next messages in memory from `cursor` on, before those that are on disk only."""
        tail = self._tail
        if tail and tail[0].offset <= cursor:
            return [record for record in tail if record.offset >= cursor][:count]
        return self._queue.backlog.next_in_order(cursor, count)

    def _look(
        self, cohort: Cohort, records: list[Record], given: dict[Any, list[Record]], now_ms: int,
        end: int = 0,
    ) -> None:  # fmt: skip
        """Have the seekers of a cohort look at messages, and take what they want; then they are behind all
        of them, but for those that are for one they want later.
        """
        queue = self._queue
        taken: list[Record] = []
        stay: list[tuple[int, Seeker]] = []
        mixed = queue.backlog.mixed
        for record in sorted(records, key=_urgency) if mixed else records:
            if 0 < record.expires_at_ms <= now_ms:
                taken.append(record)
                queue.expired.append(record)
                continue
            fields = MessageFields(record)
            candidates = cohort.candidates(fields)
            for seeker in sorted(candidates, key=_rank) if self._ranked else candidates:
                if not seeker.filter.matches(fields) or not seeker.has_room(record, now_ms):
                    continue
                if not self._hungry(seeker) or not seeker.give(record, given):
                    cohort.remove(seeker)
                    stay.append((records[0].offset if mixed else record.offset, seeker))
                    continue
                taken.append(record)
                break
            if not cohort.seekers:
                break
        queue.take_out(taken)
        if self._tail and taken:
            gone = {record.offset for record in taken}
            self._tail = [record for record in self._tail if record.offset not in gone]
        if cohort.seekers:
            self._move(cohort, end or records[-1].offset + 1)
        else:
            self._cohorts.remove(cohort)
        for cursor, seeker in stay:
            self._at(cursor).add(seeker)

    def _give_back(self, seeker: Seeker, given: dict[Any, list[Record]], now_ms: int) -> None:
        """Messages that came back and are for this seeker, each in its old place."""
        there = self._queue.backlog.back
        key = _urgency_of_entry if self._queue.backlog.mixed else None
        for offset, record in sorted(seeker.back.items(), key=key):
            if not self._hungry(seeker):
                return
            if offset in there and seeker.has_room(record, now_ms):
                if not seeker.give_fit(record, given, self._queue):
                    continue  # undeliverable there, for as long as those links last
                self._queue.take_out([record])
            del seeker.back[offset]

    # Places

    def _at(self, cursor: int) -> Cohort:
        """The cohort at this place; a new one where there is none."""
        for cohort in self._cohorts:
            if cohort.cursor == cursor:
                return cohort
        made = Cohort(cursor)
        insort(self._cohorts, made, key=_cursor)
        return made

    def _leave(self, seeker: Seeker) -> None:
        cohort = seeker.cohort
        assert cohort is not None
        cohort.remove(seeker)
        if not cohort.seekers:
            self._cohorts.remove(cohort)

    def _move(self, cohort: Cohort, cursor: int) -> None:
        """All of a cohort have looked at what is before `cursor`; who was there before joins them."""
        if cursor <= cohort.cursor:
            return
        self._cohorts.remove(cohort)
        cohort.cursor = cursor
        there = next((other for other in self._cohorts if other.cursor == cursor), None)
        if there is None:
            insort(self._cohorts, cohort, key=_cursor)
            return
        if len(there.seekers) < len(cohort.seekers):
            self._cohorts[self._cohorts.index(there)] = cohort
            there, cohort = cohort, there
        for seeker in list(cohort.seekers.values()):
            cohort.remove(seeker)
            there.add(seeker)


def _key(consumer: Link) -> tuple[Any, ...]:
    assert consumer.filter is not None, "links without a filter seek nothing"
    return consumer.filter.key, consumer.largest, consumer.priority


def _rank(seeker: Seeker) -> int:
    return -seeker.priority


def _urgency(record: Record) -> tuple[int, int]:
    return -record.priority, record.offset


def _urgency_of_entry(entry: tuple[int, Record]) -> tuple[int, int]:
    return _urgency(entry[1])


def _cursor(cohort: Cohort) -> int:
    return cohort.cursor
