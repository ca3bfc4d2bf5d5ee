"""Durable cursors: a name, and for each node the offset that its reader has come to. They only go forward.

hold        by a link to $retained: the whole name, until the link goes
reading     by a link that reads with the filter amqp-broker:cursor: the name at that node
move        one store commit for all positions of a request

A cursor belongs to the principal that made it: by its first move, or before that by holding the name or
reading with it. Others may do nothing with it, but for who may manage-write at $retained. One that older
stores know without an owner is the first one's that moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from amqp_broker.addresses import Address
from amqp_broker.authorisation import MANAGE_WRITE, Principal
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.operation import NotYet, Operation, Refused
from amqp_broker.persistence import ForgetCursor, MoveCursor, Store, Unit
from amqp_broker.persistence.questions import CursorNames, CursorsOf
from amqp_broker.retained.filters import LOCKED, NO_ROOM

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.connection import Connection
    from amqp_broker.page_turns import PageTurns

NAMES_PAGE: Final = 1_000
RETAINED_ADDRESS: Final = "$retained"
NOBODY: Final = ""

Positions = dict[int, int]
"""Offsets by the ids of logs."""


class CursorUser:
    """A link that holds a cursor or reads with it; `container_id` is said to others."""

    __slots__ = ("container_id", "principal")

    def __init__(self, container_id: str, principal: Principal) -> None:
        self.container_id = container_id
        self.principal = principal


class Cursors:
    """All durable cursors of one broker."""

    def __init__(self, nodes: BrokerNodes, turns: PageTurns) -> None:
        self._nodes = nodes
        self._turns = turns
        self._owners: dict[str, str] = {}  # of all that are stored
        self._held: dict[str, CursorUser] = {}
        self._reading: dict[tuple[str, str], CursorUser] = {}  # by names and addresses
        self._pending: list[CursorChange] = []  # of the group that is being stored, in their order
        self._left: dict[tuple[str, int], tuple[int, str]] = {}  # by links that are gone, not stored yet

    def recover(self, store: Store) -> None:
        """Take up the cursors that the store has."""
        after = ""
        while names := store.ask(CursorNames(after, NAMES_PAGE)):
            for name in names:
                owners = [cursor.owner for cursor in store.ask(CursorsOf(name)) if cursor.owner]
                self._owners[name] = owners[0] if owners else NOBODY
            after = names[-1]

    def names(self) -> list[str]:
        """The names of all cursors, in order."""
        return sorted(self._owners)

    def held_by(self, name: str) -> str | None:
        """The container of the link that holds a cursor or reads with it, or None."""
        found = self._user(name)
        return None if found is None else found.container_id

    def _user(self, name: str) -> CursorUser | None:
        found = self._held.get(name)
        if found is None:
            reading = (user for (cursor, _), user in self._reading.items() if cursor == name)
            found = next(reading, None)
        return found

    # Whose it is

    def stored_owner(self, name: str) -> str:
        """The principal that a cursor belongs to when the group is stored that is gathered now; or NOBODY."""
        owner = self._owners.get(name, NOBODY)
        for change in self._pending:
            if change.name == name:
                owner = change.belongs_to
        return owner

    def owner(self, name: str) -> str:
        """Whose it is when this group is stored, or else who has the name and has stored nothing yet."""
        owner = self.stored_owner(name)
        if owner:
            return owner
        user = self._user(name)
        if user is not None:
            return user.principal.rule_name
        return next((owner for (cursor, _), (_, owner) in self._left.items() if cursor == name), NOBODY)

    def check_owner(self, name: str, principal: Principal) -> None:
        """Whether `principal` may move a cursor, forget it, hold it or read with it. Raises NodeRefused."""
        if self.owner(name) in (NOBODY, principal.rule_name):
            return
        node = Address(RETAINED_ADDRESS, reserved=True)
        if not self._nodes.authoriser.authorise(principal, MANAGE_WRITE, node):
            raise NodeRefused(
                "amqp:unauthorized-access",
                f"cursor {name!r} belongs to another principal than {principal.rule_name!r}",
            )

    def positions(self, name: str, store: Store) -> Positions:
        """Where it stands, with what is on its way: what a link accepted counts for the next one, although it
        may be stored by a later group than the one that is gathered. Only between two commits.
        """
        found = self.in_store(name, store)
        for (cursor, log), (offset, _) in self._left.items():
            if cursor == name and offset > found.get(log, -1):
                found[log] = offset
        return found

    def in_store(self, name: str, store: Store) -> Positions:
        """Where a cursor stands when the group is stored that is gathered now."""
        found = {cursor.queue_id: cursor.offset for cursor in store.ask(CursorsOf(name))}
        for change in self._pending:
            if change.name == name:
                found = change.after(found)
        return found

    # Holding

    def hold(self, name: str, user: CursorUser) -> None:
        """Hold a cursor: nobody else may hold it or read with it, until `release`. Raises NodeRefused."""
        if self._held.get(name) is user:
            return
        self.check_owner(name, user.principal)
        self._refuse_if_used(name, self.held_by(name))
        self.check_room(name)
        self._held[name] = user

    def release(self, name: str, user: CursorUser) -> None:
        """The link that held a cursor is gone."""
        if self._held.get(name) is user:
            del self._held[name]

    def read_with(self, name: str, address: str, user: CursorUser) -> None:
        """Read a node with a cursor: nobody else may read this node with it, or hold it. Raises NodeRefused.
        """
        self.check_owner(name, user.principal)
        other = self._held.get(name) or self._reading.get((name, address))
        self._refuse_if_used(name, None if other is None else other.container_id)
        self.check_room(name)
        self._reading[name, address] = user

    def read_no_more(self, name: str, address: str, user: CursorUser) -> None:
        """The link that read with a cursor is gone."""
        if self._reading.get((name, address)) is user:
            del self._reading[name, address]

    def _refuse_if_used(self, name: str, container_id: str | None) -> None:
        if container_id is not None:
            raise NodeRefused(
                LOCKED,
                f"cursor {name!r} is in use by a link of container {container_id!r}",
                {"container-id": container_id},
            )

    def check_room(self, name: str) -> None:
        """Whether a cursor is there, or in use by a link, or may be made. Raises NodeRefused."""
        owners = self._owners
        used = {*self._held, *[cursor for cursor, _ in self._reading], *[cursor for cursor, _ in self._left]}
        there = {change.name: change.leaves for change in self._pending}
        if name in used or there.get(name, name in owners):
            return
        forgotten = [each for each, leaves in there.items() if not leaves and each in owners]
        new = used.union([each for each, leaves in there.items() if leaves])
        most = self._nodes.config.limits.max_cursors
        if len(owners) - len(forgotten) + len([each for each in new if each not in owners]) >= most:
            raise NodeRefused(NO_ROOM, f"there are {most} cursors, as many as limits.max_cursors allows")

    # Moving

    def move(
        self, name: str, principal: Principal, wanted: Callable[[Store], Positions],
        then: Callable[[Exception | None], None], *, by_reader: bool = False,
    ) -> MoveCursors:  # fmt: skip
        """Have `name` stand at the positions that `wanted` gives when it is judged, forward only. `then` is
        called with None when that is stored, or with why not: what `wanted` raised, too. `by_reader`: for a
        link of `principal` that reads with it.
        """
        move = MoveCursors(self, name, principal, wanted, then, by_reader)
        self._submit(move)
        return move

    def _submit(self, change: CursorChange) -> None:
        self._turns.own_operations += 1
        self._nodes.writer.submit(change)

    def leave(self, name: str, log_id: int, offset: int, user: CursorUser) -> None:
        """A link that has accepted all before `offset` is gone: whoever comes next begins there."""
        key = (name, log_id)
        left = (offset, user.principal.rule_name)
        self._left[key] = max(left, self._left.get(key, left))

        def stored(_error: Exception | None) -> None:
            if self._left.get(key) == left:
                del self._left[key]

        self.move(name, user.principal, lambda _store: {log_id: offset}, stored, by_reader=True)

    def forget(
        self, name: str, principal: Principal, may: Callable[[Positions], None],
        then: Callable[[Exception | None], None],
    ) -> CursorChange:  # fmt: skip
        """Delete a cursor, unless `may` raises NodeRefused at where it stands."""
        change = Forget(self, name, principal, may, then)
        self._submit(change)
        return change

    # What operations do

    def begin(self, change: CursorChange) -> None:
        """The change is part of the group that is gathered."""
        self._pending.append(change)

    def end(self, change: CursorChange) -> None:
        """The change is stored, or will not be; harmless when called twice."""
        if change in self._pending:
            self._pending.remove(change)

    def there(self, name: str) -> Positions:
        """Where a cursor stands for the next operation of the group; only in `Operation.prepare`."""
        return self._nodes.writer.lookup(lambda store: self.in_store(name, store))

    def known(self, name: str, owner: str) -> None:
        """A cursor is in the store, and belongs to `owner`."""
        self._owners[name] = owner

    def forgotten(self, name: str) -> None:
        """A cursor is in the store no more."""
        self._owners.pop(name, None)

    def now(self, wanted: Callable[[Store], Positions]) -> Positions:
        """The answer of `wanted`; only in `Operation.prepare`."""
        return self._nodes.writer.lookup(wanted)


class CursorRefused(Refused):
    """A change of a cursor is refused: `refused` says why, with what the wire tells."""

    def __init__(self, refused: NodeRefused) -> None:
        super().__init__(refused.error)
        self.refused = refused


class CursorChange(Operation):
    """Base: one change of a cursor for `principal`. `then` is called with None, or with why nothing was
    stored.
    """

    def __init__(
        self, cursors: Cursors, name: str, principal: Principal, then: Callable[[Exception | None], None]
    ) -> None:
        self._cursors = cursors
        self._then = then
        self.name = name
        self.principal = principal
        self.asker: Connection | None = None
        self.belongs_to: str = NOBODY
        """Whose it is behind this."""
        self.leaves = False
        """Whether it is there behind this."""

    def after(self, before: Positions) -> Positions:
        """Where the cursor stands after this change."""
        raise AssertionError("a change says what it leaves")

    def _check(self, judge: Callable[..., None], *arguments: object) -> None:
        """Raises CursorRefused where `judge` raises NodeRefused."""
        try:
            judge(*arguments)
        except NodeRefused as refused:
            raise CursorRefused(refused) from None

    def undo(self) -> None:
        """The cursor stands where it stood."""
        self._cursors.end(self)

    def asking_connection(self) -> Connection | None:
        """The connection that asked for the change, if it was one."""
        return self.asker

    def refused(self, error: Exception) -> None:
        """Nothing was stored; whoever asked is told why."""
        self._then(error.refused if isinstance(error, CursorRefused) else error)


class MoveCursors(CursorChange):
    """A move of one cursor at some nodes, in one commit."""

    def __init__(
        self, cursors: Cursors, name: str, principal: Principal, wanted: Callable[[Store], Positions],
        then: Callable[[Exception | None], None], by_reader: bool,
    ) -> None:  # fmt: skip
        super().__init__(cursors, name, principal, then)
        self._by_reader = by_reader
        self._wanted = wanted
        self._moves: Positions = {}
        self.left: Positions = {}
        """Where the cursor stands behind it."""

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that move it, forward only. Raises what `wanted` does."""
        cursors = self._cursors
        if not self._by_reader:  # else the link was judged when it attached, and has had it since
            self._check(cursors.check_owner, self.name, self.principal)
        try:
            wanted = cursors.now(self._wanted)
        except NodeRefused as refused:  # the offset may be that of a message before it in the group
            raise NotYet(CursorRefused(refused)) from None
        before = cursors.there(self.name)
        self._moves = {log: offset for log, offset in wanted.items() if offset > before.get(log, -1)}
        self.left = self.after(before)
        self.leaves = bool(self.left)
        self.belongs_to = cursors.stored_owner(self.name)
        if self._moves:
            self._check(cursors.check_room, self.name)
            self.belongs_to = cursors.owner(self.name) or self.principal.rule_name
        cursors.begin(self)
        return [
            MoveCursor(self.name, log, offset, now_ms, self.belongs_to) for log, offset in self._moves.items()
        ]

    def after(self, before: Positions) -> Positions:
        """Where the cursor stands once it is moved."""
        return {**before, **self._moves}

    def waits_for_space(self) -> bool:
        """A receiver that has accepted waits for room; who asked for a move is told that there is none."""
        return self._by_reader

    def stored(self) -> None:
        """The cursor stands at its new positions."""
        self._cursors.end(self)
        if self._moves:
            self._cursors.known(self.name, self.belongs_to)
        self._then(None)


class Forget(CursorChange):
    """The deletion of a cursor."""

    def __init__(
        self, cursors: Cursors, name: str, principal: Principal, may: Callable[[Positions], None],
        then: Callable[[Exception | None], None],
    ) -> None:  # fmt: skip
        super().__init__(cursors, name, principal, then)
        self._may = may

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that delete the cursor, whatever there is of it."""
        self._check(self._may, self._cursors.there(self.name))
        self._check(self._cursors.check_owner, self.name, self.principal)
        self._cursors.begin(self)
        return [ForgetCursor(self.name)]

    def after(self, before: Positions) -> Positions:
        """A deleted cursor stands nowhere."""
        return {}

    def stored(self) -> None:
        """The cursor is gone."""
        self._cursors.end(self)
        self._cursors.forgotten(self.name)
        self._then(None)


class Prefix:
    """Where a reader's accepted messages reach without a gap, and what stands beyond it."""

    __slots__ = ("_beyond", "_missing", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._beyond: set[int] = set()
        self._missing: dict[int, int] = {}  # first and last offset of each gap beyond it

    def accept(self, offsets: Iterable[int]) -> bool:
        """The messages at these offsets are done with; returns whether the prefix grew."""
        before = self.offset
        for offset in offsets:
            if offset == self.offset:
                self.offset += 1
            elif offset > self.offset:
                self._beyond.add(offset)
        self._go_on()
        return self.offset > before

    def skip(self, first: int, last: int) -> bool:
        """There are no messages from `first` to `last`; returns whether the prefix grew."""
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
