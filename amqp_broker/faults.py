"""Where a scripted fault can enter a broker: around its store and around each of its streams.

Production has none (`faults=None`).  `amqp_broker.testing.ScriptedFaults` is the implementation that tests
use.
"""

from __future__ import annotations

from typing import Protocol

import trio

from amqp_broker.persistence import Store


class Faults(Protocol):
    """What `open_broker(config, faults=...)` takes."""

    def wrap_store(self, store: Store) -> Store:
        """The store that the writer gets instead of `store`.  Called once, before recovery."""

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The stream that a connection task gets instead of `stream`.  Called for each connection."""
