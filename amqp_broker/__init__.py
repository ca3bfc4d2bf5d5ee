"""An AMQP 1.0 broker, to run or to embed::

    async with open_broker(BrokerConfig(memory=True)) as broker:                  # trio
        await broker.serve_tcp("127.0.0.1", 0)

    with running_broker() as broker:              # any test suite, any framework: a thread, an ephemeral port
        connect(broker.url)                       # our own client; any AMQP 1.0 client will do

Names are loaded when they are used (PEP 562): a program that wants `amqp_broker.frames` loads neither trio
nor the store.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

__version__: str

_HOMES = {
    "BlockingTransactionProducer": "amqp_broker.client",
    "Broker": "amqp_broker.broker",
    "BrokerConfig": "amqp_broker.configuration",
    "BrokerLimits": "amqp_broker.configuration",
    "ConfigurationError": "amqp_broker.configuration",
    "ListenerConfig": "amqp_broker.configuration",
    "Resolution": "amqp_broker.client",
    "RunningBroker": "amqp_broker.embedding",
    "TransactionProducer": "amqp_broker.client",
    "connect": "amqp_broker.client",
    "message": "amqp_broker.client",
    "open_broker": "amqp_broker.broker",
    "open_client": "amqp_broker.client",
    "running_broker": "amqp_broker.embedding",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("amqp-broker")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
