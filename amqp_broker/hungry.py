"""Links that want messages: who was served least is first, of equals who has waited longest. Pure.

    ask --enter--> entries, ordered by what their links were served --take--> serve: it gets a run
                     ^                                                           |
                     +----------------- put_back, while it wants more -----------+--> out, until it asks again

With one message at a time that is a ring: taken from the left, put back at the right. Runs may differ in
length, and still nobody gets ahead by more than two runs of another who always wanted more. Who comes, or
comes back, stands where the others are: it has nothing to catch up. Nobody who wants nothing is touched, but
once after it stopped to want.

A run costs a turn of a connection, whatever its length. So in a stream runs get longer: at 150,000 a second
a link gets a hundred at a time, and `RUNS_PER_S` links are served in a second. The stream has to last, since
runs at most double with each `LOOK_MS`; single messages and batches go round one by one.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final

from amqp_broker.compilation import mypyc_attr

RUNS_PER_S: Final = 1_500  # of 80 us (settled) to 170 us (durable): an eighth to a quarter of the time
RUN_MESSAGES: Final = 256  # a longer run gains little: the turn is a small part of its cost by then
LOOK_MS: Final = 50  # over which it is seen how fast messages come
_STALE: Final = 16  # entries of links that are gone, beside as many of others, before they are left out


@mypyc_attr(allow_interpreted_subclasses=True)
class Hungry:
    """A link that stands here has `demand`, how many messages it could be sent now; `served`, how many it was
    given; `place`, the number of its entry (0: none), and this as its `standing`.
    """

    __slots__ = (
        "_entries", "_given", "_gone", "_most", "_number", "_since_ms",
        "asked", "least", "members", "priority",
    )  # fmt: skip

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority
        self.members = 0
        self.asked = False
        """Whether a link began to want something since this was last set to False."""
        self.least = 1
        """How long a run is at least, now."""
        self._entries: list[tuple[int, int, Any]] = []
        self._gone = 0
        self._number = 0
        self._most = 0  # that any link was served
        self._given = 0
        self._since_ms = 0

    def __len__(self) -> int:
        return len(self._entries) - self._gone

    def join(self, link: Any) -> None:
        """A link stands here from now on; each does so once."""
        link.standing = self
        self.members += 1

    def leave(self, link: Any) -> None:
        """It does so no longer."""
        link.standing = None
        self.members -= 1
        if link.place:
            link.place = 0
            self._gone += 1
            if self._gone > _STALE and self._gone * 2 > len(self._entries):
                self._entries = [entry for entry in self._entries if entry[2].place == entry[1]]
                heapify(self._entries)
                self._gone = 0

    def enter(self, link: Any) -> None:
        """A link that wanted nothing wants something."""
        self.asked = True
        if not link.place:
            others = self._entries[0][0] if self.wants() else self._most
            if link.served < others:
                link.served = others
            self._push(link)

    def _push(self, link: Any) -> None:
        self._number += 1
        link.place = self._number
        heappush(self._entries, (link.served, self._number, link))

    def wants(self) -> bool:
        """Whether one of the links wants something."""
        entries = self._entries
        while entries:
            _, number, link = entries[0]
            if link.place != number:
                self._gone -= 1
            elif link.demand > 0:
                return True
            else:
                link.place = 0
            heappop(entries)
        return False

    def take(self) -> Any:
        """The link that is next, which is to be put back; None where nobody wants anything."""
        entries = self._entries
        while entries:
            served, number, link = heappop(entries)
            if link.place != number:
                self._gone -= 1
                continue
            link.place = 0
            if link.demand > 0:
                if link.served > served:  # it was given something that was for it alone
                    self._push(link)
                    continue
                return link
        return None

    def serve(self, link: Any, count: int) -> None:
        """A link, taken or not, gets so many messages."""
        link.demand -= count
        link.served += count
        if link.served > self._most:
            self._most = link.served
        self._given += count

    def put_back(self, taken: list[Any]) -> None:
        """What was taken stands here again, as far as it wants more."""
        for link in taken:
            if link.demand > 0:
                self._push(link)

    def links(self) -> list[Any]:
        """All that want something, in no order."""
        return [link for _, number, link in self._entries if link.place == number and link.demand > 0]

    def at(self, now_ms: int) -> None:
        """It is `now_ms` by any clock; where that jumps, runs are short for a while."""
        passed = now_ms - self._since_ms
        if 0 <= passed < LOOK_MS:
            return
        longest = min(2 * self.least, RUN_MESSAGES) if 0 < passed < 2 * LOOK_MS else 1
        self.least = max(1, min(longest, self._given * 1_000 // (RUNS_PER_S * max(passed, 1))))
        self._since_ms = now_ms
        self._given = 0
