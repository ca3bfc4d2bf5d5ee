"""A large message on its way to a queue, piece by piece, and never whole in memory.

    parts --take--> check, file --sync, now and then--> more is read      input waits for the disk
    the last one --finished--> BodyPosting --> file synced, COMMIT of the row that points to it --> available
      malformed, no room: the rest is thrown away, and the message is refused where it ends
      aborted, link gone: over: its file goes
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.delivery_times import DeliveryTimes
from amqp_broker.frames import BodyCheck, DecodeError, TransactionalState, find_body
from amqp_broker.operations.operation import OperationFault
from amqp_broker.persistence import LargeRecord, Record, StoreFull
from amqp_broker.records import record_of

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.links import PartialDelivery
    from amqp_broker.persistence import Spool
    from amqp_broker.queue import Queue

HEAD_BYTES_MAX: Final = 65_536
"""Of what is kept in memory, and copied to the row, of each large message."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class IncomingBody:
    """One message to `queue`, which begins with the sections of `head`. `error` is why it will be refused."""

    def __init__(
        self, nodes: BrokerNodes, queue: Queue, spool: Spool, head: bytes, message_format: int, sections: int
    ) -> None:
        self.error: Exception | None = None
        self.has_maps = False
        """Whether it has message-annotations or application-properties, once it has `finished`."""
        self._nodes = nodes
        self._queue = queue
        self._spool = spool
        self._head = head
        self._message_format = message_format
        self._check = BodyCheck(sections)
        self._kept_bytes = spool.most_bytes  # of the room for all
        nodes.spool_room.used_bytes += self._kept_bytes
        nodes.spool_room.spools.add(spool)
        self._over = self._finished = False
        self._syncing = 0  # workers that have the file
        self._stored: bool | None = None  # what `over` said while it was synced
        self._skip = len(head)  # of the message: what of it is stored begins otherwise
        self._write(self._record().body)

    def _record(self, with_maps: list[bytes] | None = None) -> Record:
        """The message, without its body, as if it came now; `with_maps` as of `record_of`."""
        queue, clock = self._queue, self._nodes.clock
        times = DeliveryTimes(clock.time_of)
        return record_of(
            self._head, self._message_format, clock.now_ms(), queue.queue_id, queue.persistent, with_maps,
            times,
        )  # fmt: skip

    def take(self, pieces: Sequence[bytes]) -> None:
        """The next octets of the message. They are thrown away where it will be refused."""
        if self.error is not None:
            return
        piece = b"".join(pieces)  # of one read: each by itself would be looked at, and written
        if self._skip:
            skipped = min(self._skip, len(piece))
            self._skip -= skipped
            piece = piece[skipped:]
        if piece:
            try:
                self._check.take(piece)
            except DecodeError as error:
                self._give_up(error)
            else:
                self._write(piece)

    def _write(self, piece: bytes) -> None:
        try:
            self._spool.write(piece)
        except OSError as error:
            self._give_up(_meaning(error))

    @property
    def behind(self) -> bool:
        """Whether the disk is behind: `sync` before more is taken."""
        return self.error is None and not self._syncing and self._nodes.spool_room.is_behind(self._spool)

    @property
    def footer_bytes(self) -> int:
        """Octets of its footer, which `finished` has in memory for a while."""
        return self._check.footer_bytes

    async def sync(self) -> None:
        """Wait for the disk. Its message may be complete by then, or given up."""
        if self._over:
            return
        self._syncing += 1
        try:
            await trio.to_thread.run_sync(self._spool.sync, limiter=self._nodes.spool_room.syncs)
        except OSError as error:
            if not self._finished and not self._over:  # else its commit meets it again, or nobody asks
                self._give_up(_meaning(error))
        finally:  # its connection may have ended meanwhile
            self._syncing -= 1
            if self._stored is not None and not self._syncing:
                self._end(self._stored)

    def finished(self) -> LargeRecord | None:
        """Nothing more comes: the message, whose body its commit has on the disk; None where there is an
        `error`.
        """
        if self.error is None:
            self._finished = True
            try:
                self._check.end(self._spool.last)
                self._spool.finish()
                with_maps: list[bytes] = []
                record = self._record(with_maps)
                self.has_maps = bool(with_maps)
                return LargeRecord(record, self._spool.tail(record.body))
            except DecodeError as error:
                self._give_up(error)
            except OSError as error:
                self._give_up(_meaning(error))
        return None

    def _give_up(self, error: Exception) -> None:
        """It will be refused; what is on the disk of it is not waited for."""
        self.error = error
        self.over(stored=False)

    def over(self, stored: bool) -> None:
        """It is stored, or will not be, and its file goes: the room is free. Harmless again."""
        if self._over:
            return
        self._over = True
        if self._syncing:
            self._stored = stored  # a worker has the file
        else:
            self._end(stored)

    def _end(self, stored: bool) -> None:
        self._nodes.spool_room.used_bytes -= self._kept_bytes
        self._nodes.spool_room.spools.discard(self._spool)
        self._nodes.writer.end_spool(self._spool, stored)


def _meaning(error: OSError) -> Exception:
    if error.errno in _FULL:
        return StoreFull(f"the disk is full ({error})")
    return OperationFault(f"the body of a message could not be written: {error}")


def begin_body(
    nodes: BrokerNodes, queue: Queue, concerns: Callable[[Queue, bytes], bool] | None,
    partial: PartialDelivery, most_bytes: int,
) -> IncomingBody | None:
    """The message whose first parts are there, if it need not be whole in memory: it is durable, in no
    transaction, usual in its form, `concerns` no feature, and there is a place for as much as its link was
    told that it may come to.
    """
    if isinstance(partial.state, TransactionalState):
        return None
    begin = b"".join(partial.chunks)
    body_at, sections = find_body(begin)
    used = nodes.spool_room.used_bytes + most_bytes
    if not 0 <= body_at <= HEAD_BYTES_MAX or used > nodes.config.limits.spool_bytes:
        return None
    head = begin[:body_at]
    times = DeliveryTimes(nodes.clock.time_of)
    try:
        record = record_of(
            head, partial.message_format, nodes.clock.now_ms(), queue.queue_id, queue.persistent, None, times
        )
    except DecodeError:
        return None  # the whole message is refused for it
    if not record.durable or record.due_at_ms or times.waits:
        return None
    if concerns is not None and concerns(queue, record.body):
        return None
    try:
        spool = nodes.writer.begin_spool(most_bytes)
    except OSError:
        return None
    if spool is None:
        return None
    return IncomingBody(nodes, queue, spool, head, partial.message_format, sections)
