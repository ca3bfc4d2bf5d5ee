"""A small client over our own engine: blocking, for scripts and executors, or for asyncio and trio::

    with connect(url) as connection:                       # no event loop
        connection.open_sender("orders").send("one pair of shoes")

    async with open_client(url) as client:                 # asyncio, or trio
        await (await client.open_sender("orders")).send("one pair of shoes")

Any AMQP 1.0 broker will do; half messages (`producer`) need this one. The modules `core...` and `halves` are
the machine without I/O, the others are shells around it. Names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.lazy_names import lazy_names

if TYPE_CHECKING:
    from amqp_broker.client.async_client import Client, Session, open_client
    from amqp_broker.client.async_links import Receiver, Sender
    from amqp_broker.client.async_producer import TransactionProducer, open_producer
    from amqp_broker.client.blocking import BlockingConnection, BlockingSession, connect
    from amqp_broker.client.blocking_links import BlockingReceiver, BlockingSender
    from amqp_broker.client.blocking_producer import BlockingTransactionProducer
    from amqp_broker.client.blocking_requests import BlockingRequester
    from amqp_broker.client.core import ClientCore
    from amqp_broker.client.errors import (
        ClientError,
        ConnectFailed,
        ConnectionGone,
        Gone,
        LinkGone,
        LinkRefused,
        LoginRefused,
        MessageRefused,
        OutcomeUnknown,
        SessionGone,
        WaitTimeout,
        WrongUse,
    )
    from amqp_broker.client.half_errors import (
        HalfConflict,
        HalfIdConflict,
        HalfNotSupported,
        HalfRefused,
        HalfUnknown,
    )
    from amqp_broker.client.halves import Half, Receipt, Resolution
    from amqp_broker.client.messages import OutgoingMessage, ReceivedMessage, message
    from amqp_broker.client.settings import ClientSettings, Endpoint, parse_url
    from amqp_broker.frames import plain_value

__all__ = [
    "BlockingConnection",
    "BlockingReceiver",
    "BlockingRequester",
    "BlockingSender",
    "BlockingSession",
    "BlockingTransactionProducer",
    "Client",
    "ClientCore",
    "ClientError",
    "ClientSettings",
    "ConnectFailed",
    "ConnectionGone",
    "Endpoint",
    "Gone",
    "Half",
    "HalfConflict",
    "HalfIdConflict",
    "HalfNotSupported",
    "HalfRefused",
    "HalfUnknown",
    "LinkGone",
    "LinkRefused",
    "LoginRefused",
    "MessageRefused",
    "OutcomeUnknown",
    "OutgoingMessage",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "Resolution",
    "Sender",
    "Session",
    "SessionGone",
    "TransactionProducer",
    "WaitTimeout",
    "WrongUse",
    "connect",
    "message",
    "open_client",
    "open_producer",
    "parse_url",
    "plain_value",
]

__getattr__, __dir__ = lazy_names(__name__, {
    "client.blocking": ("BlockingConnection", "BlockingSession", "connect"),
    "client.blocking_links": ("BlockingReceiver", "BlockingSender"),
    "client.blocking_producer": ("BlockingTransactionProducer",),
    "client.blocking_requests": ("BlockingRequester",),
    "client.core": ("ClientCore",),
    "client.errors": (
        "ClientError", "ConnectFailed", "ConnectionGone", "Gone", "LinkGone", "LinkRefused", "LoginRefused",
        "MessageRefused", "OutcomeUnknown", "SessionGone", "WaitTimeout", "WrongUse",
    ),
    "client.half_errors": (
        "HalfConflict", "HalfIdConflict", "HalfNotSupported", "HalfRefused", "HalfUnknown",
    ),
    "client.halves": ("Half", "Receipt", "Resolution"),
    "client.messages": ("OutgoingMessage", "ReceivedMessage", "message"),
    "client.settings": ("ClientSettings", "Endpoint", "parse_url"),
    "client.async_client": ("Client", "Session", "open_client"),
    "client.async_links": ("Receiver", "Sender"),
    "client.async_producer": ("TransactionProducer", "open_producer"),
    "frames": ("plain_value",),
})  # fmt: skip
