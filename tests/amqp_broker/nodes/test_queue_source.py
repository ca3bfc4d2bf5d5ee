"""A link that receives from a queue, without a socket: what is sent, outcomes, drain, its end."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from amqp_broker.connection import Source as LinkSource
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Message,
    Modified,
    Released,
    Source,
    Symbol,
)
from amqp_broker.links import ReceiverLink, SenderLink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.queue import Queue
from amqp_broker.testing import ScriptedFaults
from tests.support.by_hand import (
    Served,
    at_hand,
    by_hand,
    commits_held,
    text,
)
from tests.support.jumping_broker import on_disk


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


class Filling(LinkSource):
    """Fills the output whenever it may send, says so, and has more to send."""

    asked: ClassVar[list[LinkSource]] = []

    def on_credit(self) -> None:
        self.asked.append(self)
        output = self.connection.engine.output
        output.size_bytes = output.limit_bytes
        assert not self.link.sendable()


@at_hand()
async def test_those_for_whom_the_output_has_no_room_are_the_first_ones_next_time(at: Served) -> None:
    """Nobody waits for an output that is not full; of those who do, one after the other is asked."""
    for name in ("a", "b", "c"):
        await at.receiver("q", 1, name)
    output = at.connection.engine.output
    assert not output.waiting
    Filling.asked.clear()
    sources = [Filling(at.connection, link) for link in at.connection.links if isinstance(link, SenderLink)]
    output.size_bytes = output.limit_bytes
    for source in sources:
        source.link.context = source
        assert not source.link.sendable()
    assert not output.room_awaited
    for _ in range(4):
        output.size_bytes = 0
        assert output.room_awaited
        at.connection.offer_room()
    assert Filling.asked == [*sources, sources[0]]
    output.size_bytes = 0


NOTE = {"x-opt-why": "later"}


@pytest.mark.parametrize(
    ("outcome", "count", "annotations"),
    [
        (Released(), 0, None),
        (Modified(delivery_failed=True), 1, None),
        (Modified(delivery_failed=True, message_annotations=NOTE), 1, {Symbol("x-opt-why"): "later"}),
    ],
    ids=["released", "modified", "annotated"],
)
@at_hand()
async def test_what_is_given_back_comes_again(
    at: Served, outcome: object, count: int, annotations: object
) -> None:
    """In its old place, with the count of tries and the annotations that the outcome says; it does not claim
    its first acquirer any more, and the bare message is as it was (3.2.1, 3.4.4, 3.4.5).
    """
    await at.post("q", b"0")
    receiver = await at.receiver("q", 1)
    receiver.settle(at.received, outcome)
    receiver.processed(1)
    await at.settle()
    assert at.bodies() == [b"0", b"0"]
    first, again = [Message(each.payload) for each in at.received]
    assert first.header.first_acquirer and again.bare == first.bare
    header = again.header
    assert (header.delivery_count or 0, bool(header.first_acquirer), header.durable) == (count, False, True)
    assert again.message_annotations == annotations


@at_hand()
async def test_undeliverable_here_goes_to_another_link(at: Served) -> None:
    """modified with undeliverable-here: not to this link again, whose drain does not wait for it, but to
    others (3.4.5).
    """
    await at.post("q", *[b"%d" % number for number in range(12)])
    first = await at.receiver("q", 12)
    first.settle(at.take(), Modified(undeliverable_here=True))
    first.flow(20, drain=True)
    await at.settle()
    assert not at.received and first.credit == 0
    await at.receiver("q", 12, "second")
    assert len(at.received) == 12


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("second", [Accepted(), Released()])
@at_hand()
async def test_an_outcome_holds_when_another_follows(at: Served, durable: bool, second: object) -> None:
    """A receiver that told accepted and then settles itself does not change the message's fate (2.6.12)."""
    queue = await at.post("q", b"1", b"2", durable=durable)
    receiver = await at.receiver("q", 5)
    first = at.take()[:1]
    receiver.dispose(first, Accepted(), False)
    receiver.dispose(first, second, True)
    await at.settle()
    assert not at.received and queue.message_count == 1


@at_hand()
async def test_a_disposition_without_state_that_settles_nothing_changes_nothing(at: Served) -> None:
    """Neither settled nor a state: the message stays with its receiver (2.7.6)."""
    queue = await at.post("q", b"1")
    receiver = await at.receiver("q", 5)
    (delivery,) = at.take()
    at.session.send_disposition(RECEIVER, delivery.delivery_id, delivery.delivery_id, False, b"")
    await at.settle()
    assert not at.received and queue.message_count == 1
    receiver.settle([delivery], Accepted())
    await at.settle()
    assert (queue.message_count, queue.byte_count) == (0, 0)


@at_hand()
async def test_an_outcome_counts_although_its_link_is_cut_behind_it(at: Served) -> None:
    """A settled accept in the last octets of a connection retires the message."""
    await at.post("q", b"1", b"2")
    other, receiver = at.another(), await at.receiver("q", 1)
    receiver.settle(at.received, Accepted())
    await at.breaks()
    assert await other.left("q") == [b"2"]


def test_byte_counts_hold_when_annotations_were_stored(tmp_path: Path) -> None:
    """A message whose annotations a consumer changed counts the same after a restart, and then 0."""
    before = []

    async def annotate(at: Served) -> None:
        queue = await at.post("q", b"1", b"2")
        receiver = await at.receiver("q")
        receiver.flow(1)
        await at.settle()
        receiver.settle(at.received, Modified(message_annotations={"x-opt-seen": "a" * 50}))
        await at.rest()
        before.append((queue.message_count, queue.byte_count))

    async def look(at: Served) -> None:
        queue, receiver = at.queue(), await at.receiver("q", 2)
        assert Message(at.received[0].payload).message_annotations == {Symbol("x-opt-seen"): "a" * 50}
        assert [(queue.message_count, queue.byte_count)] == before
        receiver.settle(at.received, Accepted())
        await at.settle()
        assert (queue.message_count, queue.byte_count) == (0, 0)

    by_hand(annotate, on_disk(tmp_path))
    by_hand(look, on_disk(tmp_path))


def test_accepted_messages_stay_gone_when_the_disk_is_full(tmp_path: Path) -> None:
    """A retirement that finds no room is tried again; nothing that was accepted is delivered once more."""
    faults = ScriptedFaults()

    async def accept(at: Served) -> None:
        queue = await at.post("q", b"1", b"2")
        receiver = await at.receiver("q", 5)
        faults.refuse_commit(1, count=3)
        first, second = at.take()
        receiver.dispose([first], Accepted(), True)
        receiver.dispose([second], Accepted(), False)
        await at.rest()
        assert at.context("down").link.unsettled_count == 0, "its outcome is confirmed"
        assert not at.received and (queue.message_count, queue.byte_count) == (0, 0)

    async def look(at: Served) -> None:
        assert await at.left("q") == []

    by_hand(accept, on_disk(tmp_path), faults)
    by_hand(look, on_disk(tmp_path))


def test_a_durable_message_is_accepted_and_seen_only_after_its_commit() -> None:
    """Law 4: while the commit is held there is no outcome, and no consumer sees the message, nor one behind
    it that needs no disk.
    """
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        sender = await at.sender("q")
        await at.receiver("q", 10)
        with commits_held(at, faults):
            sender.send([text(b"0"), text(b"1", durable=False), text(b"2")])
            await at.settle()
            assert not at.received and not at.outcomes
        await at.settle()
        assert at.conditions == ["accepted"] * 3 and at.bodies() == [b"0", b"1", b"2"]

    by_hand(main, faults=faults)


@pytest.mark.parametrize("settled", [True, False])
@at_hand()
async def test_an_outcome_that_is_not_offered_ends_the_link(at: Served, settled: bool) -> None:
    """3.5.3: the source said which it takes; what the link held comes back as the default outcome says."""
    queue = await filled(at, 2)
    receiver = await at.receiver(Source(address="q", outcomes=("amqp:accepted:list",)), 2)
    receiver.dispose(at.received[:1], Modified(delivery_failed=True), settled)
    await at.settle()
    assert at.condition() == "amqp:not-allowed"
    assert queue.backlog.available() == 2


@pytest.mark.parametrize("answered", [False, True])
@at_hand()
async def test_messages_come_after_a_drain_that_was_taken_back(at: Served, answered: bool) -> None:
    """The level of credit holds, whether the broker's answer to the drain is on its way already or not."""
    receiver = await at.receiver("q")
    receiver.flow(5, drain=True)
    if answered:  # what the client has not read yet when it says the other thing
        assert await at.hear_later()
    receiver.set_credit(5)
    await at.post("q", b"1", b"2", b"3")
    assert at.bodies() == [b"1", b"2", b"3"]


@at_hand()
async def test_what_a_link_holds_at_its_end_comes_back_in_place(at: Served) -> None:
    """The default outcome is applied to what nobody decided; the link's place in the queue is free."""
    queue = await filled(at, 3)
    receiver = await at.receiver("q", 2)
    receiver.detach()
    await at.settle()
    assert not queue.consumers
    assert [record.offset for record in queue.backlog.take(9)] == [0, 1, 2]


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

    def kept() -> int:
        """Of messages: not what the connection itself keeps."""
        return at.connection.account.used_bytes - at.task._kept_bytes

    before = kept()
    records = queue.backlog.peek(0, 5)
    octets = sum(len(record.body) + RECORD_OVERHEAD_BYTES for record in records)
    source.deliver(records)
    assert kept() - before == octets
    await at.settle()  # without credit they wait for nobody
    assert kept() == before and not at.received
    source.deliver(records)
    copied.processed(5)
    await at.settle()
    assert kept() == before
    source.deliver(records)
    copied.detach()
    await at.settle()
    assert kept() == before
