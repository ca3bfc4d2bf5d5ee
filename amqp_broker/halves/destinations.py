"""Which queues take half messages, staged in sets or put one by one: asked at the attach, and again at the
commit, since the configuration may be another one by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp_broker.configuration import NORMAL_MESSAGES, SEQUENCE_REQUIRED
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.queues import PLACES_ONLY

if TYPE_CHECKING:
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Site

NO_PLACE: Final = f"{PLACES_ONLY}, which half messages have not"


def check_destination(site: Site) -> None:
    """Raises NodeRefused, amqp:not-allowed: the queue there takes no half messages, and why."""
    if site.policy.message_type == NORMAL_MESSAGES:
        reason = "has message_type normal: it takes no half messages"
    elif site.policy.sequence == SEQUENCE_REQUIRED:
        reason = NO_PLACE
    else:
        return
    raise NodeRefused("amqp:not-allowed", f"queue {site.name!r} {reason}")


def why_elsewhere(destination: str, queue: Queue | None) -> str:
    """Why a committed half message goes to the dead letters and not to its destination; `queue` is what that
    is now. Empty: it goes there.
    """
    if queue is None or queue.deleted:
        return f"queue {destination!r} is gone"
    if queue.sequences.required:
        return f"queue {destination!r} {NO_PLACE}"
    return ""
