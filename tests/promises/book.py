"""The book of what a store was told, and what has to be there after a restart: nothing else, and nothing in
part.

    book.add(unit)               a unit that the store took; the store in memory behind the book takes it too
    book.end_group(rests)        its commit; `rests`: the store did all of its housekeeping behind it
    book.promised()              what it has to hold now
    differences(facts_of(found), promised)

What a store may forget (the oldest events and transactions, decided half messages, what is retained) it
forgets when it rests, or beyond a bound: the promise says what may be gone, and what has to be.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amqp_broker.persistence import MemoryStore, RecoveredNode, Unit
from amqp_broker.persistence.generations import PARTS
from amqp_broker.persistence.halves import OPEN, size_of_event
from amqp_broker.persistence.questions import RetainedBy, RetainedPageOf
from tests.promises.facts import MANY, Facts, facts_of

KEEP_OUTCOMES: Final = 32
"""Few enough that a plan of forty groups makes the store forget some."""
LEAST_OUTCOMES: Final = KEEP_OUTCOMES - KEEP_OUTCOMES // PARTS
FOREVER_MS: Final = 1 << 60
OLDEST_FIRST: Final = ("event", "retained", "transaction")
"""How what may be forgotten goes."""
SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class Bound:
    """So many bytes of the journal are kept (0: no bound); a run of `run_bytes` at most goes as a whole."""

    event_bytes: int = 0
    run_bytes: int = 0


@dataclass(slots=True)
class Page:
    """The units of one commit."""

    units: list[Unit] = field(default_factory=list)
    rests: bool = False


@dataclass(frozen=True, slots=True)
class Promised:
    """What a store holds behind so many pages of a book; `may_go` may be forgotten, `must_go` has to be."""

    pages: int
    facts: Facts
    may_go: frozenset[tuple[Any, ...]]
    must_go: frozenset[tuple[Any, ...]]


class Book:
    """What was committed, page by page; `bound` is the store's."""

    def __init__(self, bound: Bound = Bound(), pages: Sequence[Page] = ()) -> None:
        self.bound = bound
        self.pages: list[Page] = []
        self.store = MemoryStore(
            discharge_keep_ms=FOREVER_MS, discharge_keep_count=1 << 40, event_keep_ms=FOREVER_MS
        )
        self._page = Page()
        self._rested: Facts = {}
        self._swept: frozenset[tuple[Any, ...]] = frozenset()
        self._must_go: frozenset[tuple[Any, ...]] = frozenset()
        self._ends: dict[str, list[int]] = {}  # of each queue, where the numbers of a group end
        self._floors: dict[str, int] = {}  # below it what is retained may be gone: it was beyond a bound once
        for page in pages:
            for unit in page.units:
                self.add(unit)
            self.end_group(page.rests)

    def until(self, pages: int) -> Book:
        """Another one that goes on behind so many pages; the last rest may have been cut off."""
        book = Book(self.bound, self.pages[:pages])
        book._swept = book._must_go
        return book

    def add(self, unit: Unit) -> Exception | None:
        """A unit of this group; it is in no book if it is refused."""
        (error,) = self.store.apply([copy.deepcopy(unit)])
        self.store.commit()
        if error is None:
            self._page.units.append(unit)
        return error

    def end_group(self, rests: bool = False) -> None:
        """The commit."""
        if self.pages and self.pages[-1].rests:  # it had all the time that it wanted
            self._must_go = self._swept
        self._page.rests = rests
        self.pages.append(self._page)
        self._page = Page()
        for node in self.store.recover().nodes:
            ends = self._ends.setdefault(node.name, [])
            ends.append(node.next_offset)
            if (last := _last_beyond(self.store, node)) >= 0:  # a run goes as a whole
                floor = min(end for end in ends if end > last)
                self._floors[node.name] = max(floor, self._floors.get(node.name, 0))
        if rests:
            self._rested = facts_of(self.store)
            beyond = {node.name: _last_beyond(self.store, node) for node in self.store.recover().nodes}
            self._swept = frozenset(
                key for key in self._rested if key[0] == "retained" and key[2] <= beyond[key[1]]
            )

    def promised(self) -> Promised:
        """What there has to be now."""
        facts = facts_of(self.store)
        newest = [key for key in facts if key[0] == "event"][-1:]  # never all of the journal
        may_go = frozenset(self._may_go(facts)).difference(newest)
        return Promised(len(self.pages), facts, may_go, self._must_go)

    def _may_go(self, facts: Facts) -> Iterator[tuple[Any, ...]]:
        transactions = [key for key in facts if key[0] == "transaction"]
        yield from transactions[:-LEAST_OUTCOMES]
        for key, told in self._rested.items():
            if key[0] == "event" or (key[0] == "half" and told[0].state not in OPEN):
                yield key
            elif key[0] == "retained" and facts["node", key[1]][-1][0]:  # kept for a time
                yield key
        for name, floor in self._floors.items():
            yield from (("retained", name, offset) for offset in range(floor))
        if self.bound.event_bytes:
            size = self.bound.run_bytes
            for key in reversed([key for key in facts if key[0] == "event"]):
                size += size_of_event(facts[key])
                if size > self.bound.event_bytes:
                    yield key


def _last_beyond(store: MemoryStore, node: RecoveredNode) -> int:
    """The newest message of a queue that its bound in bytes does not retain; -1 if there is none."""
    policy = store.ask(RetainedBy(node.queue_id))
    if policy is None or not policy.keep_bytes or policy.byte_count <= policy.keep_bytes:
        return -1
    size = 0
    page = store.ask(RetainedPageOf(node.queue_id, 0, MANY, FOREVER_MS))
    for record in reversed(page.records):
        size += len(record.body)
        if size > policy.keep_bytes:
            return record.offset
    return -1


def differences(found: Facts, promised: Promised) -> list[str]:
    """What is not as it was promised, in words; nothing if all of it is."""
    expected = promised.facts
    wrong = [key for key in found if key not in expected or key in promised.must_go]
    told = [f"{_name(key)} is there and should not be" for key in wrong]
    gone = set()
    for key, what in reversed(expected.items()):
        if key not in found:
            gone.add(key[:-1])
            if key not in promised.may_go:
                told.append(f"{_name(key)} is lost: {_shown(what)}")
        elif found[key] != what:
            told.append(f"{_name(key)}: {_shown(found[key])}, expected {_shown(what)}")
        elif key[0] in OLDEST_FIRST and key[:-1] in gone:
            told.append(f"{_name(key)} is there, and a newer one is gone")
    return told


def _name(key: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in key)


def _shown(what: object) -> str:
    return f"{what!r:.{SHOWN}}"
