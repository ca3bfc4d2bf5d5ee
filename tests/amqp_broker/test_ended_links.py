"""What a link held when it ended: only what the client has tried, or died of, counts as a failed try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amqp_broker.embedding import running_broker
from amqp_broker.frames import Accepted, Error, Message, Modified, Received, Released, Source
from amqp_broker.links import ReceiverLink
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import receive, send, session_to
from tests.support.by_hand import Control, Served, at_hand, within

JMS = Modified(delivery_failed=True)
"""The default outcome that Qpid JMS asks for."""


async def reader(at: Served, credit: int, default: Any = JMS) -> ReceiverLink:
    """A link that receives from q."""
    return await at.receiver(Source(address="q", default_outcome=default), credit)


async def tries(other: Served, count: int) -> list[int]:
    """The delivery-counts of what is in q, whose bodies say in which order it has to be."""
    looks = await other.receiver("q", count, "looks")
    bodies, came = other.bodies(), other.take()
    assert bodies == sorted(bodies, key=int) and len(came) == count
    looks.settle(came, Released())
    looks.detach()
    await other.settle()
    other.detached.clear()
    return [Message(each.payload).header.delivery_count or 0 for each in came]


async def put(at: Served, count: int) -> Served:
    """So many messages in the queue q; another connection."""
    await at.post("q", *[b"%d" % number for number in range(count)])
    return at.another()


CLEAN: dict[str, Callable[[Served, ReceiverLink], object]] = {
    "detached": lambda at, link: link.detach(),
    "suspended": lambda at, link: link.detach(closed=False),
    "session ended": lambda at, link: at.session.end(),
    "connection closed": lambda at, link: at.client.close(),
    "closed with an error": lambda at, link: at.client.close(Error(condition="amqp:internal-error")),
    "stolen": lambda at, link: at.another("client").attach_receiver("other", 0),
}


@pytest.mark.parametrize("end", CLEAN)
@pytest.mark.parametrize("default", [None, Released(), JMS])
@at_hand()
async def test_what_was_prefetched_is_no_try(at: Served, end: str, default: Any) -> None:
    """However the link ends: of what it held and nobody said anything of, nothing was tried; it is there
    again in its place.
    """
    other = await put(at, 4)
    receiver = await reader(at, 4, default)
    assert len(at.received) == 4
    CLEAN[end](at, receiver)
    await at.settle()
    assert not at.connection.links
    assert await tries(other, 4) == [0, 0, 0, 0]


@at_hand()
async def test_clean_shutdowns_lose_nothing(at: Served) -> None:
    """Qpid JMS with maxRedeliveries=2 drops what comes with a higher count: five shutdowns, no count."""
    other = await put(at, 20)
    for number in range(5):
        one = other.another(f"client-{number}")
        await reader(one, 100)
        assert len(one.received) == 20
        await one.close()
        assert await tries(other, 20) == [0] * 20


@pytest.mark.parametrize("default", [None, JMS])
@at_hand()
async def test_of_a_link_that_broke_the_oldest_counts(at: Served, default: Any) -> None:
    """It may be what the client died of, and has to come to an end; those behind it were not begun."""
    await put(at, 4)
    for expected in ([1, 0, 0, 0], [2, 0, 0, 0]):
        one = at.another("one")
        await reader(one, 4, default)
        await one.breaks()
        assert await tries(at, 4) == expected


@at_hand()
async def test_the_oldest_is_the_first_without_an_outcome(at: Served) -> None:
    """What has its outcome was survived; `received` is none (3.4.1)."""
    other = await put(at, 4)
    receiver = await reader(at, 4)
    receiver.dispose(at.received[:1], Accepted(), False)
    receiver.dispose(at.received[1:2], Received(section_number=0, section_offset=0), False)
    await at.breaks()
    assert await tries(other, 3) == [1, 0, 0]


@at_hand()
async def test_settled_without_an_outcome_is_the_default_outcome(at: Served) -> None:
    """3.5.3: the client has had it, and the attach said what this means."""
    other = await put(at, 2)
    receiver = await reader(at, 2)
    receiver.dispose(at.received[:1], None, True)
    await at.close()
    assert await tries(other, 2) == [1, 0]


@pytest.mark.parametrize("broke", [False, True])
@at_hand()
async def test_a_default_outcome_that_removes_is_kept_at_the_end(at: Served, broke: bool) -> None:
    """Who asks for accepted wants each message at most once (3.3.1), and is answered so."""
    other = await put(at, 2)
    await reader(at, 2, Accepted())
    await (at.breaks() if broke else at.close())
    queue = other.queue()
    assert (queue.message_count, queue.byte_count) == (0, 0)


@at_hand()
async def test_the_answer_tells_the_default_outcome_that_is_used(at: Served) -> None:
    """Without what a default outcome never does here: it adds no annotations to messages."""
    asked = Modified(delivery_failed=True, message_annotations={"x-opt-a": "b" * 100})
    receiver = await reader(at, 0, asked)
    assert receiver.source.default_outcome == JMS


# In transactions


async def retired(at: Served, count: int, *, settled: bool) -> tuple[Control, bytes, ReceiverLink]:
    """A link that holds so many, of which the first two are accepted in a transaction."""
    control, receiver = Control(at), await reader(at, count)
    txn_id = await control.declare()
    receiver.dispose(at.received[:2], within(txn_id, Accepted()), settled)
    await at.settle()
    return control, txn_id, receiver


@pytest.mark.parametrize(("settled", "expected"), [(False, [0, 0, 0]), (True, [1, 1, 0])])
@at_hand()
async def test_an_outcome_that_was_rolled_back(at: Served, settled: bool, expected: list[int]) -> None:
    """4.4.2: unsettled, the state is what it was before, and then the link went without a word; settled, "the
    resource MUST apply the default outcome"; the redeliveries of Qpid JMS hang on it.
    """
    other = await put(at, 3)
    control, txn_id, receiver = await retired(at, 3, settled=settled)
    receiver.detach()
    await control.roll_back(txn_id)
    await at.close()
    assert await tries(other, 3) == expected


@at_hand()
async def test_outcomes_of_a_transaction_that_broke_with_its_link(at: Served) -> None:
    """The oldest without an outcome counts; those that had one in the transaction were survived."""
    other = await put(at, 4)
    await retired(at, 4, settled=False)
    await at.breaks()
    assert await tries(other, 4) == [0, 0, 1, 0]


@pytest.mark.parametrize("how", ["closed", "broke", "committed without its link"])
@at_hand()
async def test_what_was_acquired_in_a_transaction(at: Served, how: str) -> None:
    """Nobody said anything of it either: no count, but for the oldest of a link that broke."""
    other = await put(at, 3)
    control, receiver = Control(at), await reader(at, 0)
    txn_id = await control.declare()
    receiver.flow(3, properties={"txn-id": txn_id})
    await at.settle()
    if how == "committed without its link":
        receiver.detach()
        await control.commit(txn_id)
    await (at.breaks() if how == "broke" else at.close())
    assert await tries(other, 3) == [how == "broke", 0, 0]


def test_a_broker_that_stops_broke_no_link() -> None:
    """Its own close is no death of a client: what comes back after the stop was not tried."""
    with running_broker() as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"0", b"1", durable=True)
        receive(session.attach_receiver("r", "q", credit=2), 2)
        queue = broker.call(lambda running: running.nodes.queues.queues()[0])
        broker.call(lambda running: running.stop(0))
        with pytest.raises((ConnectionLost, PeerError), match="amqp:connection:forced"):
            session.connection.pump_until(lambda: False)
    assert [record.delivery_count for record in queue.backlog.take(9)] == [0, 0]
