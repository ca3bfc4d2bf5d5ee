"""A test suite that has a broker for each test: the pytest plugin comes with the package."""

from __future__ import annotations

import socket

from amqp_broker import RunningBroker

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"


def test_mine(amqp_broker: RunningBroker) -> None:
    """The fixture's broker is in memory, on a free port, and knows no other test's queues."""
    # Any AMQP 1.0 client would take `amqp_broker.url` here; the protocol header shows that it listens.
    with socket.create_connection((amqp_broker.host, amqp_broker.port), timeout=10) as connection:
        connection.sendall(AMQP_HEADER)
        assert connection.recv(8) == AMQP_HEADER
