"""How a node is come to: what a refused attach leaves behind (nothing), and that the anonymous terminus is
the same door as an attach.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import AccessRule, BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    AmqpValue,
    Described,
    Discharge,
    Properties,
    Source,
    Symbol,
    Target,
    TransactionalState,
    encode_message,
)
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, at_hand, by_hand, declared, text
from tests.support.retained import filters

KEPT_MS = 3_600_000
POLICIES = (
    QueuePolicy(pattern="halves.*", message_type="transaction"),
    QueuePolicy(pattern="normal.*", message_type="normal"),
    QueuePolicy(pattern="placed.*", sequence="required"),
    QueuePolicy(pattern="kept.*", retention_ms=KEPT_MS),
    QueuePolicy(pattern="log.*", kind="log", retention_ms=KEPT_MS),
    QueuePolicy(pattern="strict.*", create="strict"),
)
OPEN = memory_config(queue_policies=POLICIES)
TOPIC = ("shared",)  # what a subscription to a topic can be, and no queue
UNKNOWN_POLICY = {"lifetime-policy": Described(Symbol("example:for-ever:list"), [])}


def names(at: Served) -> list[str]:
    """The queues that there are."""
    return sorted(queue.name for queue in at.broker.nodes.queues.queues())


REFUSED_TARGETS: list[tuple[Target, dict[str, Any]]] = [
    (Target(address="halves.a"), {}),
    (Target(address="q", capabilities=TOPIC), {}),
    (Target(address="q"), {"properties": {"seq-stream": ""}}),
    (Target(address="log.a", capabilities=TOPIC), {}),
    (Target(address="strict.a"), {}),
    (Target(address="temporary.gone"), {}),
    (Target(dynamic=True, capabilities=TOPIC), {}),
    (Target(dynamic=True, dynamic_node_properties=UNKNOWN_POLICY), {}),
    (Target(dynamic=True), {"properties": {"seq-stream": ""}}),
    (Target(address="$half/g/normal.a"), {}),
    (Target(address="$half/g/placed.a"), {}),
    (Target(address="$half/g/q", capabilities=TOPIC), {}),
    (Target(address="$half/g/q"), {"snd_settle_mode": 1}),
    (Target(address="$half/g/temporary.gone"), {}),
    (Target(address="$half-set/g/p/1/s/normal.a"), {}),
    (Target(address="$half-set/g/p/1/s/q", capabilities=TOPIC), {}),
    (Target(address="$half-set/g/p/x/s/q"), {}),
    (Target(address=None, capabilities=TOPIC), {}),
]
REFUSED_SOURCES: list[tuple[Source, dict[str, Any]]] = [
    (Source(address="q", capabilities=TOPIC), {}),
    (Source(address="q", outcomes=("example:another:list",)), {}),
    (Source(address="temporary.gone"), {}),
    (Source(address="log.a"), {}),
    (Source(address="log.a", distribution_mode="copy", capabilities=TOPIC), {}),
    (Source(address="q", filter=filters("first")), {}),
    (Source(address="kept.a", filter=filters("first", until=5)), {}),
    (Source(address="kept.a", filter=filters(7, until=5)), {}),
    (Source(address="kept.a", distribution_mode="move", filter=filters("first")), {}),
    (Source(address="kept.a", filter=filters("first"), capabilities=TOPIC), {}),
    (Source(address="kept.a", filter=filters("first", cursor="")), {}),
    (Source(dynamic=True, capabilities=TOPIC), {}),
    (Source(dynamic=True, dynamic_node_properties=UNKNOWN_POLICY), {}),
]


@pytest.mark.parametrize(("target", "fields"), REFUSED_TARGETS, ids=repr)
@at_hand(OPEN)
async def test_a_refused_target_makes_nothing(at: Served, target: Target, fields: dict[str, Any]) -> None:
    """Every check of an attach comes before anything is made; the answer has no terminus (2.6.3)."""
    link = await at.sender(target, **fields)
    (refused,) = at.detached
    assert refused.error is not None
    assert link.remote_attach is not None and link.remote_attach.target is None
    assert names(at) == []


@pytest.mark.parametrize(("source", "fields"), REFUSED_SOURCES, ids=repr)
@at_hand(OPEN)
async def test_a_refused_source_makes_nothing(at: Served, source: Source, fields: dict[str, Any]) -> None:
    """The same for links that receive."""
    link = await at.receiver(source, 10, **fields)
    (refused,) = at.detached
    assert refused.error is not None
    assert link.remote_attach is not None and link.remote_attach.source is None
    assert names(at) == []


@at_hand(OPEN, half_set_destinations=1, max_retained_readers=1)
async def test_no_room_for_a_set_or_a_reader_makes_nothing(at: Served) -> None:
    """What a limit refuses is refused before its queue is made."""
    for name, target in (("one", "$half-set/g/p/1/s/a"), ("two", "$half-set/g/p/1/s/b")):
        await at.sender(target, name)
    at.attach_receiver(Source(address="kept.a", filter=filters("first")), 1, "first")
    await at.settle()
    at.attach_receiver(Source(address="kept.b", filter=filters("first")), 1, "second")
    await at.settle()
    described = [str(each.error.description) for each in at.detached if each.error is not None]
    assert "half_set_destinations" in described[0] and "max_retained_readers" in described[1]
    assert names(at) == ["a", "kept.a"]


# The anonymous terminus


def to(address: str | None, **sections: Any) -> Message:
    """A message for the node of this address."""
    return text(b"x", properties=Properties(to=address), **sections)


RIGHTS = memory_config(
    queue_policies=POLICIES,
    limits=BrokerLimits(max_nodes=3),
    access_rules=(
        AccessRule(users=("*",), actions=("connect",), nodes=("**",)),
        AccessRule(users=("*",), actions=("send",), nodes=("q", "mine.*", "halves.*", "strict.*")),
        AccessRule(users=("*",), actions=("send",), nodes=("temporary.*",)),
        AccessRule(users=("*",), actions=("create",), nodes=("mine.*", "halves.*", "temporary.*")),
        AccessRule(users=("*",), actions=("half-put",), nodes=("g",)),
        AccessRule(users=("*",), actions=("half-resolve",), nodes=("g",)),
    ),
)
SAME_DOOR = [
    "q", "mine.a", "other", "halves.a", "normal.a", "strict.a", "temporary.gone", "log.a", "$half/g/mine.a",
    "$half/g/q", "$half/g/other", "$half/g/normal.a", "$half/other/mine.a", "$half/g/temporary.gone",
    "$half/g/halves.a", "$half-check/g", "$half-parked/g", "$half-resolve/g", "$half-resolve/other",
    "$nobody", "$events", "$half-nothing/g", "a*", " a",
]  # fmt: skip


async def at_the_attach(at: Served, address: str) -> str | None:
    """What an attach to the address is refused with."""
    await at.sender(address)
    if not at.detached:
        return None
    error = at.detached[0].error
    assert error is not None
    return error.condition


async def through_the_relay(at: Served, address: str) -> str | None:
    """What a message for the address is refused with."""
    sender = await at.sender(None)
    sender.send([to(address, application_properties={"half_id": "h"})])
    await at.settle()
    (condition,) = at.conditions
    if address.startswith("$half-resolve/") and condition == "amqp:invalid-field":
        return None  # an attach says nothing of this: the message is no resolution
    return None if condition == "accepted" else condition


@pytest.mark.parametrize("config", [OPEN, RIGHTS], ids=["open", "rights"])
@pytest.mark.parametrize("address", SAME_DOOR)
def test_the_relay_is_the_same_door_as_an_attach(address: str, config: BrokerConfig) -> None:
    """Rights, policies, limits, message types and the broker's own nodes: refused or made alike."""
    seen: list[tuple[str | None, list[str]]] = []
    for come in (at_the_attach, through_the_relay):

        async def main(at: Served, come: Any = come) -> None:
            seen.append((await come(at, address), names(at)))

        by_hand(main, config)
    assert seen[0] == seen[1]


@at_hand(OPEN)
async def test_a_queue_for_half_messages_takes_no_others(at: Served) -> None:
    """Whether it is there already or not."""
    await at.broker.nodes.queues.create("halves.there")
    for address in ("halves.there", "halves.new"):
        assert await at_the_attach(at, address) == "amqp:not-allowed"
        at.detached.clear()
    sender = await at.sender(None, "relay")
    sender.send([to("halves.there"), to("halves.new")])
    await at.settle()
    assert at.conditions == ["amqp:not-allowed"] * 2
    (queue,) = at.broker.nodes.queues.queues()
    assert (queue.name, queue.message_count) == ("halves.there", 0)


@at_hand()
async def test_a_relay_makes_queues_on_first_use_and_keeps_the_order(at: Served) -> None:
    """A run to a new queue, an old one and the new one again, in one read."""
    await at.broker.nodes.queues.create("old")
    sender = await at.sender(None)
    run = [("new", b"1"), ("old", b"2"), ("new", b"3"), ("newer", b"4"), ("new", b"5")]
    sender.send([text(body, properties=Properties(to=address)) for address, body in run])
    await at.settle()
    assert at.conditions == ["accepted"] * 5
    assert names(at) == ["new", "newer", "old"]
    await at.receiver("new", 10)
    assert at.bodies() == [b"1", b"3", b"5"]


@at_hand(max_nodes=1)
async def test_a_relay_meets_the_bound_of_nodes(at: Served) -> None:
    """The setting is named, and what comes behind is taken."""
    sender = await at.sender(None)
    sender.send([to("a"), to("b"), to("a")])
    await at.settle()
    assert sorted(at.conditions) == ["accepted", "accepted", "amqp:resource-limit-exceeded"]
    refused = [each.error for each in at.outcomes if hasattr(each, "error")]
    assert "max_nodes" in refused[0].description
    assert names(at) == ["a"]


@at_hand()
async def test_what_waits_for_its_queue_is_part_of_its_transaction(at: Served) -> None:
    """A declare, then a post to a new queue and the commit in one read: all of it, or none."""
    sender = at.attach_sender(None)
    control, txn_id = await declared(at)
    sender.send_in([to("fresh")], TransactionalState(txn_id=txn_id))
    control.send([Message(encode_message(body=AmqpValue(Discharge(txn_id=txn_id, fail=False))))])
    await at.settle()
    assert names(at) == ["fresh"]
    (queue,) = at.broker.nodes.queues.queues()
    assert queue.message_count == 1
    assert len(at.outcomes) == 2


@at_hand()
async def test_a_half_message_for_a_dynamic_queue_needs_no_link_of_its_own(at: Served) -> None:
    """The queue of dead letters is made first, as at an attach."""
    answered = await at.receiver(Source(dynamic=True), 1)
    assert isinstance(answered.source, Source) or answered.remote_attach is not None
    (name,) = names(at)
    sender = await at.sender(None)
    sender.send([to(f"$half/g/{name}", application_properties={"half_id": "h"})])
    await at.settle()
    assert at.conditions == ["accepted"]
    assert names(at) == ["dead-letters", name]


@pytest.mark.parametrize("kind", [1, 3], ids=["topic", "temporary topic"])
@at_hand()
async def test_a_relay_does_not_take_a_queue_for_a_topic(at: Served, kind: int) -> None:
    """JMS says in an annotation what the destination is; an attach that asks for a topic is refused, too."""
    from amqp_broker.frames import Byte

    await at.post("news", b"it is a queue")
    at.outcomes.clear()
    sender = await at.sender(None)
    annotations = {Symbol("x-opt-jms-dest"): Byte(kind)}
    sender.send([to("news", message_annotations=annotations)])
    await at.settle()
    assert at.conditions == ["amqp:not-allowed"]
    assert names(at) == ["news"]
    sender.send([to("news", message_annotations={Symbol("x-opt-jms-dest"): Byte(0)})])
    await at.settle()
    assert at.conditions[1:] == ["accepted"]


# Dynamic nodes, and replies


@at_hand()
async def test_a_late_reply_to_a_dynamic_node_makes_nothing(at: Served) -> None:
    """Its address is known as one of a dynamic node, also after its end."""
    receiver = await at.receiver(Source(dynamic=True), 1)
    (name,) = names(at)
    receiver.detach()
    await at.settle()
    assert names(at) == []
    at.detached.clear()
    sender = at.attach_sender(None, "relay")
    await at.sender(name, "late")
    assert [each.error.condition for each in at.detached if each.error] == ["amqp:not-found"]
    sender.send([to(name)])
    await at.settle()
    assert at.conditions == ["amqp:not-found"]
    assert names(at) == []


@pytest.mark.parametrize("reply_to", ["halves.a", "placed.a"])
@pytest.mark.parametrize("asked", ["$transactions", "$retained", "$half-resolve/g"])
@at_hand(OPEN)
async def test_replies_keep_to_what_a_queue_takes(at: Served, asked: str, reply_to: str) -> None:
    """A queue for half messages, or for messages with a place in a stream, takes no reply."""
    await at.broker.nodes.queues.create(reply_to)
    sender = await at.sender(asked)
    subject = {"$retained": "describe", "$half-resolve/g": "status"}.get(asked)
    properties = Properties(subject=subject, reply_to=reply_to, correlation_id=b"c")
    body: Any = AmqpValue({"producer": "p"})
    sender.send([Message(encode_message(properties=properties, body=body))])
    await at.settle()
    assert at.conditions == ["amqp:not-allowed"]
    (queue,) = at.broker.nodes.queues.queues()
    assert queue.message_count == 0
