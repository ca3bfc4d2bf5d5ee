"""From a terminus to its node: every kind registered once, and what nobody registered."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Coordinator, Source, Target
from amqp_broker.half_sets.set_node import SetNode
from amqp_broker.halves.nodes import CheckNode, ParkedNode, PutNode, ResolveNode
from amqp_broker.nodes.coordinator import CoordinatorNode
from amqp_broker.nodes.node import Node
from amqp_broker.nodes.outcomes import OutcomeNode
from amqp_broker.nodes.queues import QueueNode, TemporaryNode
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.registry import Registry
from amqp_broker.nodes.relay import RelayNode
from amqp_broker.retained.node import RetainedNode
from amqp_broker.retained.reading import ReadNode
from tests.support.by_hand import Served, at_hand
from tests.support.retained import filters

TARGETS: list[tuple[Any, type[Node]]] = [
    (Coordinator(), CoordinatorNode),
    (Target(dynamic=True), TemporaryNode),
    (Target(), RelayNode),
    (Target(address="q"), QueueNode),
    (Target(address="$transactions"), OutcomeNode),
    (Target(address="$transactions/below"), QueueNode),
    (Target(address="$nobody"), QueueNode),
    (Target(address="$events"), QueueNode),
    (Target(address="$retained"), RetainedNode),
    (Target(address="$half/g/q"), PutNode),
    (Target(address="$half-resolve/g"), ResolveNode),
    (Target(address="$half-check/g"), CheckNode),
    (Target(address="$half-set/g/p/1/s/q"), SetNode),
]
SOURCES: list[tuple[Source, type[Node]]] = [
    (Source(dynamic=True), TemporaryNode),
    (Source(address="q"), QueueNode),
    (Source(address="q", filter=filters("first")), ReadNode),
    (Source(address="$events"), ReadNode),
    (Source(address="$transactions"), QueueNode),
    (Source(address="$half-check/g"), CheckNode),
    (Source(address="$half-check/g/by-outcome"), CheckNode),
    (Source(address="$half-parked/g"), ParkedNode),
]


@at_hand()
async def test_each_terminus_has_its_node(at: Served) -> None:
    """The same address means the same node everywhere; a name of the broker's own that nobody has, or that is
    none for this direction, is looked for among the queues and not found.
    """
    registry = at.broker.registry
    assert [type(registry.target(target)) for target, _ in TARGETS] == [kind for _, kind in TARGETS]
    assert [type(registry.source(source)) for source, _ in SOURCES] == [kind for _, kind in SOURCES]


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        (None, "amqp:invalid-field"),
        (Target(address=7), "amqp:invalid-field"),
        (Target(address="$half/g"), "amqp:not-found"),
    ],
    ids=["none", "number", "grammar"],
)
@at_hand()
async def test_what_names_nothing_is_refused(at: Served, target: Any, condition: str) -> None:
    """With the wire's condition."""
    with pytest.raises(NodeRefused) as refused:
        at.broker.registry.target(target)
    assert refused.value.error.condition == condition


def test_a_name_has_one_kind() -> None:
    """Two features that want the same name are a fault of ours."""
    registry = Registry()
    registry.register("$one", Node)
    with pytest.raises(AssertionError, match="two kinds"):
        registry.register("$one", Node)
