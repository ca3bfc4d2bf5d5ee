"""Helpers for tests against an embedded broker: memory streams, virtual time, scripted faults, frame traces::

    async with open_broker(memory_config()) as broker, connected(broker) as stream:
        ...                                       # no socket at all

    faults = ScriptedFaults()
    faults.fail_commit(3)
    with running_broker(faults=faults) as broker:
        ...

    class Mine(BrokerTestCase): ...               # unittest: self.broker

The pytest plugin (fixtures `amqp_broker`, `amqp_broker_factory`, `amqp_namespace`) is loaded by itself where
pytest runs.  Names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.lazy_names import lazy_names

if TYPE_CHECKING:
    from amqp_broker.embedded_clock import EmbeddedClock
    from amqp_broker.embedding import RunningBroker, memory_config, running_broker
    from amqp_broker.testing.clock import run_with_virtual_clock
    from amqp_broker.testing.message_faults import AttachFault, MessageFault
    from amqp_broker.testing.scripted_faults import ScriptedFaults
    from amqp_broker.testing.store_suite import run_store_suite
    from amqp_broker.testing.streams import connected
    from amqp_broker.testing.traces import FrameTrace, Refusal, TracedFrame
    from amqp_broker.testing.unittest_case import BrokerTestCase

__all__ = [
    "AttachFault",
    "BrokerTestCase",
    "EmbeddedClock",
    "FrameTrace",
    "MessageFault",
    "Refusal",
    "RunningBroker",
    "ScriptedFaults",
    "TracedFrame",
    "connected",
    "memory_config",
    "run_store_suite",
    "run_with_virtual_clock",
    "running_broker",
]

__getattr__, __dir__ = lazy_names(__name__, {
    "embedding": ("RunningBroker", "memory_config", "running_broker"),
    "embedded_clock": ("EmbeddedClock",),
    "testing.message_faults": ("AttachFault", "MessageFault"),
    "testing.clock": ("run_with_virtual_clock",),
    "testing.scripted_faults": ("ScriptedFaults",),
    "testing.store_suite": ("run_store_suite",),
    "testing.streams": ("connected",),
    "testing.traces": ("FrameTrace", "Refusal", "TracedFrame"),
    "testing.unittest_case": ("BrokerTestCase",),
})  # fmt: skip
