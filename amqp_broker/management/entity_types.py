"""What can be managed, as tables: each type of entity, its attributes, and what can be done with it.

    EntityType --entities--> things of the broker --attributes--> what a reply says of each
               --actions---> operations beyond those of every type (READ, QUERY)

An attribute is a name and how it is read from the thing; everything that is said of a type (GET-ATTRIBUTES,
READ, QUERY, the reference) comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

from amqp_broker.addresses import Address, parse_address
from amqp_broker.queues import NodeRefused

T = TypeVar("T")

MANAGEMENT: Final = "$management"
NODE_TYPE: Final = "org.amqp.management"
"""The type of the node itself, which is asked for what there is (AMQP Management, working draft 11, 3.2)."""

CREATE: Final = "CREATE"
READ: Final = "READ"
DELETE: Final = "DELETE"
QUERY: Final = "QUERY"


class Unmanageable(NodeRefused):
    """What was asked for can't be done: `status` is that of HTTP, which the reply has."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__("amqp:not-allowed", description)
        self.status = status


@attrs.frozen
class Argument:
    """What an action is told besides the entity, in the application properties of the request."""

    name: str
    required: bool = False


@attrs.frozen
class Action(Generic[T]):
    """One thing that can be done with an entity: `run(thing, arguments, who)` does it, or raises
    Unmanageable.
    """

    run: Callable[[T, Mapping[str, Any], str], None]
    arguments: tuple[Argument, ...] = ()


@attrs.frozen
class EntityType(Generic[T]):
    """One type: `name` stands in requests, `entities` gives all there are, and `identity` the key of one.

    `node_of` says at which address a right to change one is asked for (`manage-write`).
    """

    name: str
    meaning: str
    entities: Callable[[], Iterable[T]]
    identity: Callable[[T], str]
    attributes: Mapping[str, Callable[[T], Any]]
    actions: Mapping[str, Action[T]] = attrs.field(factory=dict)
    find: Callable[[str], T | None] | None = None
    """A shorter way to one of them than to look at all."""
    named_by_address: bool = False
    """Whether the identity of one is its address, and rights are those at that address."""
    can_be_made: bool = False
    """Whether CREATE makes one, of the name that it is given."""

    def found(self, identity: str) -> T:
        """The entity of this identity. Raises Unmanageable."""
        if self.find is not None:
            thing = self.find(identity)
        else:
            thing = next((each for each in self.entities() if self.identity(each) == identity), None)
        if thing is None:
            raise Unmanageable(404, f"expected the identity of a {self.name}, got {identity!r:.120}")
        return thing

    def described(self, thing: T) -> dict[str, Any]:
        """All attributes of one, with those that every entity has."""
        identity = self.identity(thing)
        known = {"identity": identity, "name": identity, "type": self.name}
        return {**known, **{name: read(thing) for name, read in self.attributes.items()}}

    def attribute_names(self) -> list[str]:
        """The names of all attributes, in their order."""
        return ["identity", "name", "type", *self.attributes]

    def operations(self) -> dict[str, list[str]]:
        """What can be done with one, and what each operation is told."""
        found: dict[str, list[str]] = {CREATE: [], READ: []} if self.can_be_made else {READ: []}
        found |= {name: [one.name for one in action.arguments] for name, action in self.actions.items()}
        return found

    def address_of(self, identity: str) -> Address:
        """Where the right to change one is asked for."""
        return parse_address(identity if self.named_by_address else MANAGEMENT)
