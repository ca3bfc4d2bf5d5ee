"""Message groups: messages with one group-id (3.2.4) go to one consumer, in their order, while it holds the
group. Pure: no I/O, no clock.

    free --given to a consumer that it is for--> held --the consumer left, a closing message,--> loose
      ^                                                a new consumer comes, if asked for          |
      +---------------- nothing of the group is with a consumer any more -------------------------+

A message goes to the first of those who hold its group that it is for; if it is for none of them, one
more holds it. So each filter has a holder of its own where links have different ones. While a group is
loose nothing more of it is given out: what follows is never handled beside what came before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from amqp_broker.filters.fields import MessageFields
from amqp_broker.hungry import Hungry
from amqp_broker.persistence import Record
from amqp_broker.records import octets
from amqp_broker.selection import Grants, Link, Messages

CLOSING_SEQUENCE: Final = 2**32 - 1
"""The group-sequence of a closing message: JMS writes it as -1."""
SHORT_GROUP_CHARACTERS: Final = 64
"""A longer group-id is known by its hash: a queue remembers many."""

Key = str | bytes


class Hold:
    """A group, and a consumer that has it. `out`: the offsets of what it was given and nobody has decided."""

    __slots__ = ("consumer", "key", "loose", "out")

    def __init__(self, key: Key, consumer: Any) -> None:
        self.key = key
        self.consumer = consumer
        self.out: set[int] = set()
        self.loose = False


ABSENT: Final = object()
"""Who holds messages since a restart, and has not come back: its groups are loose, whoever they are for."""


class Look:
    """What is known of an available message since it was looked at."""

    __slots__ = ("closes", "fields", "key", "passes")

    def __init__(self, record: Record) -> None:
        self.fields = MessageFields(record)
        properties = self.fields.properties
        group: Any = properties.group_id
        if group is not None and len(group) > SHORT_GROUP_CHARACTERS:
            group = blake2b(group.encode(), digest_size=32).digest()
        self.key: Key | None = group
        self.closes = properties.group_sequence == CLOSING_SEQUENCE
        self.passes: dict[Any, bool] = {}  # by the key of a filter

    def is_for(self, wanted: Any) -> bool:
        """Whether the message passes a filter, which is asked once."""
        passes = self.passes.get(wanted.key)
        if passes is None:
            passes = self.passes[wanted.key] = wanted.matches(self.fields)
        return passes


class MessageGroups:
    """The groups of one queue, at most `most` at a time: beyond that one ends that nothing is out of."""

    def __init__(self, queue: Messages, most: int, *, rebalances: bool = False) -> None:
        self._queue = queue
        self._most = most
        self._rebalances = rebalances
        self._holds: OrderedDict[Key, list[Hold]] = OrderedDict()  # the one that was used last is last
        self._held: dict[Any, int] = {}  # how many, by consumer
        self._count = 0
        self._full = False  # a message found no room for its group
        self.freed = False
        """Whether something may be given out now that could not before: the queue has to be pumped."""
        self._out: dict[int, Hold] = {}
        self._looks: dict[int, Look] = {}  # at available messages
        self._looked_to = 0  # what is before it is for none of those who wanted something then
        self._level: Hungry | None = None  # those who wanted something then

    @property
    def count(self) -> int:
        """How many groups are held, for each holder."""
        return self._count

    def holds_of(self, consumer: Any) -> int:
        """How many groups a consumer holds."""
        return self._held.get(consumer, 0)

    def _all(self) -> Iterator[Hold]:
        for holds in self._holds.values():
            yield from holds

    # What happens beside the groups

    def joined(self) -> None:
        """A link begins to receive: where groups are to be shared out anew, all become loose."""
        self._looked_to = 0
        if self._rebalances:
            self._loosen(self._all())

    def gone(self, consumer: Any) -> None:
        """A link receives no more."""
        self._loosen(hold for hold in self._all() if hold.consumer is consumer)

    def returned(self, record: Record) -> None:
        """A message is available again."""
        self._looked_to = 0
        self.over((record,))

    def over(self, records: Iterable[Record]) -> None:
        """These are with no consumer any more."""
        for record in records:
            hold = self._out.pop(record.offset, None)
            if hold is not None:
                hold.out.discard(record.offset)
                if hold.loose and not hold.out:
                    self._forget(hold)
                elif self._full and not hold.out:
                    self.freed = True

    def _loosen(self, holds: Iterable[Hold]) -> None:
        for hold in list(holds):
            hold.loose = True
            if not hold.out:
                self._forget(hold)

    def _forget(self, hold: Hold) -> None:
        holds = self._holds[hold.key]
        holds.remove(hold)
        self._held[hold.consumer] -= 1
        if not self._held[hold.consumer]:
            del self._held[hold.consumer]
        self._count -= 1
        self.freed = True
        if not holds:
            del self._holds[hold.key]

    def withhold(self, records: Iterable[Record]) -> None:
        """After a restart somebody still holds these: nothing of their groups is given out before they are
        decided.
        """
        for record in records:
            key = Look(record).key
            if key is None:
                continue
            hold = next((each for each in self._holds.get(key, ()) if each.consumer is ABSENT), None)
            if hold is None:
                hold = self._add(key, ABSENT)
                hold.loose = True
            hold.out.add(record.offset)
            self._out[record.offset] = hold

    def _add(self, key: Key, consumer: Any) -> Hold:
        hold = Hold(key, consumer)
        self._holds.setdefault(key, []).append(hold)
        self._held[consumer] = self._held.get(consumer, 0) + 1
        self._count += 1
        return hold

    # Distribution

    def assign(self, level: Hungry, now_ms: int) -> Grants:
        """Give to links of one priority that want something what they are for, in its order, as far as it is
        in memory.
        """
        queue = self._queue
        given: dict[Any, list[Record]] = {}
        taken: list[Record] = []
        if self.freed or level.asked or level is not self._level:
            self._looked_to = 0
            self.freed = self._full = level.asked = False
            self._level = level
        backlog = queue.backlog
        for record in backlog.next_loaded(self._looked_to, backlog.loaded()) if level.wants() else ():
            self._looked_to = record.offset + 1
            if 0 < record.expires_at_ms <= now_ms:
                queue.expired.append(record)
                taken.append(record)
                continue
            consumer = self._taker(record, level, now_ms)
            if consumer is None:
                continue
            level.serve(consumer, 1)
            given.setdefault(consumer, []).append(record)
            taken.append(record)
            if consumer.demand <= 0 and not level.wants():
                break
        for record in taken:
            self._looks.pop(record.offset, None)
        if taken:
            queue.take_out(taken)
        return list(given.items())

    def _taker(self, record: Record, level: Hungry, now_ms: int) -> Any | None:
        key = self._look(record).key
        if key is None:
            return self._next(record, level, now_ms)
        hold = self._hold(key, record, level, now_ms)
        if hold is None or hold.loose or hold.consumer.demand <= 0 or hold.consumer.standing is not level:
            return None
        hold.out.add(record.offset)
        self._out[record.offset] = hold
        hold.loose = self._look(record).closes
        self._holds.move_to_end(key)
        return hold.consumer

    def _next(self, record: Record, level: Hungry, now_ms: int) -> Any | None:
        """Of those that want something and that a message is for, who is next."""
        taken: list[Any] = []
        try:
            while (link := level.take()) is not None:
                taken.append(link)
                if self._is_for(link, record, now_ms):
                    return link
            return None
        finally:
            level.put_back(taken)

    def _hold(self, key: Key, record: Record, level: Hungry, now_ms: int) -> Hold | None:
        """The hold that a message is for; a new one where there is none, and somebody who wants it."""
        for hold in self._holds.get(key, ()):
            if hold.consumer is ABSENT or self._is_for(hold.consumer, record, now_ms):
                return hold
        able = [each for each in level.links() if self._is_for(each, record, now_ms)]
        if not able or not self._make_room():
            return None
        return self._add(key, min(able, key=self.holds_of) if len(able) > 1 else able[0])

    def _make_room(self) -> bool:
        """Whether there may be one more; the one that was not used for longest ends, if nothing is out."""
        if self._count < self._most:
            return True
        idle = next((hold for hold in self._all() if not hold.out), None)
        if idle is not None:
            self._forget(idle)
        else:
            self._full = True
        return idle is not None

    def _is_for(self, consumer: Link, record: Record, now_ms: int) -> bool:
        if self._queue.is_excluded(record, consumer):
            return False
        if consumer.largest and octets(record, consumer.largest, now_ms) > consumer.largest:
            return False
        return consumer.filter is None or self._look(record).is_for(consumer.filter)

    def _look(self, record: Record) -> Look:
        """What is known of a message."""
        found = self._looks.get(record.offset)
        if found is None:
            if len(self._looks) >= 2 * self._queue.backlog.window_messages:
                self._looks.clear()  # also at messages that left by other ways
            found = self._looks[record.offset] = Look(record)
        return found
