"""Where a scripted fault can enter a broker: around its store, its streams, and what handles the events of
its connections.

Production has none (`faults=None`).  `amqp_broker.testing.ScriptedFaults` is the implementation that tests
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from amqp_broker.persistence import Store

if TYPE_CHECKING:
    from amqp_broker.connection_task import ConnectionTask


class Faults(Protocol):
    """What `open_broker(config, faults=...)` takes."""

    def wrap_store(self, store: Store) -> Store:
        """The store that the writer gets instead of `store`.  Called once, before recovery."""

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The stream that a connection task gets instead of `stream`.  Called for each connection."""

    def watch(self, task: ConnectionTask, stream: trio.abc.Stream) -> None:
        """A connection begins on a stream of `wrap_stream`; `task.wrap_handler` gets between the engine's
        events and those who handle them.
        """
