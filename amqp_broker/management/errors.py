"""Why what was asked of `$management` is not done; features raise it, too, which are loaded without that."""

from __future__ import annotations

from amqp_broker.nodes.refusals import NodeRefused


class Unmanageable(NodeRefused):
    """What was asked for can't be done: `status` is that of HTTP, which the reply has."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__("amqp:not-allowed", description)
        self.status = status
