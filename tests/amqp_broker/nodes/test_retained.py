"""Links that read by offset, and the node $retained, without a socket."""

from __future__ import annotations

from typing import Any

from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import Accepted, AmqpValue, Properties, Source, encode_message
from amqp_broker.retained.node import RetainedRequests
from amqp_broker.retained.source import RetainedSource
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, by_hand, text
from tests.support.retained import filters

KEPT = memory_config(queue_policies=(QueuePolicy(pattern="kept", retention_ms=3_600_000),))


def reading(start: object, **more: Any) -> Source:
    """The source of a link that reads the queue `kept` by offset."""
    return Source(address="kept", filter=filters(start, **more))


async def filled(at: Served, count: int) -> None:
    """The queue with so many messages."""
    sender = at.attach_sender("kept")
    await at.settle()
    sender.send([text(b"%d" % number) for number in range(count)])
    await at.settle()


def test_a_link_reads_by_credit_and_takes_nothing() -> None:
    """From the offset that it named; the queue knows nothing of it."""

    async def main(at: Served) -> None:
        await filled(at, 5)
        receiver = at.attach_receiver(reading(2), 2)
        await at.settle()
        source = at.context("down")
        assert isinstance(source, RetainedSource) and at.bodies() == [b"2", b"3"]
        receiver.settle(at.received, Accepted())
        receiver.processed(2)
        await at.settle()
        assert at.bodies() == [b"2", b"3", b"4"]
        queue = at.context("up").queue
        assert queue.message_count == 5 and not queue.consumers

    by_hand(main, KEPT)


def test_accepted_moves_the_cursor_of_a_link_and_frees_it_at_its_end() -> None:
    """The next link of the cursor begins behind what was accepted."""

    async def main(at: Served) -> None:
        await filled(at, 4)
        receiver = at.attach_receiver(reading("first", cursor="c"), 2)
        await at.settle()
        receiver.settle(at.received, Accepted())
        receiver.detach()
        await at.settle()
        at.received.clear()
        at.attach_receiver(reading("first", cursor="c"), 9, "again")
        await at.settle()
        assert at.bodies() == [b"2", b"3"]

    by_hand(main, KEPT)


def test_a_filter_on_a_queue_that_keeps_nothing_is_refused() -> None:
    """The node is asked before anything is opened."""

    async def main(at: Served) -> None:
        at.attach_receiver(Source(address="q", filter=filters("first")), 1)
        await at.settle()
        (gone,) = at.detached
        assert gone.error is not None and gone.error.condition == "amqp:not-allowed"
        assert "retention_ms" in (gone.error.description or "")
        assert at.broker.features.retained._readers == 0

    by_hand(main, KEPT)


def test_a_request_is_answered_once_and_a_transaction_has_no_part_in_it() -> None:
    """What the node of requests does not say is said for it."""

    async def main(at: Served) -> None:
        await at.broker.nodes.queues.create("replies")
        sender = at.attach_sender("$retained")
        await at.settle()
        assert isinstance(at.context("up"), RetainedRequests)
        properties = Properties(subject="describe", reply_to="replies", correlation_id="1")
        sender.send([Message(encode_message(properties=properties, body=AmqpValue({})))])
        await at.settle()
        assert at.outcomes == [Accepted()]
        assert at.broker.nodes.queues.queues()[0].message_count == 1

    by_hand(main, KEPT)
