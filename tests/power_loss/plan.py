"""What a workload does with the store, made from a seed: groups of units, each of them possible on what the
book says is there; and what the store must hold after each group.

A unit changes nothing that a unit before it in its group has made, so that none is a mistake when that was
refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from amqp_broker.persistence import MemoryStore, Post, Record, RecoveredNode, Unit
from tests.promises.book import Book, Bound, Promised

NO_SUCH_NODE: Final = 1_000_000
REFUSED: Final = Post(NO_SUCH_NODE, [Record(0, b"refused")])
"""Makes the store refuse its unit, and that unit alone."""

START_MS: Final = 1_700_000_000_000
REST_MS: Final = 1_000_000
"""The clock goes on by this with each rest."""


@dataclass(frozen=True, slots=True)
class Group:
    """The units of one commit; with `rests` the store does all of its housekeeping (a checkpoint)
    afterwards.
    """

    units: tuple[Unit, ...]
    rests: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups in order, and what is promised before the first and after each of them; the book of it all."""

    groups: tuple[Group, ...]
    promised: tuple[Promised, ...]
    book: Book

    @property
    def rests(self) -> int:
        """How often the store had rested before."""
        return sum(page.rests for page in self.book.pages[: -len(self.groups)])


class Workload:
    """Makes the units of groups. A subclass says which."""

    SIZES: ClassVar[tuple[int, ...]]
    """How many units a group has."""
    SHARE_OF_RESTS: ClassVar[float]
    BOUND: ClassVar[Bound]
    """In half of the runs."""

    def __init__(self, chance: random.Random, book: Book) -> None:
        self.chance = chance
        self.book = book
        self.fresh: set[str] = set()
        """Nodes that the group has made which is being written."""

    @property
    def store(self) -> MemoryStore:
        """What is there as far as the plan goes."""
        return self.book.store

    @property
    def wall_ms(self) -> int:
        """The time of what is sent: it goes on by each group, and each rest."""
        return START_MS + sum(page.rests for page in self.book.pages) * REST_MS + len(self.book.pages)

    def nodes(self) -> dict[str, RecoveredNode]:
        """Those that units can be about."""
        return {node.name: node for node in self.store.recover().nodes if node.name not in self.fresh}

    def units(self) -> Sequence[Callable[[], Unit]]:
        """What makes the units of the next group."""
        return [self.unit] * self.chance.choice(self.SIZES)

    def unit(self) -> Unit:
        """One more; nothing where there is nothing to do."""
        raise AssertionError("a workload makes units")

    def group(self) -> Group:
        """The next group, which is in the book then."""
        self.fresh.clear()
        made: list[Unit] = []
        for make in self.units():
            if unit := make():
                made.append(unit)
                assert (self.book.add(unit) is not None) is is_refused(unit), unit
        rests = self.chance.random() < self.SHARE_OF_RESTS
        self.book.end_group(rests)
        return Group(tuple(made), rests)


def is_refused(unit: Unit) -> bool:
    """Whether a store refuses it."""
    return any(isinstance(verb, Post) and verb.queue_id == NO_SUCH_NODE for verb in unit)


def make_plan(kind: type[Workload], seed: object, groups: int, book: Book | None = None) -> Plan:
    """A plan of `groups` commits, which goes on where a book ends."""
    chance = random.Random(repr((kind.__name__, seed)))
    book = book or Book(chance.choice((Bound(), kind.BOUND)))
    writer = kind(chance, book)
    promised = [book.promised()]
    done = []
    for _ in range(groups):
        done.append(writer.group())
        promised.append(book.promised())
    return Plan(tuple(done), tuple(promised), book)
