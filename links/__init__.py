"""Room `links`: connections, sessions and links as machines without I/O (parts 2 and 5.3). It works for both sides."""

from .connection import Connection
from .connection_states import ConnectionState
from .deliveries import Delivery, OutgoingDelivery, Sendable
from .errors import LocalProtocolError, RemoteProtocolError, Scope
from .events import (
    AttachReceived,
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    Event,
    LinkAttached,
    LinkDetached,
    OutcomesReceived,
    SaslChallengeReceived,
    SaslInitReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
    SaslResponseReceived,
    SessionBegun,
    SessionEnded,
)
from .limits import Limits, PartialBytes
from .link import Link
from .link_states import LinkState
from .receiver_link import ReceiverLink
from .sender_link import SenderLink
from .session import Session
from .session_states import SessionState
from .settings import ConnectionSettings

__all__ = [
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
    "Limits",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LinkState",
    "LocalProtocolError",
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
    "ConnectionSettings",
]
