"""Room `links`: connections, sessions and links as machines without I/O (parts 2 and 5.3). It works for both
sides.
"""

from amqp_broker.frames.hot_frames import Delivery
from amqp_broker.links.connection import Connection
from amqp_broker.links.deliveries import OutgoingDelivery, PartialDelivery, TaggedDelivery, in_words
from amqp_broker.links.errors import LocalProtocolError
from amqp_broker.links.events import (
    AttachReceived,
    BodyLost,
    BodySent,
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    DeliveryResumed,
    Event,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    LinkLeaving,
    OutcomesLost,
    OutcomesReceived,
    PartReceived,
    RunsReceived,
    SaslChallengeReceived,
    SaslInitReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
    SaslResponseReceived,
    SessionBegun,
    SessionEnded,
    StreamLost,
    StreamReceived,
    WorkLost,
)
from amqp_broker.links.limits import Limits, OperationRate, PartialBytes
from amqp_broker.links.memory_budget import Account, Holdings, MemoryBudget, no_memory
from amqp_broker.links.output import Piece
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.refusals import LOGIN, RIGHTS, Refusals
from amqp_broker.links.resuming import RESUMPTIONS, Known, Resumption, resumption_of
from amqp_broker.links.sender_link import LARGEST_FRAME_BYTES, SenderLink
from amqp_broker.links.session import Session
from amqp_broker.links.settings import ConnectionSettings

__all__ = [
    "Account", "AttachReceived", "BodyLost", "BodySent", "Connection", "ConnectionClosed", "ConnectionOpened",
    "ConnectionSettings", "CreditDrained", "CreditReceived", "DeliveriesReceived", "DeliveriesSettled",
    "Delivery", "DeliveryResumed", "Event", "FlowReceived", "Holdings", "Known", "LARGEST_FRAME_BYTES",
    "LOGIN", "Limits", "LinkAttached", "LinkDetached", "LinkLeaving", "LocalProtocolError", "MemoryBudget",
    "OperationRate", "OutcomesLost", "OutcomesReceived", "OutgoingDelivery", "PartReceived", "PartialBytes",
    "PartialDelivery", "Piece", "RESUMPTIONS", "RIGHTS",
    "ReceiverLink", "Refusals", "Resumption", "RunsReceived",
    "SaslChallengeReceived", "SaslInitReceived", "SaslMechanismsReceived", "SaslOutcomeReceived",
    "SaslResponseReceived",
    "SenderLink", "Session", "SessionBegun", "SessionEnded", "StreamLost", "StreamReceived",
    "TaggedDelivery", "WorkLost", "in_words",
    "no_memory", "resumption_of",
]  # fmt: skip
