"""A connection without a task: what it is left to do waits until a test reads its mail."""

from __future__ import annotations

from amqp_broker.connection import Connection
from amqp_broker.link_names import LinkNames
from amqp_broker.links import Connection as Engine
from amqp_broker.links import ConnectionSettings, SenderLink, Session
from amqp_broker.log_setup import logger


def connection_by_hand(engine: Engine | None = None) -> Connection:
    """One with this engine, or with one that nobody talks to."""
    engine = engine or Engine(ConnectionSettings(), 0.0)
    return Connection(engine, LinkNames(), logger("tests"), lambda: None)


def idle_link(connection: Connection) -> SenderLink:
    """A link that nobody attached: a queue only keeps it."""
    return SenderLink(Session(connection.engine, 0), "link", 0)
