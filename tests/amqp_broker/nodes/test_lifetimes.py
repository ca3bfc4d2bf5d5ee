"""When a dynamic node is deleted: the four lifetime policies (3.5.10 to 3.5.13), and the properties that it
is answered with (3.5.9).
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    Accepted,
    Array,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Symbol,
    Target,
)
from amqp_broker.links import ReceiverLink
from amqp_broker.nodes.termini import SUPPORTED_DIST_MODES
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.support.by_hand import Control, Served, at_hand, by_hand, commits_held, posted, text, within

POLICIES = (DeleteOnClose, DeleteOnNoLinks, DeleteOnNoMessages, DeleteOnNoLinksOrMessages)
TOPIC = ("temporary-topic",)


def properties(policy: Any) -> dict[Any, Any]:
    """Those that ask for a lifetime policy."""
    return {"lifetime-policy": policy}


class Node:
    """A dynamic node, and the link that it was made for."""

    def __init__(self, at: Served, owner: Any, address: str) -> None:
        self.at = at
        self.owner = owner
        self.address = address

    @property
    def there(self) -> bool:
        """Whether it is."""
        return self.at.broker.nodes.queues.find(self.address) is not None

    async def owner_goes(self) -> None:
        """The link that it was made for is closed."""
        self.owner.detach()
        await self.at.settle()


async def made_by_sender(at: Served, policy: Any) -> Node:
    """A dynamic target with this lifetime policy."""
    owner = await at.sender(Target(dynamic=True, dynamic_node_properties=properties(policy)), "owner")
    assert owner.target.dynamic_node_properties["lifetime-policy"] == policy
    return Node(at, owner, owner.target.address)


async def made_by_receiver(at: Served, policy: Any) -> Node:
    """A dynamic source with this lifetime policy."""
    owner = await at.receiver(Source(dynamic=True, dynamic_node_properties=properties(policy)), 0, "owner")
    assert owner.source.dynamic_node_properties["lifetime-policy"] == policy
    return Node(at, owner, owner.source.address)


MAKERS = pytest.mark.parametrize("make", [made_by_sender, made_by_receiver])


async def put(node: Node, at: Served, *bodies: bytes) -> None:
    """Messages for the node, on a link that comes and goes."""
    link = await at.sender(node.address, f"puts {bodies!r}")
    link.send([text(body) for body in bodies])
    await at.settle()
    assert at.outcomes == [Accepted()] * len(bodies)
    at.outcomes.clear()
    link.detach()
    await at.settle()


def accept(link: ReceiverLink, at: Served, count: int) -> None:
    """Accept so many of the messages that have come."""
    came, at.received = at.received[:count], at.received[count:]
    link.settle(came, Accepted())


@MAKERS
@at_hand()
async def test_delete_on_close(at: Served, make: Any) -> None:
    """3.5.10: it goes with its link, whatever messages and other links it has."""
    other = at.another()
    node = await make(at, DeleteOnClose())
    await other.sender(node.address, "sends")
    await put(node, at, b"lost")
    await node.owner_goes()
    assert not node.there
    assert other.condition() == "amqp:resource-deleted"


@MAKERS
@at_hand()
async def test_delete_on_no_links(at: Served, make: Any) -> None:
    """3.5.11: "deleted at the point that there remain no Links for which the node is either the source or
    target", with the messages that it still has.
    """
    other = at.another()
    node = await make(at, DeleteOnNoLinks())
    sends = await other.sender(node.address, "sends")
    browses = await other.receiver(Source(address=node.address, distribution_mode="copy"), 0, "browses")
    await put(node, at, b"stays")
    await node.owner_goes()
    assert node.there
    sends.detach()
    await at.settle()
    assert node.there, "a browser has it as its source"
    browses.detach()
    await at.settle()
    assert not node.there
    assert [gone.error for gone in other.detached] == [None, None]


@MAKERS
@at_hand()
async def test_delete_on_no_messages(at: Served, make: Any) -> None:
    """3.5.12: "deleted at the point that the Link which caused its creation no longer exists and there remain
    no Messages at the Node". Who accepted the last one is told that before the link ends.
    """
    other = at.another()
    node = await make(at, DeleteOnNoMessages())
    await put(node, at, b"1", b"2")
    await node.owner_goes()
    assert node.there, "there are messages"
    reads = await other.receiver(node.address, 10)
    accept(reads, other, 1)
    await at.settle()
    assert node.there, "there is one more"
    accept(reads, other, 1)
    await at.settle()
    assert not node.there
    assert other.condition() == "amqp:resource-deleted"


@MAKERS
@at_hand()
async def test_delete_on_no_messages_of_an_empty_node(at: Served, make: Any) -> None:
    """3.5.12: an empty one goes with its link, and lives while the link does."""
    other = at.another()
    node = await make(at, DeleteOnNoMessages())
    await put(node, at, b"1")
    reads = await other.receiver(node.address, 10)
    accept(reads, other, 1)
    await at.settle()
    assert node.there, "its link is there"
    await node.owner_goes()
    assert not node.there
    assert other.condition() == "amqp:resource-deleted"


@MAKERS
@at_hand()
async def test_delete_on_no_links_or_messages(at: Served, make: Any) -> None:
    """3.5.13: "deleted at the point that the there are no Links which have this Node as their source or
    target, and there remain no Messages at the Node".
    """
    other = at.another()
    node = await make(at, DeleteOnNoLinksOrMessages())
    await put(node, at, b"1")
    await node.owner_goes()
    assert node.there, "there is a message"
    reads = await other.receiver(node.address, 10)
    accept(reads, other, 1)
    await at.settle()
    assert node.there, "there is a link"
    reads.detach()
    await at.settle()
    assert not node.there
    assert [gone.error for gone in other.detached] == [None]


@at_hand()
async def test_a_message_that_came_back_keeps_it(at: Served) -> None:
    """3.5.13: what the last link leaves unsettled is a message at the node."""
    other = at.another()
    node = await made_by_sender(at, DeleteOnNoLinksOrMessages())
    await put(node, at, b"1")
    await node.owner_goes()
    reads = await other.receiver(node.address, 10)
    reads.detach()
    await at.settle()
    assert node.there
    assert await at.left(node.address) == [b"1"]


@at_hand()
async def test_a_message_whose_time_is_over_keeps_it_no_longer(at: Served) -> None:
    """3.5.12: nobody has to take the last message."""
    node = await made_by_sender(at, DeleteOnNoMessages())
    node.owner.send([text(b"1", ttl=1_000)])
    await node.owner_goes()
    assert node.there
    await at.pass_time(600)
    assert not node.there


@pytest.mark.parametrize("fail", [False, True])
@at_hand()
async def test_a_message_of_a_transaction_is_under_way(at: Served, fail: bool) -> None:
    """3.5.12: what is posted in a transaction is a message of the node when it commits, and never one when
    it rolls back.
    """
    control = Control(at)
    txn_id = await control.declare()
    node = await made_by_sender(at, DeleteOnNoMessages())
    await posted(at, node.owner, txn_id, b"1")
    await node.owner_goes()
    assert node.there
    assert await control.discharge(txn_id, fail=fail) == Accepted()
    assert node.there is not fail
    if not fail:
        assert await at.left(node.address) == [b"1"]


@at_hand()
async def test_a_retirement_in_a_transaction(at: Served) -> None:
    """3.5.12: a message is there until the commit that takes it away."""
    control = Control(at)
    node = await made_by_sender(at, DeleteOnNoMessages())
    await put(node, at, b"1")
    await node.owner_goes()
    reads = await at.receiver(node.address, 10)
    txn_id = await control.declare()
    reads.settle(at.take(), within(txn_id, Accepted()))
    await at.settle()
    assert node.there
    await control.commit(txn_id)
    assert not node.there


def test_a_message_that_stands_behind_a_commit_is_under_way() -> None:
    """3.5.12: its sender is gone before it is there."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        node = await made_by_sender(at, DeleteOnNoMessages())
        busy = await at.sender("busy", "busy")
        with commits_held(at, faults):
            busy.send([text(b"durable")])
            node.owner.send([text(b"1")])
            node.owner.detach()
            await at.hear_later()
            assert node.there
        await at.rest()
        assert node.there
        assert await at.left(node.address) == [b"1"]

    by_hand(main, faults=faults)


@pytest.mark.parametrize("policy", POLICIES)
@at_hand()
async def test_a_broken_connection_is_the_end_of_its_links(at: Served, policy: Any) -> None:
    """2.4.5, 3.5.10 to 3.5.13: nobody said detach."""
    owner = at.another()
    node = await made_by_receiver(owner, policy())
    await owner.breaks()
    await at.settle()
    assert at.broker.nodes.queues.find(node.address) is None


MODES = Array("symbol", [Symbol("move"), Symbol("copy")])


@pytest.mark.parametrize("asked", [None, Symbol("move"), Symbol("copy"), MODES])
@at_hand()
async def test_its_distribution_modes_are_told(at: Served, asked: Any) -> None:
    """3.5.9: the answer has "the actual properties", whatever was asked."""
    wanted = {} if asked is None else {SUPPORTED_DIST_MODES: asked}
    link = await at.receiver(Source(dynamic=True, dynamic_node_properties=wanted))
    assert link.source.dynamic_node_properties == {
        "lifetime-policy": DeleteOnClose(),
        SUPPORTED_DIST_MODES: MODES,
    }


@pytest.mark.parametrize(
    ("asked", "capabilities", "condition"),
    [
        (Symbol("broadcast"), (), "amqp:not-implemented"),
        (Array("symbol", [Symbol("move"), Symbol("broadcast")]), (), "amqp:not-implemented"),
        (Symbol("move"), TOPIC, "amqp:not-implemented"),
        ("move", (), "amqp:invalid-field"),
        (7, (), "amqp:invalid-field"),
        (Array("string", ["move"]), (), "amqp:invalid-field"),
    ],
)
@at_hand()
async def test_a_mode_that_it_would_not_have_is_refused(
    at: Served, asked: Any, capabilities: tuple[str, ...], condition: str
) -> None:
    """3.5.9: "The value of this entry MUST be one or more symbols which are valid distribution-modes"."""
    wanted = {SUPPORTED_DIST_MODES: asked}
    source = Source(dynamic=True, dynamic_node_properties=wanted, capabilities=capabilities)
    await at.receiver(source)
    assert at.condition() == condition
    await at.sender(Target(dynamic=True, dynamic_node_properties=wanted, capabilities=capabilities))
    assert at.condition() == condition
    assert at.broker.nodes.queues.queues() == []


@at_hand()
async def test_a_temporary_topic_has_the_lifetime_of_its_link(at: Served) -> None:
    """3.5.9: it keeps no messages; the answer says delete-on-close, whatever was asked, and copy."""
    asked = properties(DeleteOnNoMessages())
    link = await at.sender(Target(dynamic=True, dynamic_node_properties=asked, capabilities=TOPIC))
    assert link.target.dynamic_node_properties == {
        "lifetime-policy": DeleteOnClose(),
        SUPPORTED_DIST_MODES: Array("symbol", [Symbol("copy")]),
    }


@at_hand(memory_config(), max_nodes=2)
async def test_a_node_that_outlives_its_link_counts(at: Served) -> None:
    """The bound is max_nodes: what nobody empties leaves no room for more."""
    for name in ("a", "b"):
        node = await made_by_sender(at, DeleteOnNoMessages())
        node.owner.send([text(name.encode())])
        await node.owner_goes()
    await at.sender(Target(dynamic=True), "one more")
    assert at.condition() == "amqp:resource-limit-exceeded"
