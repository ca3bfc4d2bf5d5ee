"""Room `links`: connections, sessions and links as machines without I/O (parts 2 and 5.3). It works for both
sides.
"""

from amqp_broker.links.connection import Connection
from amqp_broker.links.connection_states import ConnectionState
from amqp_broker.links.deliveries import Delivery, OutgoingDelivery, Sendable, in_words
from amqp_broker.links.errors import LocalProtocolError, RemoteProtocolError, Scope
from amqp_broker.links.events import (
    AttachReceived,
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    Event,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    LinkLeaving,
    OutcomesLost,
    OutcomesReceived,
    SaslChallengeReceived,
    SaslInitReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
    SaslResponseReceived,
    SessionBegun,
    SessionEnded,
    WorkLost,
)
from amqp_broker.links.limits import Limits, OperationRate, PartialBytes
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.memory_budget import SETTING as MEMORY_SETTING
from amqp_broker.links.memory_budget import Account, Holdings, MemoryBudget, no_memory
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.sender_link import SenderLink
from amqp_broker.links.session import Session
from amqp_broker.links.session_states import SessionState
from amqp_broker.links.settings import ConnectionSettings

__all__ = [
    "MEMORY_SETTING",
    "Account",
    "AttachReceived",
    "Connection",
    "ConnectionClosed",
    "ConnectionOpened",
    "ConnectionSettings",
    "ConnectionState",
    "CreditDrained",
    "CreditReceived",
    "DeliveriesReceived",
    "DeliveriesSettled",
    "Delivery",
    "Event",
    "FlowReceived",
    "Holdings",
    "Limits",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LinkLeaving",
    "LinkState",
    "LocalProtocolError",
    "MemoryBudget",
    "OperationRate",
    "OutcomesLost",
    "OutcomesReceived",
    "OutgoingDelivery",
    "PartialBytes",
    "ReceiverLink",
    "RemoteProtocolError",
    "SaslChallengeReceived",
    "SaslInitReceived",
    "SaslMechanismsReceived",
    "SaslOutcomeReceived",
    "SaslResponseReceived",
    "Scope",
    "Sendable",
    "SenderLink",
    "Session",
    "SessionBegun",
    "SessionEnded",
    "SessionState",
    "WorkLost",
    "in_words",
    "no_memory",
]
