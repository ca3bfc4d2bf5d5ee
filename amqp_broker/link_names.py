"""Which link holds a name: a link is known by the two containers, its name and its direction (2.6.1).

A client that reconnects while the broker still holds its old connection attaches the same link again: the new
one succeeds, and the old one is closed with `amqp:link:stolen`. On one connection the engine does this by
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.frames import Error

if TYPE_CHECKING:
    from amqp_broker.nodes.ends import Sink, Source

Key = tuple[str, str, bool, str]


class LinkNames:
    """What stands behind the attached links of all connections, by user, container-id, direction and name."""

    def __init__(self) -> None:
        self._attached: dict[Key, Sink | Source] = {}

    def take(self, key: Key, context: Sink | Source) -> None:
        """`context` holds the name now; whoever held it on another connection loses its link."""
        former = self._attached.get(key)
        self._attached[key] = context
        if former is not None and former.connection is not context.connection:
            description = f"container {key[1]!r} attached {key[3]!r} on another connection"
            former.end(Error(condition="amqp:link:stolen", description=description))

    def release(self, key: Key, context: Sink | Source | None) -> None:
        """The link of `context` is gone; its name is free unless another link took it."""
        if context is not None and self._attached.get(key) is context:
            del self._attached[key]
