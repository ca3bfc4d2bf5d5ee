"""Which queues take half messages, staged in sets or put one by one: asked at the attach, and again at the
commit, since the configuration may be another one by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp_broker.configuration_tables import NORMAL_MESSAGES
from amqp_broker.queues import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.node_service import NodeService
    from amqp_broker.queue import Queue

PLACES_ONLY: Final = "takes messages with a place in a stream only, which half messages have not"


def check_destination(nodes: NodeService, queue: Queue) -> None:
    """Raises NodeRefused, amqp:not-allowed: the queue takes no half messages, and why."""
    if nodes.config.policy_of(queue.name).message_type == NORMAL_MESSAGES:
        reason = "has message_type normal: it takes no half messages"
    elif queue.sequences.required:
        reason = PLACES_ONLY
    else:
        return
    raise NodeRefused("amqp:not-allowed", f"queue {queue.name!r} {reason}")


def why_elsewhere(destination: str, queue: Queue | None) -> str:
    """Why a committed half message goes to the dead letters and not to its destination; `queue` is what that
    is now. Empty: it goes there.
    """
    if queue is None or queue.deleted:
        return f"queue {destination!r} is gone"
    if queue.sequences.required:
        return f"queue {destination!r} {PLACES_ONLY}"
    return ""
