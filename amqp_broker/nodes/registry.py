"""From a terminus to its node: one namespace, and the same address means the same node everywhere. What a
peer writes is put into the broker's own words first (`amqp_broker.names`).

    Coordinator              COORDINATOR
    dynamic                  TEMPORARY
    address null (target)    RELAY, the anonymous terminus
    $transactions, $...      the kind that registered the name, or what stands before its first "/"
    source with a filter     the kind whose resolver wants it, before everything but that
    a topic                  the kind whose resolver wants it, by its name or by the terminus capabilities
    source null              FORMER: what the link of this name received from before
    anything else            QUEUES

Each kind of node registers itself, once for each broker (`amqp_broker.features`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.addresses import RESERVED_PREFIX
from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import Coordinator, Source, Target
from amqp_broker.names import Names
from amqp_broker.nodes.node import Node
from amqp_broker.nodes.refusals import NodeRefused

Kind = Callable[[str], Node]
"""Makes the node of an address. Raises NodeRefused where that does not keep the grammar of its kind."""

SourceKind = Callable[[Source], Node | None]
"""Makes the node that a source asks for by more than its address; None: it asks for nothing of this kind."""

TargetKind = Callable[[str | None, tuple[str, ...]], Node | None]
"""Makes the node of a name (None: a new one for the link) and of terminus capabilities; None: it is of
another kind.
"""

COORDINATOR: Final = "the coordinator"
FORMER: Final = "what a link received from before"
TEMPORARY: Final = "a node for one link"
RELAY: Final = "the anonymous terminus"
QUEUES: Final = "queues"


class Registry:
    """From termini to nodes, for one broker."""

    def __init__(self, names: Names | None = None) -> None:
        self._names = names or Names(BrokerConfig())
        self._kinds: dict[str, Kind] = {}
        self._own: dict[str, Kind] = {}
        self._above: dict[str, Kind] = {}
        self._resolvers: list[SourceKind] = []
        self._target_resolvers: list[TargetKind] = []

    def register(self, name: str, kind: Kind, *, below: bool = False) -> None:
        """`kind` makes the node of this name: one of the broker's own (`$...`), or one of COORDINATOR,
        TEMPORARY, RELAY and QUEUES. `below`: also the nodes of all names that go on with a "/".
        """
        kinds = self._own if name.startswith(RESERVED_PREFIX) else self._kinds
        assert name not in kinds, f"{name} has two kinds of node"
        kinds[name] = kind
        if below:
            self._above[name] = kind

    def register_source(self, kind: SourceKind) -> None:
        """`kind` is asked for each source."""
        self._resolvers.append(kind)

    def register_target(self, kind: TargetKind) -> None:
        """`kind` is asked for each name that is sent to, and none of the broker's own."""
        self._target_resolvers.append(kind)

    def own(self, name: str) -> Node | None:
        """The broker's own node (`$...`) of this name. Raises NodeRefused."""
        kind = self._own.get(name) or self._above.get(name.partition("/")[0])
        return None if kind is None else kind(name)

    def target(self, target: Any) -> Node:
        """The node that a link sends to. Raises NodeRefused."""
        if isinstance(target, Coordinator):
            return self._kinds[COORDINATOR]("")
        if not isinstance(target, Target):
            raise NodeRefused("amqp:invalid-field", f"expected a target, got {target!r:.80}")
        capabilities = target.capabilities or ()
        if target.dynamic:
            return self._resolved(None, capabilities) or self._kinds[TEMPORARY]("")
        if target.address is None:
            return self._kinds[RELAY]("")
        return self._named(_text(target.address), capabilities)

    def source(self, source: Source | None) -> Node:
        """The node that a link receives from; None: the one that it had before. Raises NodeRefused."""
        if source is None:
            return self._kinds[FORMER]("")
        if isinstance(source.address, str) and not source.dynamic:
            node = self.own(source.address)
            if node is not None and node.is_received_from:
                return node
        for kind in self._resolvers:
            node = kind(source)
            if node is not None:
                return node
        if source.dynamic:
            return self._kinds[TEMPORARY]("")
        if source.address is None:
            raise NodeRefused(
                "amqp:invalid-field", "expected the address of a node in source.address, got null"
            )
        return self._kinds[QUEUES](_text(source.address))

    def asked(self, terminus: Any) -> Any:
        """A terminus of ours as a peer asks for it, in the broker's own words. Raises NodeRefused."""
        if isinstance(terminus, Source):
            return self._names.terminus(terminus)
        return self._names.terminus(terminus) if isinstance(terminus, Target) else terminus

    def named(self, address: str, capabilities: tuple[str, ...] = ()) -> Node:
        """The node that a message of the anonymous terminus with this address is for. Raises NodeRefused."""
        name, capability = self._names.of(address)
        return self._named(name, capabilities if capability is None else (*capabilities, capability))

    def _named(self, name: str, capabilities: tuple[str, ...]) -> Node:
        node = self.own(name)
        if node is not None and node.is_sent_to:
            return node
        return self._resolved(name, capabilities) or self._kinds[QUEUES](name)

    def _resolved(self, name: str | None, capabilities: tuple[str, ...]) -> Node | None:
        for kind in self._target_resolvers:
            node = kind(name, capabilities)
            if node is not None:
                return node
        return None


def _text(address: Any) -> str:
    if not isinstance(address, str):
        raise NodeRefused("amqp:invalid-field", f"expected a string as address, got {type(address).__name__}")
    return address
