"""Events of transactions, half messages, expiry and damage: in the commit that makes it so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Header, Modified, Rejected, TransactionalState, encode_message
from amqp_broker.persistence import EventRange
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSession
from tests.support.broker_clients import (
    at_rest,
    attach_with,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.event_replay import replay
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.jumping_broker import InEachStore, JumpingBroker, stopping
from tests.support.message_events import EVENTS, config_with_events, kinds, log_of, named, queue_offsets, told
from tests.support.sequenced import annotated, left_at, outcomes


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Queues that have events, e.**, and others."""
    return in_each_store(config_with_events())


@contextmanager
def jumping() -> Iterator[JumpingBroker]:
    """One whose clocks are set by the test."""
    running = JumpingBroker(config_with_events(limits=BrokerLimits(idle_time_out_ms=2**32 - 1)))
    try:
        yield running
    finally:
        running.stop()


def in_transaction(txn_id: bytes, outcome: Any) -> TransactionalState:
    """An outcome as part of a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def held(session: PeerSession, address: str, count: int) -> tuple[PeerReceiver, list[Delivery]]:
    """Deliveries that wait for their outcomes."""
    receiver = session.attach_receiver(f"held-{len(session.links)}", address, credit=count)
    return receiver, receive(receiver, count)


def test_commit_tells_what_was_posted_and_retired(broker: RunningBroker) -> None:
    """Nothing before the discharge; then all of it, with the txn-id."""
    with session_to(broker, "c") as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", b"2", b"3", durable=True)
        receiver, deliveries = held(session, "e.q", 3)
        controller = Controller(session)
        txn_id = controller.declare()
        outcomes(sender, [named("a"), named("b")], txn_id=txn_id)
        receiver.settle(deliveries[:1], in_transaction(txn_id, Accepted()))
        receiver.settle(deliveries[1:2], in_transaction(txn_id, Rejected()))
        receiver.settle(deliveries[2:], in_transaction(txn_id, Modified(delivery_failed=True)))
        settle_down(broker, session)
        before = log_of(broker)
        assert kinds(before) == ["put", "deliver"]
        controller.commit(txn_id)
        settle_down(broker, session)
        events = log_of(broker)
    assert told(events[len(before) :], "put", "offset", "message_id", "producer", "txn_id") == [
        (3, "a", "c", txn_id.hex()), (4, "b", "c", txn_id.hex()),
    ]  # fmt: skip
    assert told(events, "settle", "offset", "outcome", "container", "txn_id") == [
        (0, "accepted", "c", txn_id.hex()), (1, "rejected", "c", txn_id.hex()),
        (2, "modified", "c", txn_id.hex()),
    ]  # fmt: skip
    assert told(events, "dead", "offset", "reason") == [(1, "rejected")]
    replayed = replay(events)
    assert (replayed.problems, replayed.offsets("e.q")) == ([], queue_offsets(broker, "e.q"))


def test_rollback_tells_nothing(broker: RunningBroker) -> None:
    """What was posted never was, what was retired is still held."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", durable=True)
        receiver, deliveries = held(session, "e.q", 1)
        controller = Controller(session)
        txn_id = controller.declare()
        outcomes(sender, [named("a")], txn_id=txn_id)
        receiver.settle(deliveries, in_transaction(txn_id, Accepted()), settled=False)
        controller.roll_back(txn_id)
        settle_down(broker, session)
        events = log_of(broker)
        assert [(event.kind, event.fields["offset"]) for event in events] == [("put", 0), ("deliver", 0)]
        receiver.settle(deliveries, Accepted())
        settle_down(broker, session)
    assert replay(log_of(broker)).live == {}


def test_acquisition_that_is_rolled_back_is_a_release(broker: RunningBroker) -> None:
    """Delivered in the transaction, it goes back to its place with its end, and the next one gets it."""
    with session_to(broker, "c") as session:
        send(session.attach_sender("s", "e.q"), b"1", b"2", durable=True)
        controller = Controller(session)
        txn_id = controller.declare()
        receiver = session.attach_receiver("r", "e.q")
        receiver.flow(2, txn_id=txn_id)
        receive(receiver, 2)
        controller.roll_back(txn_id)
        left_at(session, "e.q", 2, take=True)
        settle_down(broker, session)
    events = log_of(broker)
    assert told(events, "settle", "offset", "outcome", "reason")[:2] == [
        (0, "released", "rolled back"), (1, "released", "rolled back"),
    ]  # fmt: skip
    assert len(told(events, "deliver")) == 4
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_sequenced_posts_in_a_transaction(broker: RunningBroker) -> None:
    """Puts with their places and rejects, both at the discharge; nothing of one that is rolled back."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        controller = Controller(session)
        payloads = [annotated((1, 1, 0)), annotated((1, 5, 4)), annotated((1, 2, 1))]
        for commits in (False, True):
            txn_id = controller.declare()
            outcomes(sender, payloads, txn_id=txn_id)
            assert log_of(broker) == []
            if commits:
                controller.commit(txn_id)
            else:
                controller.roll_back(txn_id)
    events = log_of(broker)
    assert told(events, "put", "offset", "seq_no", "txn_id") == [(0, 1, txn_id.hex()), (1, 2, txn_id.hex())]
    assert told(events, "reject", "seq_stream", "seq_id", "seq_no", "txn_id") == [("s", 1, 5, txn_id.hex())]


def test_discharge_that_the_store_refuses_tells_nothing() -> None:
    """Nothing of the transaction happened, so nothing of it is told."""
    config = config_with_events(limits=BrokerLimits())
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", durable=True)
        receiver, deliveries = held(session, "e.q", 1)
        controller = Controller(session)
        txn_id = controller.declare()
        outcomes(sender, [named("a")], txn_id=txn_id)
        receiver.settle(deliveries, in_transaction(txn_id, Accepted()), settled=False)
        settle_down(broker, session)
        broker.faults.refuse_commit(1, 2)
        assert isinstance(controller.discharge(txn_id), Rejected)
        settle_down(broker, session)
        events = log_of(broker)
    assert [(event.kind, event.fields["offset"]) for event in events][:2] == [("put", 0), ("deliver", 0)]
    assert told(events, "settle", "outcome") in ([], [("released",)])  # its link went with the session
    assert replay(events).offsets("e.q") == [0]


def test_committed_half_messages_are_published(broker: RunningBroker) -> None:
    """By a commit of their own and in a transaction; one that is rolled back never comes."""
    with session_to(broker, "shop") as one, session_to(broker, "back-office") as two:
        put, decide = putter(one, "g", "e.q"), resolver(two, "g")
        for half_id in ("h1", "h2", "h3"):
            assert isinstance(tell(put, half(half_id, b"12345")), Accepted)
        assert isinstance(tell(decide, resolution("h1", "commit")), Accepted)
        assert isinstance(tell(decide, resolution("h2", "rollback")), Accepted)
        controller = Controller(two)
        txn_id = controller.declare()
        tell(decide, resolution("h3", "commit"), txn_id)
        controller.commit(txn_id)
        left_at(two, "e.q", 2, take=True)
        round_trip(two)
    events = log_of(broker)
    fields = ("offset", "half_id", "group", "message_id", "producer", "txn_id")
    assert told(events, "publish", *fields) == [
        (0, "string:h1", "g", "h1", "shop", None), (1, "string:h3", "g", "h3", "shop", txn_id.hex()),
    ]  # fmt: skip
    committed = [event for event in events if event.kind == "half.committed"]
    puts = [event for event in events if event.kind == "publish"]
    assert [event.fields["offset"] for event in committed] == [0, 1]
    assert [event.seq + 1 for event in puts] == [event.seq for event in committed], "one commit"
    assert told(events, "put") == []
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_half_message_without_a_queue_is_dead(tmp_path: Path) -> None:
    """Its destination went: it is published in the dead letters, and told to be dead where it should go."""
    policies = (EVENTS, QueuePolicy(pattern="dead-letters", events=True))
    config = attrs.evolve(config_with_events(), queue_policies=policies)
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        dynamic = attach_dynamic(session)
        put, decide = putter(session, "g", dynamic[1]), resolver(session, "g")
        assert isinstance(tell(put, half("h1")), Accepted)
        dynamic[0].detach()
        settle_down(broker, session)
        assert isinstance(tell(decide, resolution("h1", "commit")), Accepted)
        events = log_of(broker)
    assert told(events, "publish", "address", "offset", "half_id") == [("dead-letters", 0, "string:h1")]
    assert told(events, "dead", "address", "half_id") == [(dynamic[1], "string:h1")]
    assert replay(events).offsets("dead-letters") == [0]


def attach_dynamic(session: PeerSession) -> tuple[PeerReceiver, str]:
    """A receiver with a queue of its own, which goes with it."""
    from amqp_broker.frames import Source
    from tests.support.broker_clients import address_of

    link = attach_with(session, "dynamic", source=Source(dynamic=True))
    assert isinstance(link, PeerReceiver)
    return link, address_of(link)


def test_expiry() -> None:
    """The time of messages ran out, of stored ones and others: each is told once, when that is noticed."""
    with jumping() as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", b"2", durable=True, ttl=1000)
        send(sender, b"3", ttl=1000)
        send(sender, b"4", durable=True)
        broker.jump(2)
        left_at(session, "e.q", 1, take=True)
        settle_down(broker, session)
        events = log_of(broker)
    assert told(events, "expire", "address", "offset") == [("e.q", 0), ("e.q", 1), ("e.q", 2)]
    assert told(events, "settle", "offset", "outcome") == [(3, "accepted")]
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_expiry_before_the_discharge_is_no_put() -> None:
    """What outlived its time inside a transaction never came into the queue."""
    with jumping() as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        controller = Controller(session)
        txn_id = controller.declare()
        short = encode_message(header=Header(durable=True, ttl=1000), body=b"short")
        outcomes(sender, [short, named("long")], txn_id=txn_id)
        broker.jump(2)
        controller.commit(txn_id)
        events = log_of(broker)
    assert told(events, "put", "offset", "message_id") == [(0, "long")]


def test_damaged_messages_are_dead(tmp_path: Path) -> None:
    """What the store finds damaged leaves its queue, and the log says so."""
    from tests.persistence.stores import edit

    config = attrs.evolve(config_with_events(), memory=False, data_dir=str(tmp_path))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "e.q"), b"x" * 200, b"y" * 200, b"z" * 200, durable=True)
        at_rest(broker)
    edit(tmp_path, "UPDATE segment SET bodies=CAST(replace(CAST(bodies AS TEXT), 'yyyy', 'YYYY') AS BLOB)")
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        left_at(session, "e.q", 2, take=True)
        settle_down(broker, session)
        events = log_of(broker)
    ((offset, reason),) = told(events, "dead", "offset", "reason")
    assert offset == 1 and str(reason).startswith("damaged: ")
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_log_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Offsets and numbers go on, and what was there before is delivered and settled in the same log."""
    config = attrs.evolve(config_with_events(), memory=False, data_dir=str(tmp_path))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        outcomes(session.attach_sender("s", "e.q"), [named(f"id-{number}") for number in range(5)])
        left_at(session, "e.q", 5)
        at_rest(broker)
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        outcomes(session.attach_sender("s", "e.q"), [named("new")])
        assert replay(log_of(broker)).offsets("e.q") == queue_offsets(broker, "e.q") == [*range(6)]
        left_at(session, "e.q", 6, take=True)
        settle_down(broker, session)
        events = log_of(broker)
        broker.call(_check_range)
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


async def _check_range(running: Broker) -> None:
    ranges: list[tuple[int, int]] = []
    running.writer.read(lambda store: ranges.append(store.ask(EventRange())))
    await running.nodes.store_step([])
    (first, after) = ranges[0]
    assert first == 1 and after > 10
