"""The journal tells what becomes of each message of a queue with events: once, in its commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Error,
    Header,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Ulong,
    encode_message,
)
from amqp_broker.persistence.questions import EventRange
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSender, PeerSession
from tests.persistence.stores import edit
from tests.support.broker_clients import (
    address_of,
    at_rest,
    attach_with,
    browse,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.event_replay import MESSAGE_KINDS, replay
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.jumping_broker import InEachStore, JumpingBroker, Start, stopping
from tests.support.message_events import EVENTS, config_with_events, kinds, log_of, named, queue_offsets, told
from tests.support.retained import event_of, offset_of, read
from tests.support.sequenced import annotated, chain, left_at, outcomes, stated

HOUSE = QueuePolicy(pattern="e.off", events=True, sequence="off")


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Queues that have events, e.**, and others; no connection dies of idleness."""
    patient = BrokerLimits(idle_time_out_ms=2**32 - 1)
    return in_each_store(config_with_events(queue_policies=(HOUSE,), limits=patient))


def size_of(payload: bytes) -> int:
    """What is stored of a message: everything behind its header."""
    return len(payload) - Message(payload).after_header_offset


def sent(session: PeerSession, address: str, *payloads: bytes) -> PeerSender:
    """A sender that had all of these accepted, sent in one write."""
    sender = session.attach_sender(f"s-{address}-{len(session.links)}", address)
    states = outcomes(sender, payloads)
    assert all(isinstance(state, Accepted) for state in states), states
    return sender


def test_puts_tell_who_sent_what(broker: JumpingBroker) -> None:
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


def test_deliveries_and_outcomes(broker: JumpingBroker) -> None:
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
    durable: bool, presettled: bool, broker: JumpingBroker
) -> None:
    """Sent settled, delivered settled, not durable: each message has its events all the same."""
    with session_to(broker, "c") as session:
        sender = session.attach_sender("s", "e.q")
        send(sender, b"1", b"2", b"3", durable=durable, settled=presettled)
        if presettled:
            receiver = session.attach_receiver("settled", "e.q", credit=100, snd_settle_mode=1)
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


def test_a_link_that_goes_gives_its_default_outcome(broker: JumpingBroker) -> None:
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


def test_browsers_and_other_queues_are_not_told(broker: JumpingBroker) -> None:
    """Looking is no delivery, and a queue without events has none."""
    with session_to(broker) as session:
        sent(session, "plain", named("a"))
        left_at(session, "plain", 1, take=True)
        sent(session, "e.q", named("b"))
        receive(browse(session, "b", "e.q", credit=5), 1)
        settle_down(broker, session)
    assert kinds(log_of(broker)) == ["put"]


def test_the_anonymous_terminus(broker: JumpingBroker) -> None:
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


def test_sequences(broker: JumpingBroker) -> None:
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


def test_a_number_before_that_is_not_the_one_below_is_told(broker: JumpingBroker) -> None:
    """Its sender leaves numbers out, and says so: else nobody could tell a gap from a loss."""
    with session_to(broker) as session:
        sent(session, "e.q", annotated((1, 1, 0)), annotated((1, 5, 1)), annotated((1, 6, 2)))
    assert told(log_of(broker), "put", "seq_no", "seq_prev") == [(1, None), (5, 1), (6, 2)]


def test_places_in_a_queue_that_does_not_judge_them(broker: JumpingBroker) -> None:
    """They are told all the same, also where the names stand in a large message; without the id, by which
    audits know that a rule was kept.
    """
    with session_to(broker) as session:
        sent(session, "e.off", annotated((1, 9, 4)), annotated((2, 3, 1), body=bytes(5000)), named("x"))
    assert told(log_of(broker), "put", "seq_stream", "seq_id", "seq_no") == [
        ("s", None, 9), ("s", None, 3), (None, None, None),
    ]  # fmt: skip


def test_nothing_is_told_of_what_a_full_store_refuses(broker: JumpingBroker) -> None:
    """The put that was rejected leaves no event and no hole in the numbers; settling is told later."""
    with session_to(broker) as session:
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


def test_messages_that_go_with_their_temporary_queue_are_dead(start: Start) -> None:
    """Nobody can ever receive them."""
    policies = (QueuePolicy(pattern="temporary.**", events=True),)
    broker = start(config_with_events(queue_policies=policies))
    with session_to(broker) as session:
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


# Transactions, half messages, expiry and damage


def in_transaction(txn_id: bytes, outcome: Any) -> TransactionalState:
    """An outcome as part of a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def held(session: PeerSession, address: str, count: int) -> tuple[PeerReceiver, list[Delivery]]:
    """Deliveries that wait for their outcomes."""
    receiver = session.attach_receiver(f"held-{len(session.links)}", address, credit=count)
    return receiver, receive(receiver, count)


def test_commit_tells_what_was_posted_and_retired(broker: JumpingBroker) -> None:
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


def posted_and_accepted(session: PeerSession) -> tuple[Controller, bytes, Callable[[], object]]:
    """A transaction that posts to `e.q` and accepted the message there, and how to do that outside of it."""
    sender = session.attach_sender("s", "e.q")
    send(sender, b"1", durable=True)
    receiver, deliveries = held(session, "e.q", 1)
    controller = Controller(session)
    txn_id = controller.declare()
    outcomes(sender, [named("a")], txn_id=txn_id)
    receiver.settle(deliveries, in_transaction(txn_id, Accepted()), settled=False)
    return controller, txn_id, partial(receiver.settle, deliveries, Accepted())


def test_rollback_tells_nothing(broker: JumpingBroker) -> None:
    """What was posted never was, what was retired is still held."""
    with session_to(broker) as session:
        controller, txn_id, accept = posted_and_accepted(session)
        controller.roll_back(txn_id)
        settle_down(broker, session)
        events = log_of(broker)
        assert [(event.kind, event.fields["offset"]) for event in events] == [("put", 0), ("deliver", 0)]
        accept()
        settle_down(broker, session)
    assert replay(log_of(broker)).live == {}


def test_acquisition_that_is_rolled_back_is_a_release(broker: JumpingBroker) -> None:
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


def test_sequenced_posts_in_a_transaction(broker: JumpingBroker) -> None:
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


def test_discharge_that_the_store_refuses_tells_nothing(broker: JumpingBroker) -> None:
    """Nothing of the transaction happened, so nothing of it is told."""
    with session_to(broker) as session:
        controller, txn_id, _ = posted_and_accepted(session)
        settle_down(broker, session)
        broker.faults.refuse_commit(1, 2)
        assert isinstance(controller.discharge(txn_id), Rejected)
        settle_down(broker, session)
        events = log_of(broker)
    assert [(event.kind, event.fields["offset"]) for event in events][:2] == [("put", 0), ("deliver", 0)]
    assert told(events, "settle", "outcome") in ([], [("released",)])  # its link went with the session
    assert replay(events).offsets("e.q") == [0]


def test_committed_half_messages_are_published(broker: JumpingBroker) -> None:
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


def test_half_message_without_a_queue_is_dead(start: Start) -> None:
    """Its destination went: it is published in the dead letters, and told to be dead where it should go."""
    policies = (EVENTS, QueuePolicy(pattern="dead-letters", events=True))
    broker = start(attrs.evolve(config_with_events(), queue_policies=policies))
    with session_to(broker) as session:
        dynamic = attach_with(session, "dynamic", source=Source(dynamic=True))
        address = address_of(dynamic)
        put, decide = putter(session, "g", address), resolver(session, "g")
        assert isinstance(tell(put, half("h1")), Accepted)
        dynamic.detach()
        settle_down(broker, session)
        assert isinstance(tell(decide, resolution("h1", "commit")), Accepted)
        events = log_of(broker)
    assert told(events, "publish", "address", "offset", "half_id") == [("dead-letters", 0, "string:h1")]
    assert told(events, "dead", "address", "half_id") == [(address, "string:h1")]
    assert replay(events).offsets("dead-letters") == [0]


def test_expiry(broker: JumpingBroker) -> None:
    """The time of messages ran out, of stored ones and others: each is told once, when that is noticed."""
    with session_to(broker) as session:
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


def test_expiry_before_the_discharge_is_told(broker: JumpingBroker) -> None:
    """What outlived its time inside a transaction comes into the queue with it, and expires there."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "e.q")
        controller = Controller(session)
        txn_id = controller.declare()
        short = encode_message(header=Header(durable=True, ttl=1000), body=b"short")
        outcomes(sender, [short, named("long")], txn_id=txn_id)
        broker.jump(2)
        controller.commit(txn_id)
        assert left_at(session, "e.q", 1, take=True) == ["body"], "the one without a ttl"
        settle_down(broker, session)
        events = log_of(broker)
    assert told(events, "put", "address", "offset") == [("e.q", 0), ("e.q", 1)]
    assert told(events, "expire", "address", "offset") == [("e.q", 0)]
    assert told(events, "settle", "offset", "outcome") == [(1, "accepted")]


def test_damaged_messages_are_dead(tmp_path: Path) -> None:
    """What the store finds damaged leaves its queue, and the log says so."""
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


# As readers of `$events` get them, whatever peers have put into their messages


LARGEST = 2**64 - 1


def test_readers_get_what_the_store_has(start: Start) -> None:
    """Each entry of a run is a message of its own, with all its fields; texts and numbers at their limits."""
    texts = ["", "\x00", "\U0001f600" * 300, '"\\', "\u2028", "x" * 70_000]
    broker = start(config_with_events())
    with session_to(broker, 'c\u00fc"') as session:
        sender = session.attach_sender("s", "e.q")
        for text in texts:
            properties = Properties(message_id=text, group_id=text, group_sequence=2**32 - 1)
            outcomes(sender, [encode_message(header=Header(durable=True), properties=properties, body=b"b")])
        outcomes(sender, [encode_message(body=bytes([number])) for number in range(100)])
        places = [(LARGEST, 1, 0), (LARGEST, 2**32 - 1, 2**32 - 2), (2**63, 1, 0)]
        outcomes(sender, [annotated(place, stream="\u00fc" * 128) for place in places])
        receiver = session.attach_receiver("r", "e.q", credit=1)
        error = Error(condition="amqp:not-allowed", description="\x00" * 3000)
        receiver.settle(receive(receiver, 1), Rejected(error=error))
        round_trip(session)
        stored = log_of(broker)
        shown = receive(read(session, "$events", "first", credit=1_000), len(stored))
    assert [offset_of(one) for one in shown] == [event.seq for event in stored]
    for one, event in zip(shown, stored, strict=True):
        fields: dict[str, Any] = event_of(one)
        assert event.kind in MESSAGE_KINDS
        own = {name: value for name, value in fields.items() if name not in ("type", "lsn", "time")}
        assert (fields["type"], own) == (event.kind, event.fields)
    kinds = [event.kind for event in stored]
    assert {"put", "reject", "deliver", "settle", "dead"} <= set(kinds)
    numbers = {event.fields.get("seq_id") for event in stored}
    assert numbers == {None, -1, -(2**63)}, "a ulong is told as the long of the same octets"
