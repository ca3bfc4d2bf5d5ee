"""What the broker answers to an attach: the termini as they are here, never as the peer would like them
(3.5).

What is offered is generated from what works: capabilities, outcomes, distribution modes. A field that asks
for more than this broker does comes back with what it does, and the link is refused where that could mislead.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.frames import Accepted, DeleteOnClose, Modified, Rejected, Released, Source, Target
from amqp_broker.queues import NodeRefused

OUTCOMES: Final[dict[type, str]] = {
    Accepted: "amqp:accepted:list",
    Rejected: "amqp:rejected:list",
    Released: "amqp:released:list",
    Modified: "amqp:modified:list",
}
OUTCOME_SYMBOLS: Final = frozenset(OUTCOMES.values())
MOVE: Final = "move"
COPY: Final = "copy"
QUEUE: Final = "queue"
QUEUE_CAPABILITIES: Final = (QUEUE, "temporary-queue")
LOG: Final = "log"  # of a target: what is sent there is kept for readers, and nobody takes it
UNSUPPORTED_CAPABILITIES: Final = ("topic", "temporary-topic", "shared", "global")
ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
EXPIRY_WITH_LINK: Final = "link-detach"  # a terminus ends with its link: no resumption is offered


def check_capabilities(asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Those of the asked capabilities that hold here. Raises NodeRefused for a kind of node there is
    not.
    """
    for capability in asked or ():
        if capability in UNSUPPORTED_CAPABILITIES:
            raise NodeRefused(
                "amqp:not-implemented",
                f"terminus capability {capability!r}: this broker has queues, and no {capability} nodes",
            )
    held = tuple(capability for capability in asked or () if capability in QUEUE_CAPABILITIES)
    return held or None


def no_queue(capabilities: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The capabilities without that of a queue, from which consumers take: a log is none."""
    return tuple(capability for capability in capabilities or () if capability != QUEUE) or None


def source_answer(asked: Source, address: str) -> Source:
    """The source of a link that receives from a queue, as it really is."""
    outcomes = tuple(symbol for symbol in asked.outcomes or () if symbol in OUTCOME_SYMBOLS)
    default = asked.default_outcome if type(asked.default_outcome) in OUTCOMES else Released()
    return Source(
        address=address,
        durable=0,
        expiry_policy=EXPIRY_WITH_LINK,
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=_lifetime(asked.dynamic_node_properties) if asked.dynamic else None,
        distribution_mode=COPY if asked.distribution_mode == COPY else MOVE,
        filter=None,
        default_outcome=default,
        outcomes=outcomes or tuple(OUTCOMES.values()),
        capabilities=check_capabilities(asked.capabilities),
    )


def target_answer(asked: Target, address: str | None) -> Target:
    """The target of a link that sends to a queue, or (address None) to the node that each message names."""
    return Target(
        address=address,
        durable=0,
        expiry_policy=EXPIRY_WITH_LINK,
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=_lifetime(asked.dynamic_node_properties) if asked.dynamic else None,
        capabilities=check_capabilities(asked.capabilities),
    )


def _lifetime(asked: dict[str, object] | None) -> dict[str, object]:
    """The one lifetime that a dynamic node has here: that of the link that made it (3.5.10)."""
    return {"lifetime-policy": DeleteOnClose()}
