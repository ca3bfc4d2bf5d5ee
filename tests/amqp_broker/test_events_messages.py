"""The journal tells what becomes of each message of a queue with events: once, in its commit."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Error,
    Message,
    Modified,
    Rejected,
    Released,
    Target,
    Ulong,
    encode_message,
)
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.support.broker_clients import (
    attach_with,
    browse,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)
from tests.support.event_replay import replay
from tests.support.jumping_broker import InEachStore, JumpingBroker, stopping
from tests.support.message_events import config_with_events, kinds, log_of, named, queue_offsets, told
from tests.support.sequenced import annotated, chain, left_at, outcomes, stated

HOUSE = QueuePolicy(pattern="e.off", events=True, sequence="off")


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Queues that have events, e.**, and others."""
    return in_each_store(config_with_events(queue_policies=(HOUSE,)))


def size_of(payload: bytes) -> int:
    """What is stored of a message: everything behind its header."""
    return len(payload) - Message(payload).after_header_offset


def sent(session: PeerSession, address: str, *payloads: bytes) -> PeerSender:
    """A sender that had all of these accepted, sent in one write."""
    sender = session.attach_sender(f"s-{address}-{len(session.links)}", address)
    states = outcomes(sender, payloads)
    assert all(isinstance(state, Accepted) for state in states), states
    return sender


def test_puts_tell_who_sent_what(broker: RunningBroker) -> None:
    """Each message once, in order: offset, id as a string whatever its type, size, producer, group."""
    key = uuid.UUID(int=7)
    payloads = [
        named("a"), named(Ulong(5)), named(Ulong(2**63)), named(key), named(b"\x01\xff"), named(None),
        named("g", group_id="grp", group_sequence=9), encode_message(body=b"bare"),
        named("é" * 5000, subject="s"),
    ]  # fmt: skip
    with session_to(broker, "shop-1") as session:
        sent(session, "e.orders", *payloads)
    events = log_of(broker)
    assert kinds(events) == ["put"]
    assert [event.seq for event in events] == [*range(1, len(payloads) + 1)]
    assert told(events, "put", "offset", "message_id", "bytes") == [
        (0, "a", size_of(payloads[0])), (1, "5", size_of(payloads[1])), (2, str(2**63), size_of(payloads[2])),
        (3, str(key), size_of(payloads[3])), (4, "01ff", size_of(payloads[4])),
        (5, None, size_of(payloads[5])), (6, "g", size_of(payloads[6])), (7, None, size_of(payloads[7])),
        (8, "é" * 1024, size_of(payloads[8])),
    ]  # fmt: skip
    assert set(told(events, "put", "address", "producer", "container", "txn_id")) == {
        ("e.orders", "shop-1", "shop-1", None)
    }
    assert told(events, "put", "seq_stream", "seq_id", "seq_no")[5:8] == [
        (None, None, None), ("grp", None, 9), (None, None, None),
    ]  # fmt: skip


def event_rows(store: Any) -> list[tuple[str, int]]:
    """What kind of event each row of the log is, and how many messages it is about."""
    rows: list[tuple[str, int]] = store._store._connection.execute("SELECT kind, count FROM event").fetchall()
    return rows


def test_one_row_for_a_run(tmp_path: Path) -> None:
    """Hundreds of messages in one write are a few rows of the store, and as many entries as messages."""
    config = attrs.evolve(config_with_events(), memory=False, data_dir=str(tmp_path / "data"))
    with stopping(JumpingBroker(config)) as broker:
        with session_to(broker) as session:
            sent(session, "e.q", *[named(f"id-{number}") for number in range(500)])
            left_at(session, "e.q", 500, take=True)
            round_trip(session)
        events = log_of(broker)
        rows = broker.call(lambda running: running.writer.ask(event_rows))
    assert len(events) == 1500
    assert len(rows) < 60, rows
    assert sum(count for _, count in rows) == 1500
    assert replay(events).problems == []


def test_deliveries_and_outcomes(broker: RunningBroker) -> None:
    """Attempts count what failed before; each outcome has its event; a rejected message is dead."""
    with session_to(broker, "producer") as one, session_to(broker, "consumer") as two:
        sent(one, "e.q", *[named(f"id-{number}") for number in range(5)])
        receiver = two.attach_receiver("r", "e.q", credit=5)
        first = receive(receiver, 5)
        receiver.settle(first[:1], Accepted())
        receiver.settle(
            first[1:2], Rejected(error=Error(condition="amqp:decode-error", description="no sum"))
        )
        receiver.settle(first[2:3], Released())
        receiver.settle(first[3:4], Modified(delivery_failed=True))
        receiver.settle(first[4:5], Modified(delivery_failed=True, undeliverable_here=True))
        settle_down(broker, one, two)
        receiver.flow(2)
        again = receive(receiver, 2)
        receiver.settle(again, Accepted())
        round_trip(two)
    events = log_of(broker)
    assert told(events, "deliver", "offset", "attempt", "container") == [
        *[(offset, 1, "consumer") for offset in range(5)], (2, 1, "consumer"), (3, 2, "consumer"),
    ]  # fmt: skip
    assert told(events, "settle", "offset", "outcome", "reason", "container") == [
        (0, "accepted", None, "consumer"),
        (1, "rejected", "amqp:decode-error: no sum", "consumer"),
        (2, "released", None, "consumer"),
        (3, "modified", "delivery-failed", "consumer"),
        (4, "modified", "delivery-failed, undeliverable-here", "consumer"),
        (2, "accepted", None, "consumer"),
        (3, "accepted", None, "consumer"),
    ]
    assert told(events, "dead", "address", "offset", "reason") == [("e.q", 1, "amqp:decode-error: no sum")]
    assert replay(events).offsets("e.q") == queue_offsets(broker, "e.q") == [4]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("presettled", [True, False])
def test_settled_ones_and_those_that_are_not_durable_are_told_too(
    durable: bool, presettled: bool, broker: RunningBroker
) -> None:
    """Sent settled, delivered settled, not durable: each message has its events all the same."""
    with session_to(broker, "c") as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", b"2", b"3", durable=durable, settled=presettled)
        if presettled:
            receiver = attach_settled(session, "e.q")
            receive(receiver, 3)
        else:
            receiver = session.attach_receiver("r", "e.q", credit=9)
            receiver.settle(receive(receiver, 3), Accepted())
        settle_down(broker, session)
    events = log_of(broker)
    assert [(kind, len(told(events, kind))) for kind in ("put", "deliver", "settle")] == [
        ("put", 3), ("deliver", 3), ("settle", 3),
    ]  # fmt: skip
    assert set(told(events, "settle", "outcome")) == {("accepted",)}
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def attach_settled(session: PeerSession, address: str) -> Any:
    """A receiver to which everything is sent settled."""
    return session.attach_receiver("settled", address, credit=100, snd_settle_mode=1)


def test_a_link_that_goes_gives_its_default_outcome(broker: RunningBroker) -> None:
    """What it held is released, and the next one gets it."""
    with session_to(broker) as session:
        sent(session, "e.q", named("a"), named("b"))
        receiver = session.attach_receiver("r", "e.q", credit=5)
        receive(receiver, 2)
        receiver.detach()
        left_at(session, "e.q", 2, take=True)
        round_trip(session)
    events = log_of(broker)
    assert told(events, "settle", "offset", "outcome")[:2] == [(0, "released"), (1, "released")]
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_browsers_and_other_queues_are_not_told(broker: RunningBroker) -> None:
    """Looking is no delivery, and a queue without events has none."""
    with session_to(broker) as session:
        sent(session, "plain", named("a"))
        left_at(session, "plain", 1, take=True)
        sent(session, "e.q", named("b"))
        receive(browse(session, "b", "e.q", credit=5), 1)
        settle_down(broker, session)
    assert kinds(log_of(broker)) == ["put"]


def test_the_anonymous_terminus(broker: RunningBroker) -> None:
    """Each message is told at the queue that it names."""
    with session_to(broker) as session:
        sent(session, "e.one", named("first"))
        sent(session, "e.two", named("second"))
        relay = attach_with(session, "relay", target=Target(address=None))
        assert isinstance(relay, PeerSender)
        outcomes(relay, [named("a", to="e.two"), named("b", to="e.one"), named("c", to="nowhere")])
    events = log_of(broker)
    assert told(events, "put", "address", "offset", "message_id")[2:] == [
        ("e.two", 1, "a"),
        ("e.one", 1, "b"),
    ]


def test_sequences(broker: RunningBroker) -> None:
    """Taken ones are put with their places, refused ones are rejects, a repetition is nothing."""
    with session_to(broker, "p") as session:
        sender = session.attach_sender("s", "e.q")
        places = chain(1, 3)
        payloads = [annotated(places[0]), stated(places[1]), annotated(places[1]), annotated((1, 5, 4))]
        outcomes(sender, [*payloads, annotated((1, 0, 0)), annotated(places[2]), named("none")])
    events = log_of(broker)
    assert told(events, "put", "offset", "seq_stream", "seq_id", "seq_no", "producer") == [
        (0, "s", 1, 1, "p"), (1, "s", 1, 2, "p"), (2, "s", 1, 3, "p"), (3, None, None, None, "p"),
    ]  # fmt: skip
    rejects = told(events, "reject", "address", "producer", "seq_stream", "seq_id", "seq_no")
    assert rejects == [("e.q", "p", "s", 1, 5), ("e.q", "p", None, None, None)]
    reasons = [str(reason) for (reason,) in told(events, "reject", "reason")]
    assert reasons[0].startswith("seq:gap: ") and reasons[1].startswith("amqp:invalid-field: ")
    assert replay(events).offsets("e.q") == queue_offsets(broker, "e.q") == [0, 1, 2, 3]


def test_places_in_a_queue_that_does_not_judge_them(broker: RunningBroker) -> None:
    """They are told all the same, also where the names stand in a large message."""
    with session_to(broker) as session:
        sent(session, "e.off", annotated((1, 9, 4)), annotated((2, 3, 1), body=bytes(5000)), named("x"))
    assert told(log_of(broker), "put", "seq_stream", "seq_id", "seq_no") == [
        ("s", 1, 9), ("s", 2, 3), (None, None, None),
    ]  # fmt: skip


def test_nothing_is_told_of_what_a_full_store_refuses() -> None:
    """The put that was rejected leaves no event and no hole in the numbers; settling is told later."""
    with stopping(JumpingBroker(config_with_events())) as broker, session_to(broker) as session:
        sender = sent(session, "e.q", named("a"), named("b"))
        broker.faults.refuse_commit(1, 5)
        states = [outcomes(sender, [named(f"id-{number}")])[0] for number in range(8)]
        taken = [f"id-{number}" for number in range(8) if isinstance(states[number], Accepted)]
        assert 2 < len(taken) < 8
        left_at(session, "e.q", 2 + len(taken), take=True)
        settle_down(broker, session)
        events = log_of(broker)
    assert told(events, "put", "offset", "message_id") == [*enumerate(["a", "b", *taken])]
    replayed = replay(events)
    assert (replayed.problems, replayed.live) == ([], {})


def test_messages_that_go_with_their_temporary_queue_are_dead() -> None:
    """Nobody can ever receive them."""
    config = config_with_events(queue_policies=(QueuePolicy(pattern="temporary.**", events=True),))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        sender = attach_with(session, "dynamic", target=Target(dynamic=True))
        assert isinstance(sender, PeerSender)
        outcomes(sender, [named("a"), named("b")])
        sender.detach()
        settle_down(broker, session)
        events = log_of(broker)
    assert told(events, "dead", "offset", "reason") == [
        (0, "its temporary queue is gone"), (1, "its temporary queue is gone"),
    ]  # fmt: skip
    assert replay(events).live == {}
