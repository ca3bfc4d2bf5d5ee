"""Message-annotations that consumers add with modified (3.4.5): a message does not grow without a bound."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from amqp_broker.configuration import BrokerLimits
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Message,
    Modified,
    Released,
    Symbol,
    TransactionalState,
    encode_message,
)
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import counts, receive, send, session_to, settle_down
from tests.support.controllers import Controller

MOST = 1_024


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker with little room for annotations."""
    limits = attrs.evolve(BrokerLimits(), annotations_bytes=MOST)
    with running_broker(memory_config(limits=limits)) as running:
        yield running


def modified(key: str, size: int = 200) -> Modified:
    """A try that leaves a note."""
    return Modified(delivery_failed=True, message_annotations={f"x-opt-{key}": "n" * size})


def tries(session: PeerSession, receiver: PeerReceiver, *keys: str) -> None:
    """One try after another, each told under its own key."""
    for key in keys:
        receiver.flow(1)
        receiver.settle(receive(receiver, 1), modified(key))
    session.flow(echo=True)


@pytest.mark.parametrize("settled", [True, False])
def test_annotations_stop_at_their_bound(broker: RunningBroker, settled: bool) -> None:
    """Beyond it the link ends and says why; the message keeps what it had, and the try is counted."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"body", durable=True)
        receiver = session.attach_receiver("r", "q")
        tries(session, receiver, "1", "2", "3", "4")
        receiver.flow(1)
        got = receive(receiver, 1)
        with pytest.raises(PeerError, match="resource-limit-exceeded.*1024 octets"):
            receiver.settle(got, modified("5"), settled=settled)
            session.connection.pump_until(lambda: receiver.detached)
    with session_to(broker, "next") as session:
        receiver = session.attach_receiver("r", "q", credit=1)
        (again,) = receive(receiver, 1)
        found = Message(again.payload)
        assert set(found.message_annotations or {}) == {Symbol(f"x-opt-{key}") for key in "1234"}
        assert found.header.delivery_count == 5
        receiver.settle([again], Accepted())
        settle_down(broker, session)
        assert counts(broker, "q") == (0, 0)


def test_what_replaces_is_no_growth(broker: RunningBroker) -> None:
    """The same key again and again, and a message that came with nearly all that there may be."""
    large = encode_message(message_annotations={Symbol("x-opt-mine"): "m" * 950}, body=b"large")
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, b"small")
        receiver = session.attach_receiver("r", "q")
        tries(session, receiver, "1", "2", "3", "4", *["4"] * 20)
        receiver.flow(1)
        receiver.settle(receive(receiver, 1), Accepted())
        session.connection.pump_until(lambda: sender.may_send)
        sender.send(large)
        receiver.flow(1)
        receiver.settle(receive(receiver, 1), modified("mine", 940))
        receiver.flow(1)
        (last,) = receive(receiver, 1)
        assert Message(last.payload).message_annotations == {Symbol("x-opt-mine"): "n" * 940}


def test_in_a_transaction_it_is_told_at_once(broker: RunningBroker) -> None:
    """Not at the discharge, which would have to fail for it."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"body", durable=True)
        controller = Controller(session)
        receiver = session.attach_receiver("r", "q", credit=1)
        got = receive(receiver, 1)
        state = TransactionalState(txn_id=controller.declare(), outcome=modified("much", 2_000))
        with pytest.raises(PeerError, match="resource-limit-exceeded"):
            receiver.settle(got, state, settled=False)
            session.connection.pump_until(lambda: receiver.detached)
    with session_to(broker, "next") as session:
        receiver = session.attach_receiver("r", "q", credit=1)
        (again,) = receive(receiver, 1)
        assert Message(again.payload).message_annotations is None
        receiver.settle([again], Released())
