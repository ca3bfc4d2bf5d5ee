"""Bounds of transactions: their time, their room, their size, the credit of control links; and what is one
write. Time is virtual where it matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest
import trio

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Properties,
    Rejected,
    TransactionalState,
    encode_message,
)
from amqp_broker.persistence import Store
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.frame_tap import FrameCutter
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.model.virtual_broker import VirtualBroker
from tests.support.broker_clients import (
    at_rest,
    bodies,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
)
from tests.support.controllers import Controller

TIMEOUT = "amqp:transaction:timeout"
ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TOO_MUCH = "amqp:resource-limit-exceeded"
TIMEOUT_S = 5.0


def accepted_in(txn_id: bytes) -> TransactionalState:
    """Accepted in a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=Accepted())


def sender_to(session: PeerSession, name: str) -> PeerSender:
    """A link that may send to a queue of its own name."""
    sender = session.attach_sender(f"to-{name}", name)
    session.connection.pump_until(lambda: sender.may_send)
    return sender


def post(sender: PeerSender, txn_id: bytes, *texts: bytes, ttl: int | None = None) -> list[object]:
    """Post in a transaction, in one write; the provisional outcomes."""
    numbers = [sender.send(message(text, durable=True, ttl=ttl), txn_id=txn_id) for text in texts]
    sender.session.connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    states = [sender.outcomes[number] for number in numbers]
    return [state.outcome if isinstance(state, TransactionalState) else state for state in states]


def condition_of(state: object) -> str:
    """The condition of a rejected outcome."""
    assert isinstance(state, Rejected) and state.error is not None, f"expected rejected, got {state!r}"
    return str(state.error.condition)


def expect_detach(link: PeerSender | PeerReceiver, condition: str) -> None:
    """Wait until the broker ends a link with an error of this condition."""
    with pytest.raises(PeerError) as ended:
        link.session.connection.pump_until(lambda: link.detached)
    assert ended.value.scope == f"link {link.name}"
    assert ended.value.error is not None and ended.value.error.condition == condition


def test_the_defaults_of_transactions_are_those_of_the_design() -> None:
    """Rows "timeout" and "limits": 120 s, 64 live ones, 10,000 operations, 64 MiB."""
    limits = attrs.asdict(BrokerLimits())
    found = {name: value for name, value in limits.items() if "transaction" in name}
    assert found == {
        "max_transactions": 64,
        "transaction_timeout_ms": 120_000,
        "transaction_operations": 10_000,
        "transaction_bytes": 64 * 1_024 * 1_024,
    }


# Time


@contextmanager
def virtual(faults: ScriptedFaults | None = None) -> Iterator[VirtualBroker]:
    """A broker on a virtual clock, with transactions of at most TIMEOUT_S; `small` takes three messages."""
    config = memory_config(
        limits=BrokerLimits(transaction_timeout_ms=int(TIMEOUT_S * 1_000)),
        queue_policies=(QueuePolicy(pattern="small", max_messages=3),),
    )
    broker = VirtualBroker(config, faults)
    try:
        yield broker
    finally:
        broker.stop()


def test_a_transaction_times_out_although_nothing_comes() -> None:
    """Row "timeout": a timer of its own frees what it held, at once, while no connection says a word."""
    with virtual() as broker, session_to(broker) as session, session_to(broker) as other:
        send(sender_to(session, "q"), b"mine for a while")
        controller, sender = Controller(session), sender_to(session, "small")
        receiver = session.attach_receiver("r", "q")
        txn_id = controller.declare()
        post(sender, txn_id, b"1", b"2", b"3")
        receiver.flow(1, txn_id=txn_id)
        receive(receiver, 1)
        rival = other.attach_receiver("rival", "q", credit=1)
        stranger = other.attach_sender("stranger", "small")
        broker.jump(0.98 * TIMEOUT_S)
        round_trip(session, other)
        assert not rival.deliveries and not stranger.credit
        broker.jump(0.04 * TIMEOUT_S)
        assert bodies(receive(rival, 1)) == [b"mine for a while"]
        other.connection.pump_until(lambda: stranger.may_send)
        assert broker.call(Broker.transactions) == [] and counts(broker, "small") == (0, 0)


def test_every_use_after_the_timeout_says_so() -> None:
    """Row "timeout": a post, an outcome, a flow end their link with it, a discharge is rejected with it;
    to roll back is accepted (4.3); the connection lives.
    """
    with virtual() as broker, session_to(broker) as session:
        send(sender_to(session, "q"), b"1")
        controller, sender = Controller(session), sender_to(session, "out")
        receiver = session.attach_receiver("r", "q", credit=1)
        (delivery,) = receive(receiver, 1)
        acquiring = session.attach_receiver("acquires", "q")
        posting, retiring, flowing, committing, failing = [controller.declare() for _ in range(5)]
        broker.jump(1.02 * TIMEOUT_S)
        at_rest(broker)  # what comes in the very turn of the deadline is still taken, and rolled back
        sender.send(message(b"too late"), txn_id=posting)
        expect_detach(sender, TIMEOUT)
        receiver.settle([delivery], accepted_in(retiring), settled=False)
        expect_detach(receiver, TIMEOUT)
        acquiring.flow(1, txn_id=flowing)
        expect_detach(acquiring, TIMEOUT)
        assert condition_of(controller.discharge(committing)) == TIMEOUT
        assert condition_of(controller.discharge(committing)) == UNKNOWN_ID
        assert isinstance(controller.discharge(failing, fail=True), Accepted)
        controller.commit(controller.declare())
        assert counts(broker, "out") == (0, 0) and counts(broker, "q")[0] == 1


def test_what_has_expired_by_the_commit_is_never_there() -> None:
    """Row "capacity and TTL": it was alive when it was posted; the commit stores and counts the rest only."""
    with running_broker() as broker, session_to(broker) as session:
        controller, sender = Controller(session), sender_to(session, "q")
        txn_id = controller.declare()
        states = post(sender, txn_id, b"short", ttl=10_000) + post(sender, txn_id, b"long", ttl=90_000)
        assert [type(state) for state in states] == [Accepted, Accepted]
        broker.call(later, 60_000)
        controller.commit(txn_id)
        assert counts(broker, "q")[0] == 1
        assert bodies(receive(session.attach_receiver("r", "q", credit=5), 1)) == [b"long"]


def later(broker: Broker, milliseconds: int) -> None:
    """So much time passes for what the broker keeps, none for its timers."""
    broker.clock._began_ms += milliseconds


def test_a_closed_control_link_takes_all_of_its_transactions() -> None:
    """4.1: each that it declared is rolled back at once, while the connection lives; none of another's."""
    with virtual() as broker, session_to(broker) as session, session_to(broker, "other") as other:
        send(sender_to(session, "q"), b"1", b"2", b"3", b"4")
        one, two = Controller(session, "one"), Controller(session, "two")
        receiver = session.attach_receiver("r", "q")
        ids = []
        for controller in (one, two, one, one):
            ids.append(controller.declare())
            receiver.flow(1, txn_id=ids[-1])
            receive(receiver, 1)
        rival = other.attach_receiver("rival", "q", credit=10)
        round_trip(session, other)
        assert not rival.deliveries
        one.link.detach()
        assert bodies(receive(rival, 3)) == [b"1", b"3", b"4"]
        assert [live.txn_id for live in broker.call(Broker.transactions)] == [ids[1]]
        two.commit(ids[1])


# Room and size


def test_room_is_kept_at_the_post() -> None:
    """Row "capacity and TTL": nobody else can take what an open transaction has posted, whole or in part."""
    with virtual() as broker, session_to(broker) as session, session_to(broker, "other") as other:
        controller, sender = Controller(session), sender_to(session, "small")
        first, second = controller.declare(), controller.declare()
        assert [type(state) for state in post(sender, first, b"1", b"2")] == [Accepted, Accepted]
        assert [type(state) for state in post(sender, second, b"3")] == [Accepted]
        late = other.attach_sender("late", "small")
        round_trip(session, other)
        assert late.credit == 0 and sender.credit == 0
        relay = other.attach_sender("relay", None)
        other.connection.pump_until(lambda: relay.may_send)
        number = relay.send(encode_message(properties=Properties(to="small"), body=b"5"))
        other.connection.pump_until(lambda: number in relay.outcomes)
        assert condition_of(relay.outcomes[number]) == TOO_MUCH
        controller.roll_back(second)
        controller.commit(first)
        assert counts(broker, "small")[0] == 2
        number = relay.send(encode_message(properties=Properties(to="small"), body=b"5"))
        other.connection.pump_until(lambda: number in relay.outcomes)  # who was refused has his chance first
        assert isinstance(relay.outcomes[number], Accepted) and late.credit == 0


def small_transactions() -> BrokerConfig:
    """Three operations, or two kibibytes."""
    limits = BrokerLimits(transaction_operations=3, transaction_bytes=2_048, max_message_size_bytes=1_024)
    return memory_config(limits=limits)


@pytest.mark.parametrize("work", ["posts", "octets", "outcomes", "settled outcomes", "acquisitions"])
def test_work_beyond_the_limits_leaves_only_the_rollback(work: str) -> None:
    """Row "limits": told at the post, or with the end of the link that acquires; a commit is then answered
    amqp:transaction:rollback, and nothing of the transaction has happened.
    """
    with running_broker(small_transactions()) as broker, session_to(broker) as session:
        send(sender_to(session, "q"), b"1", b"2", b"3", b"4")
        controller, sender = Controller(session), sender_to(session, "out")
        receiver = session.attach_receiver("r", "q")
        txn_id = controller.declare()
        if work == "posts":
            outcomes = [post(sender, txn_id, b"x")[0] for _ in range(4)]
            assert [type(state) for state in outcomes[:3]] == [Accepted] * 3
            assert condition_of(outcomes[3]) == TOO_MUCH
        elif work == "octets":
            outcomes = [post(sender, txn_id, b"x" * 900)[0] for _ in range(3)]
            assert [type(state) for state in outcomes[:2]] == [Accepted] * 2
            assert condition_of(outcomes[2]) == TOO_MUCH
        elif work == "acquisitions":
            receiver.flow(4, txn_id=txn_id)
            expect_detach(receiver, TOO_MUCH)
            assert len(receiver.deliveries) == 3
        else:
            receiver.flow(4)
            settled = work == "settled outcomes"
            for delivery in receive(receiver, 4):
                receiver.settle([delivery], accepted_in(txn_id), settled=settled)
        assert condition_of(controller.discharge(txn_id)) == ROLLBACK
        at_rest(broker)
        assert counts(broker, "out")[0] == 0 and counts(broker, "q")[0] == 4
        controller.commit(controller.declare())


def test_a_control_link_keeps_its_credit_while_the_store_is_at_it() -> None:
    """Row "credit of a control link": at least 10, however many discharges wait for the disk."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker, session_to(broker) as session:
        controller = Controller(session)
        ids = [controller.declare() for _ in range(20)]
        broker.call(lambda running: setattr(running.writer._pace, "commit_s", 1.0))  # commits beside the loop
        with faults.held_commits():
            session.connection.pump_until(lambda: controller.link.credit >= 20)
            numbers = [controller.ask(Discharge(txn_id=txn_id)) for txn_id in ids]
            round_trip(session)
            assert controller.link.credit >= 10
            number = controller.ask(Declare())
            assert isinstance(controller.answer(number), Declared)
            assert not any(number in controller.link.outcomes for number in numbers)
        assert all(isinstance(controller.answer(number), Accepted) for number in numbers)


# Writes


class WatchedStream(trio.abc.Stream):
    """A stream that writes down the performatives of each write."""

    def __init__(self, stream: trio.abc.Stream, writes: list[list[object]]) -> None:
        self._stream = stream
        self._writes = writes
        self._cutter = FrameCutter()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As the stream."""
        self._writes.append([piece.performative for piece in self._cutter.feed(bytes(data))])
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As the stream."""
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """As the stream."""
        await self._stream.aclose()


class Watcher:
    """No fault at all: it only looks at each write of the broker."""

    def __init__(self) -> None:
        self.writes: list[list[object]] = []

    def wrap_store(self, store: Store) -> Store:
        """The store itself."""
        return store

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """A stream that is looked at."""
        return WatchedStream(stream, self.writes)


@pytest.mark.parametrize("fail", [False, True])
def test_settlements_and_the_answer_are_one_write(fail: bool) -> None:
    """Row "order on the wire": the settlements of the transaction, then its outcome, in one write."""
    watcher = Watcher()
    with running_broker(faults=watcher) as broker, session_to(broker) as session:
        send(sender_to(session, "q"), b"1", b"2", durable=True)
        controller, receiver = Controller(session), session.attach_receiver("r", "q")
        txn_id = controller.declare()
        receiver.flow(2, txn_id=txn_id)
        receiver.settle(receive(receiver, 2), accepted_in(txn_id), settled=False)
        round_trip(session)
        at_rest(broker)
        watcher.writes.clear()
        assert isinstance(controller.discharge(txn_id, fail=fail), Accepted)
        dispositions = [[one for one in write if isinstance(one, Disposition)] for write in watcher.writes]
        assert [[one.role for one in write] for write in dispositions if write] == [[SENDER, RECEIVER]]
