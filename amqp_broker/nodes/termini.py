"""What the broker answers to an attach: the termini as they are here, never as the peer would like them
(3.5).

What is offered is generated from what works: capabilities, outcomes, distribution modes. A field that asks
for more than this broker does comes back with what it does, and the link is refused where that could mislead.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.filters.source_filter import FilterRefused, SourceFilter, source_filter
from amqp_broker.frames import (
    LIFETIME_POLICIES,
    Accepted,
    Array,
    DeleteOnClose,
    Described,
    Modified,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
)
from amqp_broker.nodes.refusals import NodeRefused

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
TOPIC_CAPABILITIES: Final = ("topic", "temporary-topic")
SUBSCRIPTION_CAPABILITIES: Final = ("shared", "global")
ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
SOLE_CONNECTION: Final = "sole-connection-for-container"  # of a connection: nobody else has its container-id
DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"  # of a connection: JMS clients ask before they send with a delay
SHARED_SUBS: Final = "SHARED-SUBS"  # of a connection: a JMS client asks before it shares a subscription
CONFIGURATION: Final = 1  # terminus-durability (3.5.5)
UNSETTLED_STATE: Final = 2
EXPIRY_WITH_LINK: Final = "link-detach"  # without a timeout a terminus ends with its link
LASTING_EXPIRIES: Final = ("connection-close", "never")  # what outlives the session (3.5.7)
LIFETIME_POLICY: Final = "lifetime-policy"
SUPPORTED_DIST_MODES: Final = "supported-dist-modes"


def check_capabilities(asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Those of the asked capabilities that a queue has. Raises NodeRefused for those of a topic."""
    for capability in asked or ():
        if capability in TOPIC_CAPABILITIES or capability in SUBSCRIPTION_CAPABILITIES:
            raise NodeRefused("amqp:not-allowed", f"terminus capability {capability!r}: here is no topic")
    held = tuple(capability for capability in asked or () if capability in QUEUE_CAPABILITIES)
    return held or None


def no_queue(capabilities: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The capabilities without that of a queue, from which consumers take: a log is none."""
    return tuple(capability for capability in capabilities or () if capability != QUEUE) or None


def source_answer(asked: Source, address: str) -> Source:
    """The source of a link that receives from a queue, as it really is: it ends with its link. Raises
    NodeRefused for outcomes that this broker does not have.
    """
    outcomes = _outcomes(asked)
    default = _default_outcome(asked.default_outcome)
    return Source(
        address=address,
        durable=0,
        expiry_policy=EXPIRY_WITH_LINK,
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=node_properties(asked),
        distribution_mode=COPY if asked.distribution_mode == COPY else MOVE,
        filter=None,
        default_outcome=default,
        outcomes=outcomes,
        capabilities=check_capabilities(asked.capabilities),
    )


def _default_outcome(asked: Any) -> Any:
    """What becomes of a delivery that the receiver settles without an outcome (3.5.3), or by one that is
    rolled back (4.4.2): as it was asked, but that nothing is added to messages by it.

    What is unsettled at the end of the link is another thing: the broker takes it back (`QueueSource.left`).
    """
    if asked is None:
        return Released()
    if isinstance(asked, Modified):
        return Modified(delivery_failed=asked.delivery_failed, undeliverable_here=asked.undeliverable_here)
    return asked


def _outcomes(asked: Source) -> tuple[str, ...]:
    """The outcomes that can be chosen on the link: those that were asked for, all where none were."""
    wished = asked.outcomes or ()
    default = asked.default_outcome
    if default is not None and type(default) not in OUTCOMES:
        raise NodeRefused(
            "amqp:not-implemented",
            f"expected accepted, rejected, released or modified as default-outcome, got {default!r:.80}",
        )
    if not wished:
        return tuple(OUTCOMES.values())
    held = tuple(symbol for symbol in wished if symbol in OUTCOME_SYMBOLS)
    if not held:
        raise NodeRefused(
            "amqp:not-implemented",
            f"expected some of {', '.join(OUTCOMES.values())} as outcomes, got {', '.join(wished):.200}",
        )
    if default is not None and OUTCOMES[type(default)] not in wished:
        raise NodeRefused(
            "amqp:invalid-field",
            f"default-outcome {OUTCOMES[type(default)]} is none of the outcomes {', '.join(wished):.200} "
            f"(3.5.3)",
        )
    return held


def filters_in_effect(asked: dict[str, Any] | None) -> tuple[SourceFilter | None, dict[str, Any] | None]:
    """What the filters of a source ask for, and the filters of our answer (3.5.3). Raises NodeRefused for one
    that is not honoured, with its name: the receiver would take messages that are not for it.
    """
    try:
        return source_filter(asked)
    except FilterRefused as refused:
        raise NodeRefused(refused.condition, str(refused)) from None


def target_answer(asked: Target, address: str | None) -> Target:
    """The target of a link that sends to a queue, or (address None) to the node that each message names."""
    return Target(
        address=address,
        durable=0,
        expiry_policy=EXPIRY_WITH_LINK,
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=node_properties(asked),
        capabilities=check_capabilities(asked.capabilities),
    )


def node_properties(
    asked: Source | Target, *, modes: tuple[str, ...] = (MOVE, COPY), with_link: bool = False
) -> dict[str, object] | None:
    """The properties that a dynamic node really has (3.5.9): its lifetime policy, by default and `with_link`
    delete-on-close, and its distribution `modes`; None where no node is asked for. Raises NodeRefused for a
    policy that is none of the standard's: others may be defined, and are not known here. And for a mode that
    the node does not have.
    """
    if not asked.dynamic:
        return None
    properties = asked.dynamic_node_properties or {}
    policy = _lifetime(properties.get(LIFETIME_POLICY))
    _check_modes(properties.get(SUPPORTED_DIST_MODES), modes)
    return {
        LIFETIME_POLICY: DeleteOnClose() if policy is None or with_link else policy,
        SUPPORTED_DIST_MODES: Array("symbol", [Symbol(mode) for mode in modes]),
    }


def _check_modes(asked: object, modes: tuple[str, ...]) -> None:
    if asked is None:
        return
    for mode in asked.items if isinstance(asked, Array) else [asked]:
        if not isinstance(mode, Symbol):
            raise NodeRefused(
                "amqp:invalid-field", f"expected symbols as supported-dist-modes (3.5.9), got {asked!r:.80}"
            )
        if mode.value not in modes:
            raise NodeRefused(
                "amqp:not-implemented",
                f"expected {' or '.join(modes)} as supported-dist-modes, got {mode.value!r:.80}",
            )


def _lifetime(policy: Any) -> Any:
    if policy is not None and not isinstance(policy, LIFETIME_POLICIES):
        condition = "amqp:not-implemented" if isinstance(policy, Described) else "amqp:invalid-field"
        raise NodeRefused(
            condition,
            f"expected delete-on-close, delete-on-no-links, delete-on-no-messages or "
            f"delete-on-no-links-or-messages as lifetime-policy, got {policy!r:.80}",
        )
    return policy
