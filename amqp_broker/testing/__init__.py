"""Helpers for tests against an embedded broker: memory streams, virtual time, scripted faults, frame traces::

    async with open_broker(memory_config()) as broker, connected(broker) as stream:
        ...                                       # no socket at all

    faults = ScriptedFaults()
    faults.fail_commit(3)
    with running_broker(faults=faults) as broker:
        ...

The pytest plugin (fixture `amqp_broker`) is loaded by itself where pytest runs.  Names are loaded when they
are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqp_broker.embedding import RunningBroker, memory_config, running_broker
    from amqp_broker.testing.clock import run_with_virtual_clock
    from amqp_broker.testing.scripted_faults import ScriptedFaults
    from amqp_broker.testing.store_suite import run_store_suite
    from amqp_broker.testing.streams import connected
    from amqp_broker.testing.traces import FrameTrace, TracedFrame

__all__ = [
    "FrameTrace",
    "RunningBroker",
    "ScriptedFaults",
    "TracedFrame",
    "connected",
    "memory_config",
    "run_store_suite",
    "run_with_virtual_clock",
    "running_broker",
]

_HOMES = {
    "FrameTrace": "amqp_broker.testing.traces",
    "RunningBroker": "amqp_broker.embedding",
    "ScriptedFaults": "amqp_broker.testing.scripted_faults",
    "TracedFrame": "amqp_broker.testing.traces",
    "connected": "amqp_broker.testing.streams",
    "memory_config": "amqp_broker.embedding",
    "run_store_suite": "amqp_broker.testing.store_suite",
    "run_with_virtual_clock": "amqp_broker.testing.clock",
    "running_broker": "amqp_broker.embedding",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
