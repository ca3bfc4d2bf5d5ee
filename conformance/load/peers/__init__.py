"""Other brokers to be compared with, each a declared value; nothing outside of `load` knows them."""

from __future__ import annotations

from typing import Final

from amqp_broker.conformance.load.peers.activemq import ACTIVEMQ
from amqp_broker.conformance.load.peers.artemis import ARTEMIS
from amqp_broker.conformance.load.peers.broker_j import BROKER_J
from amqp_broker.conformance.load.peers.peer import NotThereError, Peer, RunningPeer, running_peer
from amqp_broker.conformance.load.peers.rabbitmq import RABBITMQ

PEERS: Final = {peer.name: peer for peer in (ACTIVEMQ, ARTEMIS, BROKER_J, RABBITMQ)}

__all__ = ["PEERS", "NotThereError", "Peer", "RunningPeer", "running_peer"]
