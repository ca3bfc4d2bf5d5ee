"""Messages of which only the head is in memory (`LargeRecord`): how they go from one queue to another, and
what becomes of those that cannot be read now.

    arrival, piece by piece --Posting--> queue --assign--> source --piece by piece--> receiver
                                           |  rejected, expired, moved
                                           +--a copy of the head--> another queue: the same octets on disk

To which queues they come piece by piece: `Queue.may_stream`. To others by the broker's own hand only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.frames import Message
from amqp_broker.log_setup import logger
from amqp_broker.persistence import LargeRecord, Record, Spool
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.operations.posting import Nodes


UNREAD_S: Final = 1.0
"""After which time a message is offered again whose body could not be read: for want of descriptors, say."""
UNSYNCED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all messages on their way, but for SYNC_BYTES_MIN of each: one commit may have them all to sync, and
what others have stored stands behind it.
"""
SYNC_BYTES_MIN: Final = 1024 * 1024
"""So much of each may be written and not synced, whatever others have."""
SYNC_BYTES_MAX: Final = 4 * 1024 * 1024
"""What may be written of one and not synced before its connection waits: the system has it in memory."""
SYNCS_AT_ONCE: Final = 1
"""Files that connections have synced at once: more are no faster, and commits have less of the disk (measured
with 16 senders of 4 MiB: half a small message's time with one as with eight).
"""


class Unread:
    """Messages whose bodies could not be read when they were being sent, for a reason that may pass: for a
    while nobody has them, then they are offered again.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._waiting: list[tuple[Queue, Record]] = []
        self._log = logger("nodes")

    def enter(self, queue: Queue, record: Record, why: str) -> None:
        """Nobody has the message from now on."""
        self._log.warning("message.unread", queue=queue.name, offset=record.offset, reason=why)
        queue.keep_in_sight((record,))
        self._waiting.append((queue, record))
        self._nodes.timers.set(trio.current_time() + UNREAD_S, self)

    def wake(self) -> None:
        """They are in their places again."""
        waiting, self._waiting = self._waiting, []
        for queue, record in waiting:
            queue.end_in_sight((record,))
            if not queue.deleted:
                queue.take_back((record,))
        for queue in dict.fromkeys(queue for queue, _ in waiting):
            if not queue.deleted:
                self._nodes.pump(queue)


class SpoolRoom:
    """Octets that messages on their way to the disk may come to, of all connections. Its bound is a limit of
    now.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self.spools: set[Spool] = set()
        """Those under way."""
        self.syncs = trio.CapacityLimiter(SYNCS_AT_ONCE)
        """Of the workers that sync them: one that waits for the disk is none that others wait for."""

    def is_behind(self, spool: Spool) -> bool:
        """Whether the disk is behind with one of them, so that its connection waits."""
        if spool.unsynced < SYNC_BYTES_MIN:
            return False
        return spool.unsynced >= SYNC_BYTES_MAX or self.unsynced_bytes >= UNSYNCED_BYTES_MAX

    @property
    def unsynced_bytes(self) -> int:
        """What all of them have written since each was synced."""
        return sum([spool.unsynced for spool in self.spools])


def brought(target: Queue, former: Record, copy: Record) -> Record:
    """`copy`, which comes to `target`, of a message that leaves another queue. The octets of a large one stay
    where they are, also where the copy is not stored: as long as it is in memory nobody removes their file.
    """
    if not isinstance(former, LargeRecord):
        return copy
    if copy.body != former.tail.head:
        copy.annotations = copy.body[: Message(copy.body).after_message_annotations_offset]
    target.large = True
    return LargeRecord(copy, former.tail)
