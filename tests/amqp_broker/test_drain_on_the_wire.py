"""The receiving engine against a real broker: a drain that is taken back before its answer (2.6.7)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from amqp_broker.frames import Source, Target
from amqp_broker.links import Connection, ConnectionSettings, DeliveriesReceived, Event, ReceiverLink, Session
from amqp_broker.testing import RunningBroker, running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.support.broker_clients import send, session_to


class Engine:
    """A client that is nothing but the engine and a socket."""

    def __init__(self, broker: RunningBroker) -> None:
        self.engine = Connection(ConnectionSettings(server=False, container_id="engine", sasl=False), 0.0)
        self.events: list[Event] = []
        self.socket = socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S)
        self.engine.open()
        self.pump_until(lambda: self.engine.remote_open is not None)
        self.session: Session = self.engine.begin()
        self.pump_until(lambda: self.session.writable)

    def write(self) -> None:
        """Send what the engine has to say."""
        while chunks := self.engine.data_to_send():
            self.socket.sendall(b"".join(chunks))

    def pump_until(self, reached: Callable[[], object]) -> None:
        """Write and read until it is so."""
        self.write()
        while not reached():
            data = self.socket.recv(65_536)
            assert data, "the broker closed the connection"
            self.events.extend(self.engine.receive_data(data, 0.0))
            self.write()

    def received(self) -> int:
        """How many deliveries have come."""
        return sum(len(event.deliveries) for event in self.events if isinstance(event, DeliveriesReceived))


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker in memory."""
    with running_broker() as running:
        yield running


@pytest.mark.parametrize("answered", [False, True])
def test_messages_come_after_a_drain_that_was_taken_back(broker: RunningBroker, answered: bool) -> None:
    """The level of credit holds, whether the broker's answer to the drain is on its way already or not."""
    client = Engine(broker)
    receiver: ReceiverLink = client.session.attach_receiver("r", Source(address="q"), Target())
    client.pump_until(lambda: receiver.attached)
    receiver.flow(5, drain=True)
    if answered:
        client.write()
        with session_to(broker) as other:  # a round trip, after which the broker has answered
            send(other.attach_sender("other", "elsewhere"), b"x")
    receiver.set_credit(5)
    client.write()
    with session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"1", b"2", b"3")
    client.pump_until(lambda: client.received() == 3)
    client.socket.close()
