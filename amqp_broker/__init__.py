"""An AMQP 1.0 broker, to run or to embed::

    async with open_broker(BrokerConfig(memory=True)) as broker:                  # trio
        await broker.serve_tcp("127.0.0.1", 0)

    with running_broker() as broker:              # any test suite, any framework: a thread, an ephemeral port
        connect(broker.url)                       # our own client; any AMQP 1.0 client will do

Names are loaded when they are used (PEP 562): a program that wants `amqp_broker.frames` loads neither trio
nor the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.lazy_names import lazy_names
from amqp_broker.version import VERSION as __version__

if TYPE_CHECKING:
    from amqp_broker.broker import Broker, open_broker
    from amqp_broker.client import (
        BlockingTransactionProducer,
        Resolution,
        TransactionProducer,
        connect,
        message,
        open_client,
    )
    from amqp_broker.configuration import BrokerConfig, BrokerLimits, ConfigurationError, ListenerConfig
    from amqp_broker.embedding import RunningBroker, running_broker

__all__ = [
    "BlockingTransactionProducer",
    "Broker",
    "BrokerConfig",
    "BrokerLimits",
    "ConfigurationError",
    "ListenerConfig",
    "Resolution",
    "RunningBroker",
    "TransactionProducer",
    "__version__",
    "connect",
    "message",
    "open_broker",
    "open_client",
    "running_broker",
]

__getattr__, __dir__ = lazy_names(__name__, {
    "broker": ("Broker", "open_broker"),
    "client": (
        "BlockingTransactionProducer", "Resolution", "TransactionProducer", "connect", "message",
        "open_client",
    ),
    "configuration": ("BrokerConfig", "BrokerLimits", "ConfigurationError", "ListenerConfig"),
    "embedding": ("RunningBroker", "running_broker"),
})  # fmt: skip
