"""Durable cursors: a name, and for each node the offset that its reader has come to. They only go forward.

hold        by a link to $retained: the whole name, until the link goes
reading     by a link that reads with the filter amqp-broker:cursor: the name at that node
move        one store commit for all positions of a request
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from amqp_broker.persistence import ForgetCursor, MoveCursor, RowDamaged, Store, Unit
from amqp_broker.queues import NodeRefused
from amqp_broker.retained.filters import LOCKED, NO_ROOM

if TYPE_CHECKING:
    from amqp_broker.node_service import NodeService
    from amqp_broker.page_turns import PageTurns

NAMES_PAGE: Final = 1_000

Positions = dict[int, int]
"""Offsets by the ids of logs."""


class Holder:
    """A link that holds a cursor; `container_id` is said to others."""

    __slots__ = ("container_id",)

    def __init__(self, container_id: str) -> None:
        self.container_id = container_id


class Cursors:
    """All of a broker."""

    def __init__(self, nodes: NodeService, turns: PageTurns) -> None:
        self._nodes = nodes
        self._turns = turns
        self._names: set[str] = set()
        self._held: dict[str, Holder] = {}
        self._reading: dict[tuple[str, int], Holder] = {}
        self._moving: dict[tuple[str, int], int] = {}  # in the group that is being stored
        self._left: dict[tuple[str, int], int] = {}  # by links that are gone, and not stored yet

    def recover(self, store: Store) -> None:
        """Take up which there are."""
        after = ""
        while names := store.cursor_names(after, NAMES_PAGE):
            self._names.update(names)
            after = names[-1]

    def names(self) -> list[str]:
        """Those that there are, in order."""
        return sorted(self._names)

    def held_by(self, name: str) -> str | None:
        """The container of the link that holds it or reads with it, or None."""
        found = self._held.get(name)
        if found is None:
            reading = (holder for (cursor, _), holder in self._reading.items() if cursor == name)
            found = next(reading, None)
        return None if found is None else found.container_id

    def positions(self, name: str, store: Store) -> Positions:
        """Where it stands, with what is on its way: what a link accepted counts for the next one, although it
        may be stored by a later group than the one that is gathered. Only between two commits.
        """
        found = self._in_store(name, store)
        for (cursor, log), offset in self._left.items():
            if cursor == name and offset > found.get(log, -1):
                found[log] = offset
        return found

    def _in_store(self, name: str, store: Store) -> Positions:
        """Where it stands when the group is stored that is gathered now."""
        found = {cursor.queue_id: cursor.offset for cursor in store.cursors(name)}
        if self._moving:
            found.update({log: offset for (cursor, log), offset in self._moving.items() if cursor == name})
        return found

    # Holding

    def hold(self, name: str, holder: Holder) -> None:
        """Nobody else may hold it or read with it, until `release`. Raises NodeRefused."""
        if self._held.get(name) is holder:
            return
        self._refuse_if_used(name, self.held_by(name))
        self._check_room(name)
        self._held[name] = holder

    def release(self, name: str, holder: Holder) -> None:
        """The link is gone."""
        if self._held.get(name) is holder:
            del self._held[name]

    def read_with(self, name: str, log_id: int, holder: Holder) -> None:
        """Nobody else may read this node with it, or hold it. Raises NodeRefused."""
        other = self._held.get(name) or self._reading.get((name, log_id))
        self._refuse_if_used(name, None if other is None else other.container_id)
        self._check_room(name)
        self._reading[name, log_id] = holder

    def read_no_more(self, name: str, log_id: int, holder: Holder) -> None:
        """The link is gone."""
        if self._reading.get((name, log_id)) is holder:
            del self._reading[name, log_id]

    def _refuse_if_used(self, name: str, container_id: str | None) -> None:
        if container_id is not None:
            raise NodeRefused(
                LOCKED,
                f"cursor {name!r} is in use by a link of container {container_id!r}",
                {"container-id": container_id},
            )

    def _check_room(self, name: str) -> None:
        most = self._nodes.config.limits.max_cursors
        if name not in self._names and len(self._names) >= most:
            raise NodeRefused(NO_ROOM, f"there are {most} cursors, as many as max_cursors allows")

    # Moving

    def move(
        self, name: str, wanted: Callable[[Store], Positions], then: Callable[[Exception | None], None],
        *, keeps: bool = False,
    ) -> None:  # fmt: skip
        """Have `name` stand at the positions that `wanted` gives between two commits, forward only; `then`
        is told when that is stored, or why not: what `wanted` raised, too.
        """
        self._turns.own_jobs += 1
        self._nodes.writer.submit(MoveJob(self, name, wanted, then, keeps))

    def leave(self, name: str, log_id: int, offset: int) -> None:
        """A link that has accepted all before `offset` is gone: whoever comes next begins there."""
        key = (name, log_id)
        self._left[key] = max(offset, self._left.get(key, -1))

        def stored(_error: Exception | None) -> None:
            if self._left.get(key) == offset:
                del self._left[key]

        self.move(name, lambda _store: {log_id: offset}, stored, keeps=True)

    def forget(self, name: str, then: Callable[[Exception | None], None]) -> None:
        """There is no such cursor any more."""
        self._turns.own_jobs += 1
        self._nodes.writer.submit(ForgetJob(self, name, then))

    def verbs(self, name: str, wanted: Positions) -> Unit:
        """Those that move forward what is not there yet; in a job's `unit`."""
        now_ms = self._nodes.wall_clock_ms()
        before = self._nodes.writer.lookup(lambda store: self._in_store(name, store))
        unit: Unit = []
        for log_id, offset in wanted.items():
            if offset > before.get(log_id, -1):
                unit.append(MoveCursor(name, log_id, offset, now_ms))
                self._moving[name, log_id] = offset
        return unit

    def moved(self, name: str, unit: Unit, *, stored: bool) -> None:
        """What `verbs` gave is decided."""
        for verb in unit:
            assert isinstance(verb, MoveCursor)
            if self._moving.get((name, verb.queue_id)) == verb.offset:
                del self._moving[name, verb.queue_id]
            if stored:
                self._names.add(name)

    def forgotten(self, name: str) -> None:
        """It is gone from the store."""
        self._names.discard(name)

    def now(self, wanted: Callable[[Store], Positions]) -> Positions:
        """The answer of `wanted`; in a job's `unit`."""
        return self._nodes.writer.lookup(wanted)


class MoveJob:
    """A move of one cursor at some nodes, in one commit."""

    __slots__ = ("_cursors", "_keeps", "_name", "_refused", "_then", "_unit", "_wanted")

    def __init__(
        self, cursors: Cursors, name: str, wanted: Callable[[Store], Positions],
        then: Callable[[Exception | None], None], keeps: bool,
    ) -> None:  # fmt: skip
        self._cursors = cursors
        self._name = name
        self._wanted = wanted
        self._then = then
        self._keeps = keeps
        self._unit: Unit = []
        self._refused: NodeRefused | RowDamaged | None = None

    def unit(self) -> Unit:
        self._refused = None
        try:
            wanted = self._cursors.now(self._wanted)
            self._unit = self._cursors.verbs(self._name, wanted)
        except (NodeRefused, RowDamaged) as refused:
            self._refused = refused
            self._unit = []
        return self._unit

    def withdraw(self) -> None:
        """Nothing was stored."""
        self._cursors.moved(self._name, self._unit, stored=False)

    def keeps(self) -> bool:
        """A receiver that has accepted waits for room; who asked for a move is told that there is none."""
        return self._keeps

    def finished(self, error: Exception | None) -> None:
        self._cursors.moved(self._name, self._unit, stored=error is None)
        self._then(self._refused or error)


class ForgetJob:
    """The end of one cursor."""

    __slots__ = ("_cursors", "_name", "_then")

    def __init__(self, cursors: Cursors, name: str, then: Callable[[Exception | None], None]) -> None:
        self._cursors = cursors
        self._name = name
        self._then = then

    def unit(self) -> Unit:
        return [ForgetCursor(self._name)]

    def withdraw(self) -> None:
        """Nothing was stored."""

    def keeps(self) -> bool:
        """The asker is told."""
        return False

    def finished(self, error: Exception | None) -> None:
        if error is None:
            self._cursors.forgotten(self._name)
        self._then(error)


class Prefix:
    """Where a reader's accepted messages reach without a gap, and what stands beyond it."""

    __slots__ = ("_beyond", "_missing", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._beyond: set[int] = set()
        self._missing: dict[int, int] = {}  # first and last offset of each gap beyond it

    def accept(self, offsets: Iterable[int]) -> bool:
        """These are done with; whether the prefix grew."""
        before = self.offset
        for offset in offsets:
            if offset == self.offset:
                self.offset += 1
            elif offset > self.offset:
                self._beyond.add(offset)
        self._go_on()
        return self.offset > before

    def skip(self, first: int, last: int) -> bool:
        """The offsets from `first` to `last` are not there; whether the prefix grew."""
        before = self.offset
        if last >= self.offset:
            self._missing[max(first, self.offset)] = last
        self._go_on()
        return self.offset > before

    def _go_on(self) -> None:
        while True:
            if self.offset in self._beyond:
                self._beyond.remove(self.offset)
                self.offset += 1
            elif self.offset in self._missing:
                self.offset = self._missing.pop(self.offset) + 1
            else:
                return

    def waiting(self) -> int:
        """How many are accepted beyond a gap."""
        return len(self._beyond)


def by_name(positions: Mapping[int, int], addresses: Mapping[int, str]) -> dict[str, int]:
    """Positions by addresses; those of nodes that are gone are left out."""
    return {addresses[log]: offset for log, offset in positions.items() if log in addresses}
