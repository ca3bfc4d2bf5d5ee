"""What can be managed, as tables: each type of entity, its attributes, and what can be done with it.

    EntityType --entities--> things of the broker --attributes--> what a reply says of each
               --actions---> operations beyond those of every type (READ, QUERY)

An attribute is a name and how it is read from the thing; everything that is said of a type (GET-ATTRIBUTES,
READ, QUERY, the reference) comes from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

from amqp_broker.addresses import MANAGEMENT, Address, parse_address
from amqp_broker.authorisation import BROWSE, MANAGE_WRITE, Principal
from amqp_broker.management.errors import Unmanageable

T = TypeVar("T")

NODE_TYPE: Final = "org.amqp.management"
"""The type of the node itself, which is asked for what there is (AMQP Management, working draft 11, 3.2)."""

CREATE: Final = "CREATE"
READ: Final = "READ"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
QUERY: Final = "QUERY"


@attrs.frozen
class Argument:
    """One thing that an action is told besides the entity, in the application properties of the request: a
    string, a number from 0 on, or a boolean. What is `required` has to be there.
    """

    name: str
    kind: type = str
    required: bool = False


REASON: Final = Argument("reason")

LISTED: Final = 10_000
"""Of what there may be millions of in one place, so many are listed."""

Found = Iterable[T] | Awaitable[Iterable[T]]
Run = Callable[[T, Mapping[str, Any], Principal], Any]


@attrs.frozen
class Action(Generic[T]):
    """One thing that can be done with an entity: `run(thing, arguments, principal)` does it, and gives the
    body of the reply, or an awaitable of that; None is an empty map. Raises Unmanageable. Who asks needs
    `right` at the address of the entity. `meaning` is for people.
    """

    run: Run[T]
    meaning: str
    arguments: tuple[Argument, ...] = ()
    right: str = MANAGE_WRITE

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.right == BROWSE


@attrs.frozen
class Changes(Generic[T]):
    """What UPDATE can change of an entity while the broker runs: `make(thing, values)` gives the attributes
    of these `names` new values, all of them or none, or an awaitable that does. Raises Unmanageable.
    `meaning` is for people. Who asks needs `manage-write` at the address of the entity.
    """

    names: tuple[str, ...]
    make: Callable[[T, Mapping[str, Any]], Awaitable[None] | None]
    meaning: str


@attrs.frozen
class EntityType(Generic[T]):
    """One type: `name` stands in requests, `entities` gives all there are, where the store has to be asked
    later, and `identity` is the key of one.
    """

    name: str
    meaning: str
    entities: Callable[[], Found[T]]
    identity: Callable[[T], str]
    attributes: Mapping[str, Callable[[T], Any]]
    actions: Mapping[str, Action[T]] = attrs.field(factory=dict)
    find: Callable[[str], T | None] | None = None
    """A shorter way to one of them than to look at all."""
    named_by_address: bool = False
    """Whether the identity of one is its address, and rights are those at that address."""
    make: Callable[[str, Mapping[str, Any]], Awaitable[bool]] | None = None
    """What CREATE does with a name and attributes: makes one, and says whether it was not there."""
    made_of: tuple[str, ...] = ()
    """The attributes that CREATE may be told."""
    changes: Changes[T] | None = None
    """What UPDATE does; None: nothing of one can be changed."""

    async def all(self) -> list[T]:
        """All entities, in the order of their identities."""
        found = self.entities()
        if isinstance(found, Awaitable):
            found = await found
        return sorted(found, key=self.identity)

    async def found(self, identity: str) -> T:
        """The entity of this identity. Raises Unmanageable."""
        if self.find is not None:
            thing = self.find(identity)
        else:
            thing = next((each for each in await self.all() if self.identity(each) == identity), None)
        if thing is None:
            there_is = f"there is no {self.name} {identity!r:.120}"
            raise Unmanageable(404, f"expected the identity of a {self.name}, but {there_is}")
        return thing

    def described(self, thing: T) -> dict[str, Any]:
        """All attributes of one, with those that every entity has."""
        return self.said(thing, self.attributes)

    def said(self, thing: T, names: Iterable[str]) -> dict[str, Any]:
        """Those of `names` that one has, and what every entity has; the others are not read."""
        identity = self.identity(thing)
        known = {"identity": identity, "name": identity, "type": self.name}
        read = self.attributes
        return {**known, **{name: read[name](thing) for name in names if name in read}}

    async def changed(self, thing: T, told: Mapping[str, Any]) -> dict[str, Any]:
        """Give an entity new values of attributes; returns those that it did not have before. What is as it
        is may be said, too: so who has read all attributes can say all of them. Raises Unmanageable.
        """
        assert self.changes is not None, "it has some that can be changed"
        if not told:
            raise Unmanageable(400, "body: expected a map of attributes with their new values, got none")
        known, names = self.described(thing), self.changes.names
        allowed = f"{', '.join(names)} of a {self.name}"
        for name, value in told.items():
            if name not in known:
                raise Unmanageable(400, f"expected some of {allowed}, got {name!r:.80}")
            if name not in names and value != known[name]:
                raise Unmanageable(409, f"{name} can't be changed while it runs: expected some of {allowed}")
        values = {name: value for name, value in told.items() if value != known[name]}
        if values:
            done = self.changes.make(thing, values)
            if done is not None:
                await done
        return values

    def attribute_names(self) -> list[str]:
        """The names of all attributes, in their order."""
        return ["identity", "name", "type", *self.attributes]

    def operations(self) -> dict[str, list[str]]:
        """What can be done with one, and what each operation is told."""
        found: dict[str, list[str]] = {READ: []} if self.make is None else {CREATE: [*self.made_of], READ: []}
        if self.changes is not None:
            found[UPDATE] = [*self.changes.names]
        found |= {name: [one.name for one in action.arguments] for name, action in self.actions.items()}
        return found

    def address_of(self, identity: str) -> Address:
        """Where the right to change one is asked for."""
        return parse_address(identity if self.named_by_address else MANAGEMENT)
