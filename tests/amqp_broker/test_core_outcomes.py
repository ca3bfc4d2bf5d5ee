"""Outcomes given twice, refused, or to a full store: nothing is lost, nothing comes back, counts hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import (
    Accepted,
    Disposition,
    Message,
    Modified,
    Released,
    Source,
    Symbol,
)
from amqp_broker.queue import Consumer
from amqp_broker.testing import RunningBroker, ScriptedFaults, memory_config, running_broker
from amqp_broker.testing.peer import Delivery, Outcome, PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import (
    attach_with,
    bodies,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)

RECEIVER_ROLE = True


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


def dispose(session: PeerSession, delivery: Delivery, state: Outcome | None, *, settled: bool) -> None:
    """One disposition, whatever was said before."""
    session.put(
        Disposition(
            role=RECEIVER_ROLE,
            first=delivery.delivery_id,
            last=delivery.delivery_id,
            settled=settled,
            state=state,
        )
    )


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("second", [Accepted(), Released()])
def test_an_outcome_holds_when_another_follows(broker: RunningBroker, durable: bool, second: Outcome) -> None:
    """A receiver that told accepted and then settles itself does not change the message's fate (2.6.12)."""
    name = f"twice-{durable}-{type(second).__name__}"
    with session_to(broker) as session:
        send(session.attach_sender("s", name), b"1", b"2", durable=durable)
        receiver = session.attach_receiver("r", name, credit=5)
        got = receive(receiver, 2)
        dispose(session, got[0], Accepted(), settled=False)
        dispose(session, got[0], second, settled=True)
        settle_down(broker, session)
        assert not receiver.deliveries
        assert counts(broker, name)[0] == 1


def test_an_outcome_that_is_not_offered_leaves_the_message(broker: RunningBroker) -> None:
    """A link whose source offers accepted only is detached for another outcome; its messages come back."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "offered"), b"1", b"2")
        source = Source(address="offered", outcomes=("amqp:accepted:list",))
        receiver = attach_with(session, "r", source=source)
        assert isinstance(receiver, PeerReceiver)
        receiver.flow(5)
        got = receive(receiver, 2)
        dispose(session, got[0], Modified(delivery_failed=True), settled=True)
        dispose(session, got[1], Modified(delivery_failed=True), settled=False)
        with pytest.raises(PeerError):
            settle_down(broker, session)
        other = session.attach_receiver("o", "offered", credit=5)
        assert bodies(receive(other, 2)) == [b"1", b"2"]


def test_a_disposition_without_state_that_settles_nothing_changes_nothing(broker: RunningBroker) -> None:
    """Neither settled nor a state: the message stays with its receiver (2.7.6)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "stateless"), b"1")
        receiver = session.attach_receiver("r", "stateless", credit=5)
        got = receive(receiver, 1)
        dispose(session, got[0], None, settled=False)
        settle_down(broker, session)
        assert not receiver.deliveries
        receiver.settle(got, Accepted())
        settle_down(broker, session)
        assert counts(broker, "stateless") == (0, 0)


def test_messages_of_a_consumer_that_takes_its_credit_back_go_to_others(broker: RunningBroker) -> None:
    """What was assigned to a link and can not be sent any more goes to others, as if never assigned."""

    def credit_is_gone(running: Broker) -> None:
        """As when a flow is read in the same turn in which messages are assigned."""
        for task in running._connections:
            for link in task.connection.links:
                if isinstance(link.context, Consumer) and link.context.queue.name == "kept":
                    link.context.link.flow_state.credit = 0

    with session_to(broker) as session:
        idle = session.attach_receiver("idle", "kept", credit=5)
        round_trip(session)
        broker.call(credit_is_gone)
        send(session.attach_sender("s", "kept"), b"1", b"2")
        got = receive(session.attach_receiver("r", "kept", credit=5), 2)
        assert bodies(got) == [b"1", b"2"] and not idle.deliveries
        assert [Message(each.payload).header.first_acquirer for each in got] == [True, True]


def test_byte_counts_hold_when_annotations_were_stored(tmp_path: Path) -> None:
    """A message whose annotations a consumer changed counts the same after a restart, and then 0."""
    config = BrokerConfig(data_dir=str(tmp_path / "data"), listeners=memory_config().listeners)
    with running_broker(config) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "bytes"), b"1", b"2", durable=True)
        receiver = session.attach_receiver("r", "bytes", credit=1)
        receiver.settle(receive(receiver, 1), Modified(message_annotations={"x-opt-seen": "a" * 50}))
        settle_down(broker, session)
        before = counts(broker, "bytes")
    with running_broker(config) as broker, session_to(broker) as session:
        receiver = session.attach_receiver("r", "bytes", credit=2)
        got = receive(receiver, 2)
        assert Message(got[0].payload).message_annotations == {Symbol("x-opt-seen"): "a" * 50}
        assert counts(broker, "bytes") == before
        receiver.settle(got, Accepted())
        settle_down(broker, session)
        assert counts(broker, "bytes") == (0, 0)


def test_accepted_messages_stay_gone_when_the_disk_is_full(tmp_path: Path) -> None:
    """A retirement that finds no room is tried again; nothing that was accepted is delivered once more."""
    faults = ScriptedFaults()
    config = BrokerConfig(data_dir=str(tmp_path / "data"), listeners=memory_config().listeners)
    with running_broker(config, faults=faults) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "tight"), b"1", b"2", durable=True)
        receiver = session.attach_receiver("r", "tight", credit=5)
        got = receive(receiver, 2)
        faults.refuse_commit(1, count=3)
        receiver.settle(got[:1], Accepted())
        receiver.settle(got[1:], Accepted(), settled=False)
        session.connection.pump_until(lambda: receiver.confirmed)
        settle_down(broker, session)
        assert not receiver.deliveries
        assert counts(broker, "tight") == (0, 0)
    with running_broker(config) as broker, session_to(broker) as session:
        receiver = session.attach_receiver("r", "tight", credit=5)
        settle_down(broker, session)
        assert not receiver.deliveries


def test_good_messages_before_a_malformed_one_are_kept(broker: RunningBroker) -> None:
    """A settled message that misrepresents its sections ends its link; what came before it is stored."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "before")
        session.connection.pump_until(lambda: sender.credit >= 4)
        for index in range(3):
            sender.send(message(b"%d" % index), settled=True)
        sender.send(b"\x00\x53\x75\xa0\xffshort", settled=True)
        with pytest.raises(PeerError):
            settle_down(broker, session)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "before", credit=5)
        assert bodies(receive(receiver, 3)) == [b"0", b"1", b"2"]
