"""What a link held when it ended: only what the client has tried, or died of, counts as a failed try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Error,
    Message,
    Modified,
    Received,
    Released,
    Source,
    TransactionalState,
)
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import at_rest, attach_with, counts, receive, round_trip, send, session_to
from tests.support.controllers import Controller

JMS = Modified(delivery_failed=True)
"""The default outcome that Qpid JMS asks for."""
NO_STATE: Any = None


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """One in memory."""
    with running_broker(memory_config()) as running:
        yield running


def put(broker: RunningBroker, count: int) -> None:
    """So many messages in the queue q."""
    with session_to(broker, "producer") as session:
        send(session.attach_sender("s", "q"), *[b"%d" % number for number in range(count)], durable=True)


def reader(session: PeerSession, credit: int, default: Any = JMS) -> PeerReceiver:
    """A link that receives from q."""
    receiver = attach_with(session, "r", source=Source(address="q", default_outcome=default))
    assert isinstance(receiver, PeerReceiver)
    if credit:
        receiver.flow(credit)
    return receiver


def tries(broker: RunningBroker, count: int) -> list[int]:
    """The delivery-counts of what is in q, in its order."""
    at_rest(broker)
    with session_to(broker, "next") as session:
        receiver = session.attach_receiver("look", "q", credit=count)
        got = receive(receiver, count)
        receiver.settle(got, Released())
        round_trip(session)
    return [Message(each.payload).header.delivery_count or 0 for each in got]


def detached(receiver: PeerReceiver) -> None:
    """Closed by the client."""
    receiver.detach()


def suspended(receiver: PeerReceiver) -> None:
    """Detached, and not closed."""
    receiver.detach(closed=False)


def session_ended(receiver: PeerReceiver) -> None:
    """The session ends."""
    receiver.session.end()


def connection_closed(receiver: PeerReceiver) -> None:
    """A clean shutdown."""
    receiver.session.connection.close()


def closed_with_an_error(receiver: PeerReceiver) -> None:
    """The client says that it has a fault, so it is alive."""
    receiver.session.connection.close(Error(condition="amqp:internal-error", description="a fault"))


def stolen(receiver: PeerReceiver) -> None:
    """Another link takes the name (2.6.1)."""
    other = receiver.session.connection.begin()
    with pytest.raises(PeerError, match="stolen"):
        attach_with(other, "r", source=Source(address="other"))


CLEAN: list[Callable[[PeerReceiver], None]] = [
    detached, suspended, session_ended, connection_closed, closed_with_an_error, stolen,
]  # fmt: skip


@pytest.mark.parametrize("end", CLEAN)
@pytest.mark.parametrize("default", [None, Released(), JMS])
def test_what_was_prefetched_is_no_try(
    broker: RunningBroker, end: Callable[[PeerReceiver], None], default: Any
) -> None:
    """However the link ends: of what it held and nobody said anything of, nothing was tried."""
    put(broker, 4)
    with session_to(broker) as session:
        receiver = reader(session, 4, default)
        receive(receiver, 4)
        end(receiver)
        assert tries(broker, 4) == [0, 0, 0, 0]


def test_clean_shutdowns_lose_nothing(broker: RunningBroker) -> None:
    """Qpid JMS with maxRedeliveries=2 drops what comes with a higher count: five shutdowns, no count."""
    put(broker, 20)
    for number in range(5):
        with session_to(broker, f"client-{number}") as session:
            receiver = reader(session, 100)
            receive(receiver, 20)
            receiver.session.connection.close()
        assert tries(broker, 20) == [0] * 20


@pytest.mark.parametrize("default", [None, JMS])
def test_of_a_link_that_broke_the_oldest_counts(broker: RunningBroker, default: Any) -> None:
    """It may be what the client died of, and has to come to an end; those behind it were not begun."""
    put(broker, 4)
    for expected in ([1, 0, 0, 0], [2, 0, 0, 0]):
        with session_to(broker) as session:
            receive(reader(session, 4, default), 4)
            session.connection.abort()
        assert tries(broker, 4) == expected


def test_the_oldest_is_the_first_without_an_outcome(broker: RunningBroker) -> None:
    """What has its outcome was survived; `received` is none (3.4.1)."""
    put(broker, 4)
    with session_to(broker) as session:
        receiver = reader(session, 4)
        got = receive(receiver, 4)
        receiver.settle(got[:1], Accepted(), settled=False)
        receiver.settle(got[1:2], Received(section_number=0, section_offset=0), settled=False)
        round_trip(session)
        session.connection.abort()
    assert tries(broker, 3) == [1, 0, 0]


def test_settled_without_an_outcome_is_the_default_outcome(broker: RunningBroker) -> None:
    """3.5.3: the client has had it, and the attach said what this means."""
    put(broker, 2)
    with session_to(broker) as session:
        receiver = reader(session, 2)
        receiver.settle(receive(receiver, 2)[:1], NO_STATE)
        round_trip(session)
        receiver.session.connection.close()
    assert tries(broker, 2) == [1, 0]


@pytest.mark.parametrize("broke", [False, True])
def test_a_default_outcome_that_removes_is_kept_at_the_end(broker: RunningBroker, broke: bool) -> None:
    """Who asks for accepted wants each message at most once (3.3.1), and is answered so."""
    put(broker, 2)
    with session_to(broker) as session:
        receive(reader(session, 2, Accepted()), 2)
        if broke:
            session.connection.abort()
        else:
            session.connection.close()
    at_rest(broker)
    assert counts(broker, "q") == (0, 0)


def test_the_answer_tells_the_default_outcome_that_is_used(broker: RunningBroker) -> None:
    """Without what a default outcome never does here: it adds no annotations to messages."""
    asked = Modified(delivery_failed=True, message_annotations={"x-opt-a": "b" * 100})
    with session_to(broker) as session:
        receiver = reader(session, 0, asked)
        assert receiver.remote_attach is not None
        source = receiver.remote_attach.source
        assert isinstance(source, Source) and source.default_outcome == JMS


# In transactions


def retired(
    session: PeerSession, count: int, outcome: Any, *, settled: bool
) -> tuple[Controller, bytes, PeerReceiver]:
    """A link that holds so many, of which the first two have an outcome in a transaction."""
    control = Controller(session)
    txn_id = control.declare()
    receiver = reader(session, count)
    got = receive(receiver, count)
    receiver.settle(got[:2], TransactionalState(txn_id=txn_id, outcome=outcome), settled=settled)
    round_trip(session)
    return control, txn_id, receiver


@pytest.mark.parametrize(("settled", "expected"), [(False, [0, 0, 0]), (True, [1, 1, 0])])
def test_an_outcome_that_was_rolled_back(broker: RunningBroker, settled: bool, expected: list[int]) -> None:
    """4.4.2: unsettled, the state is what it was before, and then the link went without a word; settled, "the
    resource MUST apply the default outcome"; the redeliveries of Qpid JMS hang on it.
    """
    put(broker, 3)
    with session_to(broker) as session:
        control, txn_id, receiver = retired(session, 3, Accepted(), settled=settled)
        receiver.detach()
        control.roll_back(txn_id)
        session.connection.close()
    assert tries(broker, 3) == expected


def test_outcomes_of_a_transaction_that_broke_with_its_link(broker: RunningBroker) -> None:
    """The oldest without an outcome counts; those that had one in the transaction were survived."""
    put(broker, 4)
    with session_to(broker) as session:
        retired(session, 4, Accepted(), settled=False)
        session.connection.abort()
    assert tries(broker, 4) == [0, 0, 1, 0]


@pytest.mark.parametrize("how", ["closed", "broke", "committed without its link"])
def test_what_was_acquired_in_a_transaction(broker: RunningBroker, how: str) -> None:
    """Nobody said anything of it either: no count, but for the oldest of a link that broke."""
    put(broker, 3)
    with session_to(broker) as session:
        control = Controller(session)
        txn_id = control.declare()
        receiver = reader(session, 0)
        receiver.flow(3, txn_id=txn_id)
        receive(receiver, 3)
        if how == "committed without its link":
            receiver.detach()
            control.commit(txn_id)
        if how == "broke":
            session.connection.abort()
        else:
            session.connection.close()
    assert tries(broker, 3) == [how == "broke", 0, 0]


def test_a_broker_that_stops_broke_no_link() -> None:
    """Its own close is no death of a client: what comes back after the stop was not tried."""
    with running_broker(memory_config()) as broker:
        put(broker, 2)
        with session_to(broker) as session:
            receive(reader(session, 2), 2)
            queue = broker.call(lambda running: running.nodes.queues.queues()[0])
            broker.call(lambda running: running.stop(0))
            with pytest.raises((ConnectionLost, PeerError)):
                session.connection.pump_until(lambda: False)
    assert [record.delivery_count for record in queue.backlog.take(9)] == [0, 0]
