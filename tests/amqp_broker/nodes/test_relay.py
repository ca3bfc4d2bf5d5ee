"""The anonymous terminus, without a socket: each message finds its node, or is told why not."""

from __future__ import annotations

from typing import Any

from amqp_broker.configuration import HalfGroupConfig, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Properties,
    TransactionalState,
)
from amqp_broker.nodes.relay import RelaySink
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, at_hand, declared, text
from tests.support.halves import half


def to(address: str | None, body: bytes = b"x", **properties: Any) -> Message:
    """A message for the node of this address."""
    return text(body, properties=Properties(to=address, **properties))


async def made(at: Served, *names: str) -> None:
    """Queues of these names."""
    for name in names:
        await at.broker.nodes.queues.create(name)


@at_hand()
async def test_each_message_is_taken_or_refused_for_itself(at: Served) -> None:
    """One run to three queues, of which one is made; to none, to a node that takes no message, and to a name
    that says nothing.
    """
    await made(at, "a", "b")
    sender = await at.sender(None)
    assert isinstance(at.context("up"), RelaySink)
    addresses = ("a", "nowhere", "b", None, "$nobody", "$half-check/g", "a*")
    sender.send([to(address) for address in addresses])
    await at.settle()
    assert sorted(at.conditions) == sorted(
        [
            "accepted", "accepted", "accepted", "amqp:invalid-field", "amqp:not-found",
            "amqp:not-allowed", "amqp:invalid-field",
        ]
    )  # fmt: skip
    queues = at.broker.nodes.queues.queues()
    assert {queue.name: queue.message_count for queue in queues} == {"a": 1, "b": 1, "nowhere": 1}
    assert not any(queue.producers for queue in queues)


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="small", max_messages=1),)))
async def test_a_full_queue_does_not_take_the_credit_of_a_relay(at: Served) -> None:
    """Other nodes have room: the message is refused, the link goes on."""
    await made(at, "small", "other")
    sender = await at.sender(None)
    for _ in range(2):
        sender.send([to("small")])
        await at.settle()
    sender.send([to("other")])
    await at.settle()
    assert at.conditions == ["accepted", "amqp:resource-limit-exceeded", "accepted"]
    assert sender.credit > 0


@at_hand()
async def test_a_node_of_requests_answers_through_a_relay(at: Served) -> None:
    """The same sink as on a link of its own, for one message."""
    await made(at, "replies")
    sender = await at.sender(None)
    sender.send([to("$transactions", correlation_id=b"never", reply_to="replies")])
    await at.settle()
    assert at.conditions == ["accepted"]
    assert at.broker.nodes.queues.queues()[0].message_count == 1


@at_hand(memory_config(half_groups=(HalfGroupConfig(name="g"),)))
async def test_work_behind_a_request_of_a_transaction_waits_for_what_the_store_says_of_it(at: Served) -> None:
    """In one run of the anonymous terminus: two requests of which the second dooms the transaction, and a
    message for a queue, which is refused as one that came later.
    """
    sender = at.attach_sender(None)
    _, txn_id = await declared(at)
    state = TransactionalState(txn_id=txn_id)
    sender.send([Message(half("known", to="$half/g/q"))])
    await at.settle()
    assert at.outcomes.pop() == Accepted()
    puts = [half("new", to="$half/g/q"), half("known", b"another body", to="$half/g/q")]
    sender.send_in([*map(Message, puts), to("q")], state)
    await at.settle()
    told = [each.outcome for each in at.outcomes]
    assert told[0] == Accepted()
    conditions = [each.error.condition for each in told[1:]]
    assert conditions == ["half:id-conflict", "amqp:transaction:rollback"]


@at_hand()
async def test_what_does_not_fit_is_refused_behind_all_that_waits_for_its_queue(at: Served) -> None:
    """Two messages of a run fit into memory, and the queue of each has to be made first; the third one, which
    does not fit, ends the link, but not before.
    """
    sender = await at.sender(None)
    messages = [to("one"), to("two"), to("three")]
    account = at.connection.account
    size = len(messages[0].body) + RECORD_OVERHEAD_BYTES
    read = sum(len(each.body) + len(each.header_bytes) for each in messages)  # waits for memory first
    account.budget.limit_bytes = 2 * (account.budget.used_bytes + read + 2 * size + size // 2)
    account.pressed = True
    account.budget.pressed[account] = None
    sender.send(messages, settled=True)
    await at.pass_time(60)  # so long what was read may wait for memory
    queues = at.broker.nodes.queues.queues()
    assert {queue.name: queue.message_count for queue in queues} == {"one": 1, "two": 1}
    assert at.condition() == "amqp:resource-limit-exceeded"
