"""Bounds of transactions: their time, their size, the credit of control links; and what is one write."""

from __future__ import annotations

import attrs
import pytest
import trio

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    AmqpValue,
    Declare,
    Declared,
    Discharge,
    Disposition,
    TransactionalState,
    encode_message,
)
from amqp_broker.persistence import Store
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.frame_tap import FrameCutter
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import (
    at_rest,
    bodies,
    body_of,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
)
from tests.support.by_hand import (
    Control,
    Served,
    asked,
    at_hand,
    by_hand,
    commits_held,
    condition_of,
    posted,
    text,
    within,
)
from tests.support.controllers import Controller
from tests.support.jumping_broker import JumpingBroker, stopping

TIMEOUT = "amqp:transaction:timeout"
ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TOO_MUCH = "amqp:resource-limit-exceeded"
TIMEOUT_S = 5.0
SHORT = memory_config(
    limits=BrokerLimits(transaction_timeout_ms=int(TIMEOUT_S * 1_000)),
    queue_policies=(QueuePolicy(pattern="small", max_messages=3),),
)


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


@at_hand(SHORT)
async def test_every_use_after_the_timeout_says_so(at: Served) -> None:
    """Row "timeout": a post, an outcome, a flow end their link with it, a discharge is rejected with it;
    to roll back is accepted (4.3); the connection lives.
    """
    await at.post("q", b"1")
    control, sender = Control(at), await at.sender("out")
    receiver, acquiring = await at.receiver("q", 1), await at.receiver("q", 0, "acquires")
    posting, retiring, flowing, committing, failing = [await control.declare() for _ in range(5)]
    await at.pass_time(1.02 * TIMEOUT_S)
    sender.send_in([text(b"too late")], within(posting))
    await at.settle()
    assert at.condition() == TIMEOUT
    receiver.dispose(at.received, within(retiring, Accepted()), False)
    await at.settle()
    assert at.condition() == TIMEOUT
    acquiring.flow(1, properties={"txn-id": flowing})
    await at.settle()
    assert at.condition() == TIMEOUT
    told = [await control.discharge(committing) for _ in range(2)]
    assert [condition_of(each) for each in told] == [TIMEOUT, UNKNOWN_ID]
    await control.roll_back(failing)
    await control.commit(await control.declare())
    assert (at.queue("out").message_count, at.queue("q").message_count) == (0, 1)


@at_hand()
async def test_what_has_expired_by_the_commit_is_never_there(at: Served) -> None:
    """Row "capacity and TTL": it was alive when it was posted; the commit stores and counts the rest only."""
    control, sender = Control(at), await at.sender("q")
    txn_id = await control.declare()
    for body, ttl in ((b"short", 10_000), (b"long", 90_000)):
        assert await posted(at, sender, txn_id, body, ttl=ttl) == [Accepted()]
    await at.pass_time(60)
    await control.commit(txn_id)
    assert at.queue().message_count == 1
    assert await at.left("q") == [b"long"]


@at_hand(SHORT)
async def test_a_closed_control_link_takes_all_of_its_transactions(at: Served) -> None:
    """4.1: each that it declared is rolled back at once, while the connection lives; none of another's."""
    await at.post("q", b"1", b"2", b"3", b"4")
    one, two, receiver = Control(at, "one"), Control(at, "two"), await at.receiver("q")
    ids = []
    for control in (one, two, one, one):
        ids.append(await control.declare())
        receiver.flow(1, properties={"txn-id": ids[-1]})
        await at.settle()
    assert len(at.received) == 4 and await at.left("q") == []
    one.link.detach()
    await at.settle()
    assert await at.left("q") == [b"1", b"3", b"4"]
    assert [live.txn_id for live in at.broker.transactions()] == [ids[1]]
    await two.commit(ids[1])


# Size


@pytest.mark.parametrize("work", ["posts", "octets", "outcomes", "settled outcomes", "acquisitions"])
@at_hand(transaction_operations=3, transaction_bytes=2_048, max_message_size_bytes=1_024)
async def test_work_beyond_the_limits_leaves_only_the_rollback(at: Served, work: str) -> None:
    """Row "limits": told at the post, or with the end of the link that acquires; a commit is then answered
    amqp:transaction:rollback, and nothing of the transaction has happened.
    """
    await at.post("q", b"1", b"2", b"3", b"4")
    control, sender, receiver = Control(at), await at.sender("out"), await at.receiver("q")
    txn_id = await control.declare()
    if work in ("posts", "octets"):
        fit, body = (3, b"x") if work == "posts" else (2, b"x" * 900)
        told = [condition_of((await posted(at, sender, txn_id, body))[0]) for _ in range(fit + 1)]
        assert told == ["accepted"] * fit + [TOO_MUCH]
    elif work == "acquisitions":
        receiver.flow(4, properties={"txn-id": txn_id})
        await at.settle()
        assert at.condition() == TOO_MUCH and len(at.received) == 3
    else:
        receiver.flow(4)
        await at.settle()
        for delivery in at.take():
            receiver.dispose([delivery], within(txn_id, Accepted()), work == "settled outcomes")
    assert condition_of(await control.discharge(txn_id)) == ROLLBACK
    assert (at.queue("out").message_count, at.queue("q").message_count) == (0, 4)
    assert at.queue("out").reserved_messages == 0
    await control.commit(await control.declare())


def test_a_control_link_keeps_its_credit_while_the_store_is_at_it() -> None:
    """Row "credit of a control link": at least 10, however many discharges wait for the disk."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        control = Control(at)
        requests = [Discharge(txn_id=await control.declare()) for _ in range(20)]
        with commits_held(at, faults):
            assert control.link.credit >= 20
            control.link.send([Sendable(encode_message(body=AmqpValue(each))) for each in requests])
            await at.settle()
            assert control.link.credit >= 10
            assert isinstance(await asked(at, control.link, Declare()), Declared)
            assert not at.outcomes
        await at.settle()
        assert at.outcomes == [Accepted()] * 20

    by_hand(main, faults=faults)


# On the wire


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
        send(session.attach_sender("s", "q"), b"1", b"2", durable=True)
        controller, receiver = Controller(session), session.attach_receiver("r", "q")
        txn_id = controller.declare()
        receiver.flow(2, txn_id=txn_id)
        state = TransactionalState(txn_id=txn_id, outcome=Accepted())
        receiver.settle(receive(receiver, 2), state, settled=False)
        round_trip(session)
        at_rest(broker)
        watcher.writes.clear()
        assert isinstance(controller.discharge(txn_id, fail=fail), Accepted)
        dispositions = [[one for one in write if isinstance(one, Disposition)] for write in watcher.writes]
        assert [[one.role for one in write] for write in dispositions if write] == [[SENDER, RECEIVER]]


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_half_sent_is_aborted_before_a_failed_discharge_is_answered(settled: bool) -> None:
    """4.4.3: "the resource MUST abort or complete the sending the remainder of the message before completing
    the discharge"; while the session's window is closed the answer waits.
    """
    body = b"x" * 200_000
    with running_broker() as broker, session_to(broker) as session, session_to(broker) as other:
        send(session.attach_sender("s", "q"), body)
        controller = Controller(session)
        txn_id = controller.declare()
        receiver = session.attach_receiver("r", "q", snd_settle_mode=1 if settled else 0)
        receiver.flow(1, txn_id=txn_id, incoming_window=1)
        session.connection.pump_until(lambda: receiver.partial is not None)
        number = controller.ask(Discharge(txn_id=txn_id, fail=True))
        session.connection.flush()
        (delivery,) = receive(other.attach_receiver("rival", "q", credit=1), 1)  # it is available again
        assert body_of(delivery) == body
        assert not session.connection.pump(0.05) and number not in controller.link.outcomes
        session.flow()
        assert isinstance(controller.answer(number), Accepted)
        assert receiver.partial is None and not receiver.deliveries


def test_a_transaction_times_out_although_nothing_comes() -> None:
    """Row "timeout": a timer of its own frees what it held, at once, while no connection says a word."""
    with (
        stopping(JumpingBroker(SHORT)) as broker,
        session_to(broker) as session,
        session_to(broker) as other,
    ):
        send(session.attach_sender("s", "q"), b"mine for a while")
        controller, sender = Controller(session), session.attach_sender("up", "small")
        receiver = session.attach_receiver("r", "q")
        txn_id = controller.declare()
        for body in (b"1", b"2", b"3"):
            sender.send(message(body), txn_id=txn_id)
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
