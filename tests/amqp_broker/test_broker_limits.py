"""Bounds of the broker as a whole: nodes and connections."""

from __future__ import annotations

import pytest

from amqp_broker.configuration import BrokerLimits
from amqp_broker.testing import memory_config, running_broker
from tests.support.wire_client import ConnectionLost, PeerError, WireConnection


def test_no_more_nodes_than_max_nodes() -> None:
    """A queue beyond the bound is refused with amqp:resource-limit-exceeded; those that exist go on."""
    with running_broker(memory_config(limits=BrokerLimits(max_nodes=1))) as broker:
        with WireConnection.connect(broker.host, broker.port) as connection:
            session = connection.begin()
            session.attach_sender("first", "one")
            with pytest.raises(PeerError) as caught:
                session.attach_sender("second", "two")
            assert caught.value.error is not None
            assert caught.value.error.condition == "amqp:resource-limit-exceeded"
            session.attach_receiver("third", "one")


def test_no_more_connections_than_max_connections() -> None:
    """A socket beyond the bound is closed at once, and the connection before it lives on."""
    with running_broker(memory_config(limits=BrokerLimits(max_connections=1))) as broker:
        with WireConnection.connect(broker.host, broker.port) as connection:
            with pytest.raises(ConnectionLost):
                WireConnection.connect(broker.host, broker.port, container_id="second")
            connection.begin()
