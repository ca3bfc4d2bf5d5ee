"""Which link holds a name: a link is known by the two containers, its name and its direction (2.6.1).

A client that reconnects while the broker still holds its old connection attaches the same link again: the new
one succeeds, and the old one is closed with `amqp:link:stolen`. On one connection the engine does this by
itself.
"""

from __future__ import annotations

from typing import Any

Key = tuple[str, str, bool, str]


class LinkNames:
    """What stands behind the attached links of all connections, by user, container-id, direction and name."""

    def __init__(self) -> None:
        self._attached: dict[Key, object] = {}

    def take(self, key: Key, context: object) -> Any:
        """`context` holds the name now: who held it before, or None."""
        former = self._attached.get(key)
        self._attached[key] = context
        return former

    def release(self, key: Key, context: object) -> None:
        """The link of `context` is gone; its name is free unless another link took it."""
        if context is not None and self._attached.get(key) is context:
            del self._attached[key]
