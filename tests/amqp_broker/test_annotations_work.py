"""What `modified` with annotations costs: each map is read and written once, and others have turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio

import amqp_broker.records
from amqp_broker.configuration import BrokerLimits
from amqp_broker.connection import OCTETS_AT_ONCE
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Discharge,
    Message,
    Modified,
    Rejected,
    Source,
    Symbol,
    TransactionalState,
    encode_message,
    encode_section,
)
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.peer import PeerError, PeerReceiver
from tests.support.broker_clients import attach_with, receive, round_trip, send, session_to
from tests.support.controllers import Controller

pytestmark = pytest.mark.interpreted

MAP_OCTETS = 20_000
COUNT = 24
AT_ONCE = OCTETS_AT_ONCE // MAP_OCTETS + 1
"""So many maps of this size a step begins; the last one may go beyond the bound."""
NOTE = Modified(delivery_failed=True, message_annotations={"x-opt-note": "n"})


class Spy(trio.abc.Instrument):
    """Counts maps that are decoded and encoded, in all and in each step of a task."""

    def __init__(self) -> None:
        self.decoded = self.encoded = 0
        self.most = 0
        self._here = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Another one goes on."""
        self._here = 0

    def count(self) -> None:
        """One more map."""
        self._here += 1
        self.most = max(self.most, self._here)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """What reads and writes the maps of messages is counted."""
    spy = Spy()
    decode, encode = Message._map, encode_section

    def decoding(message: Message, index: int) -> dict[Any, Any]:
        spy.decoded += 1
        spy.count()
        return decode(message, index)

    def encoding(name: str, value: dict[Any, Any]) -> bytes:
        if len(value) > 1:  # else what is added, by itself
            spy.encoded += 1
        return encode(name, value)

    monkeypatch.setattr(Message, "_map", decoding)
    monkeypatch.setattr(amqp_broker.records, "encode_section", encoding)
    return spy


@pytest.fixture
def broker(spy: Spy) -> Iterator[RunningBroker]:
    """One in memory, which the spy sees."""
    limits = attrs.evolve(BrokerLimits(), annotations_bytes=32_768)
    with running_broker(memory_config(limits=limits)) as running:
        running.call(lambda _: trio.lowlevel.add_instrument(spy))
        yield running


def annotated(octets: int = MAP_OCTETS) -> bytes:
    """A message that comes with a map of this size."""
    return encode_message(message_annotations={Symbol("x-opt-mine"): b"m" * octets}, body=b"body")


def filled(broker: RunningBroker, count: int = COUNT, octets: int = MAP_OCTETS) -> None:
    """So many of them in q."""
    with session_to(broker, "producer") as session:
        sender = session.attach_sender("s", "q")
        for _ in range(count):
            session.connection.pump_until(lambda: sender.may_send)
            sender.send(annotated(octets))
        session.connection.pump_until(lambda: len(sender.outcomes) == count)


def again(broker: RunningBroker, count: int = COUNT) -> list[Message]:
    """What comes to the next consumer."""
    with session_to(broker, "next") as session:
        receiver = session.attach_receiver("r", "q", credit=count)
        got = receive(receiver, count)
        receiver.settle(got, Accepted())
        round_trip(session)
        return [Message(each.payload) for each in got]


def check(spy: Spy, messages: list[Message], count: int = COUNT) -> None:
    """Once each, a few at a time, and everything is done."""
    assert (spy.decoded, spy.encoded) == (count, count)
    assert spy.most <= AT_ONCE, f"{spy.most} maps in one step"
    for message in messages:
        assert message.header.delivery_count == 1
        assert Symbol("x-opt-note") in (message.message_annotations or {})


@pytest.mark.parametrize("settled", [True, False])
def test_a_range_is_done_in_steps(broker: RunningBroker, spy: Spy, settled: bool) -> None:
    """One disposition of some octets about many messages does not stop everybody."""
    filled(broker)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=COUNT)
        receiver.settle(receive(receiver, COUNT), NOTE, settled=settled)
        round_trip(session)
        receiver.detach()
    check(spy, again(broker))


def test_many_dispositions_in_one_write_are_done_in_steps(broker: RunningBroker, spy: Spy) -> None:
    """What a peer asks for bit by bit is no less work."""
    filled(broker)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=COUNT)
        for number, each in enumerate(receive(receiver, COUNT)):
            receiver.settle(
                [each], Modified(delivery_failed=True, message_annotations={"x-opt-note": str(number)})
            )
        receiver.detach()
    check(spy, again(broker))


def test_what_follows_in_the_same_write_waits_for_it(broker: RunningBroker, spy: Spy) -> None:
    """A detach and a close behind the disposition change nothing of what it does."""
    filled(broker)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=COUNT)
        got = receive(receiver, COUNT)
        receiver.settle(got, NOTE, settled=False)
        session.connection.close()
    check(spy, again(broker))


@pytest.mark.parametrize("acquired", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_a_discharge_finds_the_maps_done(
    broker: RunningBroker, spy: Spy, settled: bool, acquired: bool
) -> None:
    """In a transaction each map is merged when its outcome comes, and not in the commit of all."""
    filled(broker)
    with session_to(broker) as session:
        control = Controller(session)
        txn_id = control.declare()
        receiver = session.attach_receiver("r", "q")
        receiver.flow(COUNT, txn_id=txn_id if acquired else None)
        got = receive(receiver, COUNT)
        receiver.settle(got, TransactionalState(txn_id=txn_id, outcome=NOTE), settled=settled)
        control.commit(txn_id)
        session.connection.close()
    check(spy, again(broker))


def test_what_waits_for_a_discharge_is_done_in_steps_to_its_end(broker: RunningBroker, spy: Spy) -> None:
    """Two ranges behind a discharge that decides one delivery of the first: all others of both are done."""
    filled(broker)
    other = Modified(delivery_failed=True, message_annotations={"x-opt-note": "other"})
    with session_to(broker) as session:
        control = Controller(session)
        txn_id = control.declare()
        receiver = session.attach_receiver("r", "q", credit=COUNT)
        got = receive(receiver, COUNT)
        receiver.settle(got[:1], TransactionalState(txn_id=txn_id, outcome=Accepted()), settled=False)
        discharge = control.ask(Discharge(txn_id=txn_id, fail=False))
        receiver.settle(got[: COUNT // 2], NOTE, settled=False)
        receiver.settle(got[COUNT // 2 :], other, settled=False)
        assert control.answer(discharge) == Accepted()
        round_trip(session)
        receiver.detach()
    check(spy, again(broker, COUNT - 1), COUNT - 1)


def test_the_last_outcome_in_a_transaction_counts(broker: RunningBroker, spy: Spy) -> None:
    """An unsettled outcome may be replaced, and what was merged for the first one is not used."""
    filled(broker, 1)
    other = Modified(delivery_failed=True, message_annotations={"x-opt-other": "o"})
    with session_to(broker) as session:
        control = Controller(session)
        txn_id = control.declare()
        receiver = session.attach_receiver("r", "q", credit=1)
        got = receive(receiver, 1)
        for outcome in (NOTE, other):
            receiver.settle(got, TransactionalState(txn_id=txn_id, outcome=outcome), settled=False)
        control.commit(txn_id)
        session.connection.close()
    (message,) = again(broker, 1)
    assert set(message.message_annotations or {}) == {Symbol("x-opt-mine"), Symbol("x-opt-other")}


def test_what_came_with_more_than_the_bound_is_not_touched(broker: RunningBroker, spy: Spy) -> None:
    """The bound holds whatever a message brought; nothing is decoded to find that out."""
    filled(broker, 2, octets=40_000)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=2)
        got = receive(receiver, 2)
        with pytest.raises(PeerError, match="resource-limit-exceeded") as caught:
            receiver.settle(got, NOTE, settled=False)
            session.connection.pump_until(lambda: receiver.detached)
    error = caught.value.error
    assert error is not None and "(limits.annotations_bytes)" in (error.description or "")
    assert spy.decoded == 0
    first, second = again(broker, 2)
    assert (first.header.delivery_count, second.header.delivery_count or 0) == (1, 0)
    assert set(first.message_annotations or {}) == {Symbol("x-opt-mine")}


def test_a_transaction_counts_what_is_added(broker: RunningBroker, spy: Spy) -> None:
    """What waits for the commit takes of the transaction's octets: else small messages hid large maps."""
    added = Modified(message_annotations={"x-opt-note": "n" * 30_000})
    limits = attrs.evolve(BrokerLimits(), transaction_bytes=17 << 20)
    count = 700  # 20 MiB of maps
    with running_broker(memory_config(limits=limits)) as small:
        with session_to(small, "producer") as session:
            send(session.attach_sender("s", "q"), *[b"x"] * count)
        with session_to(small) as session:
            control = Controller(session)
            txn_id = control.declare()
            receiver = attach_with(session, "r", source=Source(address="q"))
            assert isinstance(receiver, PeerReceiver)
            receiver.flow(count)
            got = receive(receiver, count)
            receiver.settle(got, TransactionalState(txn_id=txn_id, outcome=added), settled=False)
            state = control.discharge(txn_id)
            assert isinstance(state, Rejected) and state.error is not None
            assert "and may have" in (state.error.description or "")
            session.connection.close()
