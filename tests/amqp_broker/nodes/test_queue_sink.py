"""A link that sends to a queue, without a socket: runs, answers, credit, its end."""

from __future__ import annotations

from typing import Any

from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import Delivery, Error, Target, TransactionalState
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.operations.posting import Posting
from amqp_broker.persistence import Record
from amqp_broker.testing import memory_config
from tests.support.by_hand import Served, at_hand, text


@at_hand()
async def test_a_run_is_one_posting_and_one_answer(at: Served) -> None:
    """What came in one read is stored together, accepted together, and in the queue in its order."""
    sender = await at.sender("q")
    sink = at.context("up")
    assert isinstance(sink, QueueSink) and sink.queue.name == "q"
    sender.send([text(b"%d" % number) for number in range(5)])
    await at.settle()
    assert at.conditions == ["accepted"] * 5
    assert at.answers == [5]
    assert [record.offset for record in sink.queue.backlog.take(9)] == [0, 1, 2, 3, 4]


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="q", max_messages=2),)))
async def test_a_full_queue_takes_the_credit_and_gives_it_back(at: Served) -> None:
    """The bound of a queue reaches its senders in the protocol's own words, and so does room."""
    sender = await at.sender("q")
    sink = at.context("up")
    sender.send([text(b"a"), text(b"b")])
    await at.settle()
    assert (sink.blocked, sink.queue.blocked, sender.credit) == (True, [sink], 0)
    late = await at.sender("q", "late")
    assert (at.context("late").blocked, late.credit) == (True, 0)
    sink.queue.retire(sink.queue.backlog.take(2))
    at.broker.nodes.drained(sink.queue)
    await at.settle()
    assert (sink.blocked, sink.queue.blocked) == (False, [])
    assert sender.credit > 0 and late.credit > 0


@at_hand()
async def test_an_unknown_transaction_ends_the_link_and_stores_nothing(at: Served) -> None:
    """4.4.1: work that names no live transaction is done outside of none."""
    sender = await at.sender("q")
    queue = at.context("up").queue
    sender.send_in([text(b"lost")], TransactionalState(txn_id=b"none"))
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and gone.error.condition == "amqp:transaction:unknown-id"
    assert queue.message_count == 0


@at_hand()
async def test_who_sent_settled_learns_of_a_full_store_by_the_end_of_the_link(at: Served) -> None:
    """A refusal that nobody would hear detaches; whoever listens is told each one."""
    sender = at.attach_sender("q", snd_settle_mode=1)
    await at.sender("q", "listens")
    sink, listens = at.context("up"), at.context("listens")
    assert sender.send([text(b"x")]) == 1
    await at.settle()
    full = Error(condition="amqp:resource-limit-exceeded", description="full")
    sink.refuse([Delivery(0, b"t", 0, True, b"", None, 0, False)], full)
    await at.settle()
    assert sink.ended and not sink.attached
    listens.refuse([Delivery(0, b"t", 0, False, b"", None, 0, False)], full)
    assert not listens.ended and listens.attached


@at_hand()
async def test_a_temporary_queue_goes_with_its_link(at: Served) -> None:
    """3.5.10: links of others to it end with amqp:resource-deleted."""
    owner = await at.sender(Target(dynamic=True), "owner")
    await at.sender(owner.target.address, "other")
    owner.detach()
    await at.settle()
    (gone,) = [each for each in at.detached if each.link.name == "other"]
    assert gone.error is not None and gone.error.condition == "amqp:resource-deleted"
    assert at.broker.nodes.queues.queues() == []


@at_hand()
async def test_the_parts_of_a_posting_count_for_who_sent_it(at: Served) -> None:
    """A run of which the store has room for some messages only: what memory keeps of each is the sender's."""
    sender = await at.sender("q")
    mine = at.connection.account
    records = [Record(0, b"x", durable=False) for _ in range(2)]
    queue = at.context("up").queue
    deliveries = [Delivery(number, b"t", 0, False, b"x", None, 0, False) for number in range(2)]
    posting = Posting(
        at.broker.nodes, queue, records, at.connection.origin, at.context("up"), deliveries, account=mine
    )
    parts: list[Any] = [*posting.parts()]
    assert [part.account for part in parts] == [mine, mine]
    for part in parts:
        part.end()
    assert sender.credit > 0 and queue.pending_posts == 0
