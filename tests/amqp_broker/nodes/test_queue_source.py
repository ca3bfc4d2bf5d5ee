"""A link that receives from a queue, without a socket: what is sent, outcomes, drain, its end."""

from __future__ import annotations

import pytest

from amqp_broker.frames import Accepted, Modified, Received, Released, Source
from amqp_broker.links import ReceiverLink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.queue import Queue
from tests.support.by_hand import Served, at_hand, text


def attach_browser(at: Served, credit: int) -> ReceiverLink:
    """A link that is shown what is in q."""
    return at.attach_receiver(Source(address="q", distribution_mode="copy"), credit)


async def filled(at: Served, count: int) -> Queue:
    """The queue q with so many messages."""
    sender = await at.sender("q")
    sender.send([text(b"%d" % number) for number in range(count)])
    await at.settle()
    queue: Queue = at.context("up").queue
    return queue


@at_hand()
async def test_what_waits_is_sent_by_credit_and_leaves_with_accepted(at: Served) -> None:
    """Nothing beyond the credit; an accepted message leaves the queue, and its delivery is settled."""
    queue = await filled(at, 5)
    receiver = await at.receiver("q", 3)
    source = at.context("down")
    assert isinstance(source, QueueSource) and at.bodies() == [b"0", b"1", b"2"]
    receiver.dispose(at.received[:2], Accepted(), False)
    await at.settle()
    assert queue.message_count == 3
    assert source.link.unsettled_count == 1
    receiver.processed(3)
    await at.settle()
    assert at.bodies() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("outcome", "count"), [(Released(), 0), (Modified(delivery_failed=True), 1)], ids=["released", "modified"]
)
@at_hand()
async def test_what_is_given_back_comes_again(at: Served, outcome: object, count: int) -> None:
    """In its old place, with the count of tries that the outcome says."""
    await filled(at, 1)
    receiver = await at.receiver("q", 1)
    receiver.settle(at.received, outcome)
    receiver.processed(1)
    await at.settle()
    assert at.bodies() == [b"0", b"0"]
    (delivery,) = at.context("down").link.session.unsettled_out.values()
    assert delivery.message.delivery_count == count


@at_hand()
async def test_received_decides_nothing(at: Served) -> None:
    """3.4.1: it is no outcome, and the message stays with its receiver."""
    queue = await filled(at, 1)
    receiver = await at.receiver("q", 1)
    receiver.dispose(at.received, Received(section_number=0, section_offset=0), False)
    await at.settle()
    assert queue.message_count == 1 and at.context("down").link.unsettled_count == 1


@at_hand()
async def test_an_outcome_that_is_not_offered_ends_the_link(at: Served) -> None:
    """3.5.3: the source said which it takes."""
    queue = await filled(at, 1)
    receiver = at.attach_receiver(Source(address="q", outcomes=("amqp:accepted:list",)), 1)
    await at.settle()
    receiver.settle(at.received, Released())
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and gone.error.condition == "amqp:not-allowed"
    assert queue.backlog.available() == 1  # it came back as the default outcome says


@at_hand()
async def test_a_drain_of_an_empty_queue_is_answered(at: Served) -> None:
    """2.6.7: what is not there is not waited for."""
    receiver = await at.receiver("q", 0)
    receiver.flow(5, drain=True)
    await at.settle()
    assert receiver.credit == 0


@at_hand()
async def test_what_a_link_holds_at_its_end_comes_back_in_place(at: Served) -> None:
    """The default outcome is applied to what nobody decided; the link's place in the queue is free."""
    queue = await filled(at, 3)
    receiver = await at.receiver("q", 2)
    receiver.detach()
    await at.settle()
    assert not queue.consumers
    assert [record.offset for record in queue.backlog.take(9)] == [0, 1, 2]


@at_hand()
async def test_another_connection_of_the_same_container_takes_the_name(at: Served) -> None:
    """2.6.1: the link that had it ends with amqp:link:stolen."""
    await at.receiver("q", 1)
    thief = Served(at.broker)
    thief.attach_receiver("q", 1)
    await thief.settle()
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and gone.error.condition == "amqp:link:stolen"
    assert list(thief.connection.links) and not at.connection.links


@pytest.mark.parametrize("mode", ["copy", "move"])
@at_hand()
async def test_what_was_assigned_to_a_link_that_takes_its_credit_back_is_there_once(
    at: Served, mode: str
) -> None:
    """In one read with the messages, before they are sent: a browser had copies, others give them back."""
    queue = await filled(at, 0)
    sender = at.attach_sender("q", "to q")
    looks = await at.receiver(Source(address="q", distribution_mode=mode), 3, "looks")
    sender.send([text(b"0", durable=False), text(b"1", durable=False)])
    looks.set_credit(0)
    await at.settle()
    assert at.bodies() == [] and queue.message_count == 2
    await at.receiver("q", 9, "takes")
    assert at.bodies() == [b"0", b"1"]


@at_hand()
async def test_what_a_browser_waits_for_counts_as_memory(at: Served) -> None:
    """Of its connection, until it went out, or its link is gone: nobody else has these copies."""
    queue = await filled(at, 5)
    copied = attach_browser(at, credit=0)
    await at.settle()
    source = at.context("down")
    account = at.connection.account
    before = account.used_bytes
    records = queue.backlog.peek(0, 5)
    octets = sum(len(record.body) + RECORD_OVERHEAD_BYTES for record in records)
    source.deliver(records)
    assert account.used_bytes - before == octets
    await at.settle()  # without credit they wait for nobody
    assert account.used_bytes == before and not at.received
    source.deliver(records)
    copied.processed(5)
    await at.settle()
    assert account.used_bytes == before
    source.deliver(records)
    copied.detach()
    await at.settle()
    assert account.used_bytes == before
