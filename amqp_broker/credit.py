"""Credit of the links that post to one queue, where not all of them can have as much as they may.

    plenty: every link may have its full credit   messages + reserved + wished < max_messages
       |  ^
       |  +-- room again (`RESUME_PART`)
       +----> scarce: each credit is counted      messages + reserved + out <= max_messages

"The broker MUST NOT issue more credit than it can honour" (behaviour paper 2.3.9). `out` is what senders may
still send, and what has arrived and is not decided. That holds for messages. The octets of a message are not
known before it comes: while `max_bytes` or `max_volatile_bytes` is reached no credit is given, and what a
link has is taken back when something of it arrives. What senders were given before is taken all the same.

Nobody starves: who waits is served in turn, and credit that lies unused while others wait is asked back
(drain, 2.6.7), taken back a period later from a sender that does not answer, and free after one more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from amqp_broker.queue import Queue, Shares

if TYPE_CHECKING:
    from amqp_broker.timers import Timers


class CreditShares(Shares):
    """`idle_s` says, whenever it is asked, how long credit may lie unused."""

    __slots__ = ("_idle_s", "_queue", "_timers")

    def __init__(self, queue: Queue, timers: Timers, idle_s: Callable[[], float]) -> None:
        self._queue = queue
        self._timers = timers
        self._idle_s = idle_s

    def share(self) -> None:
        """Give what room there is to those who wait, in even parts, the longest waiting first."""
        queue = self._queue
        if not queue.scarce:
            return
        if queue.plenty():
            self._end()
            return
        waiting = queue.blocked
        room = queue.room()
        if queue.missed and room:
            room -= 1  # what was refused for lack of room has a chance
        for left in range(len(waiting), 0, -1):
            sink = waiting.pop(0)
            taken = sink.offered(-(-room // left))
            if taken < 0:
                waiting.append(sink)
            else:
                room -= taken
        self.watch()

    def watch(self) -> None:
        """Look again in a while: the credit that is out may lie unused."""
        if self._queue.producers:
            self._timers.set(trio.current_time() + self._idle_s(), self)

    def _end(self) -> None:
        """Everybody gets what it may have."""
        queue = self._queue
        queue.scarce = False
        queue.missed = 0
        waiting, queue.blocked = queue.blocked, []
        for sink in dict.fromkeys([*waiting, *queue.producers]):
            sink.unblock()

    def wake(self) -> None:
        """A period is over: what lies unused while others wait comes back."""
        queue = self._queue
        if not queue.scarce or queue.deleted:
            return
        waiting = len(queue.blocked) + (queue.missed > 0)
        for sink in list(queue.producers):
            sink.period_over(waiting > (sink in queue.blocked))
        queue.missed = max(0, queue.missed - 1)
        self.share()
