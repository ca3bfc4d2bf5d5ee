"""Sources and targets (3.5), the coordinator (4.5.1) and the lifetime policies of dynamic nodes (3.5.10 to
3.5.13).
"""

from typing import Any, Final, TypeAlias

from amqp_broker.frames.composite import Composite, composite, wire
from amqp_broker.frames.outcomes import AnyOutcome
from amqp_broker.frames.values import Described


@composite(0x28, ("source",))
class Source(Composite):
    """Where the messages of a link come from (3.5.3). `timeout` in seconds."""

    address: Any = wire("*", requires="address", default=None)
    durable: int = wire("terminus-durability", default=0)
    expiry_policy: str = wire("terminus-expiry-policy", default="session-end")
    timeout: int = wire("seconds", default=0)
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: dict[str, Any] | None = wire("node-properties", default=None)
    distribution_mode: str | None = wire("symbol", requires="distribution-mode", default=None)
    filter: dict[str, Any] | None = wire("filter-set", default=None)
    default_outcome: AnyOutcome = wire("*", requires="outcome", default=None)
    outcomes: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)


@composite(0x29, ("target",))
class Target(Composite):
    """Where the messages of a link go to (3.5.4). `timeout` in seconds."""

    address: Any = wire("*", requires="address", default=None)
    durable: int = wire("terminus-durability", default=0)
    expiry_policy: str = wire("terminus-expiry-policy", default="session-end")
    timeout: int = wire("seconds", default=0)
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: dict[str, Any] | None = wire("node-properties", default=None)
    capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)


@composite(0x30, ("target",))
class Coordinator(Composite):
    """The target of a link to a transaction coordinator (4.5.1)."""

    capabilities: tuple[str, ...] | None = wire(
        "symbol", requires="txn-capability", multiple=True, default=None
    )


@composite(0x2B, ("lifetime-policy",))
class DeleteOnClose(Composite):
    """The node lives as long as the link that made it (3.5.10)."""


@composite(0x2C, ("lifetime-policy",))
class DeleteOnNoLinks(Composite):
    """The node lives as long as there are links to it (3.5.11)."""


@composite(0x2D, ("lifetime-policy",))
class DeleteOnNoMessages(Composite):
    """The node lives as long as there are messages on it (3.5.12)."""


@composite(0x2E, ("lifetime-policy",))
class DeleteOnNoLinksOrMessages(Composite):
    """The node lives as long as there are links to it or messages on it (3.5.13)."""


LIFETIME_POLICIES: Final = (DeleteOnClose, DeleteOnNoLinks, DeleteOnNoMessages, DeleteOnNoLinksOrMessages)

REJECTED: Final = "amqp:rejected:list"


def takes_rejected(source: object) -> bool:
    """Whether a sender hears of what is not taken by `rejected`: its source offers that outcome, or says
    nothing of outcomes.
    """
    outcomes = source.outcomes if isinstance(source, Source) else None
    return not outcomes or REJECTED in outcomes


AnySource: TypeAlias = Source | Described | None
AnyTarget: TypeAlias = Target | Coordinator | Described | None
