"""Which link holds a name: a link is known by the two containers, its name and its direction (2.6.1).

A client that reconnects while the broker still holds its old connection attaches the same link again: the new
one succeeds, and the old one is closed with `amqp:link:stolen`. On one connection the engine does this by
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.links import ReceiverLink, SenderLink

Key = tuple[str, str, bool, str]


class LinkNames:
    """The attached links of all connections, by user, container-id, direction and name."""

    def __init__(self) -> None:
        self._holders: dict[Key, tuple[LinkOwner, ReceiverLink | SenderLink]] = {}

    def take(self, key: Key, task: LinkOwner, link: ReceiverLink | SenderLink) -> None:
        """`link` holds the name now; whoever held it on another connection loses its link."""
        holder = self._holders.get(key)
        self._holders[key] = (task, link)
        if holder is not None and holder[0] is not task:
            holder[0].steal(holder[1])

    def release(self, key: Key, link: ReceiverLink | SenderLink) -> None:
        """`link` is gone; its name is free unless another link took it."""
        holder = self._holders.get(key)
        if holder is not None and holder[1] is link:
            del self._holders[key]
