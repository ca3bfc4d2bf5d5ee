"""Bounds of the broker as a whole: nodes and connections."""

from __future__ import annotations

import pytest

from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerLimits, ListenerConfig
from amqp_broker.links import OperationRate
from amqp_broker.peers import PeerInfo
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from tests.support.by_hand import Served, at_hand, in_trio


@at_hand(max_nodes=1)
async def test_no_more_nodes_than_max_nodes(at: Served) -> None:
    """A queue beyond the bound is refused with amqp:resource-limit-exceeded; those that exist go on."""
    await at.sender("one")
    await at.sender("two", "second")
    assert at.condition() == "amqp:resource-limit-exceeded"
    assert (await at.receiver("one")).attached


def test_no_more_connections_than_max_connections() -> None:
    """A socket beyond the bound is closed at once, and the connection before it lives on."""
    with running_broker(memory_config(limits=BrokerLimits(max_connections=1))) as broker:
        with BlockingPeer.connect(broker.host, broker.port) as connection:
            with pytest.raises(ConnectionLost):
                BlockingPeer.connect(broker.host, broker.port, container_id="second")
            connection.begin()


@in_trio
async def test_a_connection_is_given_what_is_configured() -> None:
    """The engine's limits are those of the configuration, and the rate is that of the peer's address."""
    limits = BrokerLimits(
        max_sessions=7, max_links_per_session=5, max_links_per_connection=9, outcome_wait_ms=70
    )
    rate = OperationRate(1.0, 1, 0.0)
    async with open_broker(memory_config(limits=limits)) as broker:
        peer = PeerInfo(ListenerConfig(), "192.0.2.1:1", "192.0.2.1", operations=rate)
        settings = broker.connection_settings(peer)
        assert settings.peer_rate is rate
        assert (settings.channel_max, settings.handle_max) == (6, 4)
        assert (settings.limits.links_per_session, settings.limits.links_per_connection) == (5, 9)
        assert settings.limits.outcome_wait_s == 0.07
