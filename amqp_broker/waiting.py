"""What waits for a time, and where messages wait until they come: a hook of queues."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.compilation import mypyc_attr
from amqp_broker.persistence import Record, Unit

if TYPE_CHECKING:
    from amqp_broker.links import Account

NUMBER_BITS: Final = 64
ENTRY_BYTES: Final = 48  # of one that waits: a whole number of 96 bits and its place in the heap
NEVER: Final = 1 << 62


class Waiting:
    """Numbers below 2^64 that wait, each until its time: the earliest first, of one time the smallest. Pure;
    times are milliseconds of the broker's clock.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, number: int, at_ms: int) -> None:
        """A number waits until then."""
        heappush(self._heap, at_ms << NUMBER_BITS | number)

    def next_ms(self) -> int:
        """When the first one is due, or NEVER."""
        return self._heap[0] >> NUMBER_BITS if self._heap else NEVER

    def take_due(self, now_ms: int, most: int = NEVER) -> list[tuple[int, int]]:
        """At most so many that are due, in their order, each with its time; they wait no longer."""
        due: list[tuple[int, int]] = []
        heap = self._heap
        end = now_ms + 1 << NUMBER_BITS
        while heap and heap[0] < end and len(due) < most:
            entry = heappop(heap)
            due.append((entry >> NUMBER_BITS, entry & (1 << NUMBER_BITS) - 1))
        return due

    def clear(self) -> None:
        """Nothing waits any more."""
        self._heap.clear()


@mypyc_attr(allow_interpreted_subclasses=True)
class Delays:
    """Where messages wait that come later (`Record.due_at_ms`): one place for all queues, in the store beside
    them, so that a queue never sees what waits. They keep their room in their queue, and come behind what it
    has by then. Without a feature that fills it nothing waits.
    """

    def make_ready(self) -> bool:
        """Have the place made in the store; it stands before what is submitted after this. False: nothing
        waits here.
        """
        return False

    def number(self, records: Sequence[Record]) -> None:
        """Give messages their numbers in this place. Raises NotYet where it is not there yet. A number that
        nobody uses is never used again, so nothing has to be taken back.
        """

    def post_verbs(self, queue: Any, records: Sequence[Record]) -> Unit:
        """What the store has to take of numbered messages."""
        return []

    def enter(self, queue: Any, records: Sequence[Record], account: Account | None) -> None:
        """They wait from now on: their commit has returned. What only memory has is kept for `account`, or
        the broker itself.
        """

    def forget(self, queue: Any) -> None:
        """The queue is gone, with all that waits for it."""


NO_DELAYS: Final = Delays()
