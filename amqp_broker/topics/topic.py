"""A topic, a kind of queue: what is posted to it becomes available in the queues of its subscriptions. It
holds nothing itself.

    Posting --number--> who gets a copy, and has room for it --post_verbs--> a Post for each --COMMIT-->
            make_available: in each of these queues

So all that posts to a queue posts to a topic: links, the anonymous terminus, transactions. Who gets a copy is
judged when the group is made. Bodies are stored once (`Contents`), and are one object in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from amqp_broker.filters.fields import MessageFields
from amqp_broker.filters.source_filter import SourceFilter
from amqp_broker.links import Account, MemoryBudget
from amqp_broker.operations.operation import NotYet, Refused
from amqp_broker.persistence import Contents, Post, Record, Unit
from amqp_broker.queue import Queue, QueueLimits, full_error
from amqp_broker.queues import UNBOUNDED
from amqp_broker.records import store_all

NO_LIMITS: Final = QueueLimits(UNBOUNDED, UNBOUNDED, UNBOUNDED)


class Member:
    """A queue that gets what is posted to topics, if it passes the filter and comes from another container
    than `not_from`; "" is none. A queue may have several that are `bound`, and gets a message once; one
    whose `source` is a topic goes with that. Counts since the start: `copied` messages came to it, and
    `passed_over` ones were not for it.
    """

    __slots__ = ("bound", "copied", "filter", "not_from", "passed_over", "queue", "source")

    def __init__(
        self, queue: Queue, filter: SourceFilter | None, not_from: str = "", *, bound: bool = False,
        source: str = "",
    ) -> None:  # fmt: skip
        self.bound = bound
        self.source = source
        self.queue = queue
        self.filter = filter
        self.not_from = not_from
        self.copied = 0
        self.passed_over = 0


class Copies:
    """What one member gets of a posting: copies of the messages at `positions` of it (None: of all)."""

    __slots__ = ("first_offset", "member", "positions", "queue", "records", "size")

    def __init__(self, member: Member, records: list[Record], positions: list[int] | None) -> None:
        self.member = member
        self.queue = member.queue
        self.records = records
        self.positions = positions
        self.size = sum([len(record.body) for record in records])
        self.first_offset = -1

    def number(self) -> None:
        """Give the copies their offsets, and keep their room. Raises NotYet where there is none: what stands
        before them in their group may make room.
        """
        queue, records = self.queue, self.records
        room = queue.reserve(records)
        if room < len(records):
            queue.unreserve(room, sum([len(record.body) for record in records[:room]]))
            raise NotYet(Refused(full_error(queue)))
        self.first_offset = queue.next_offset
        try:
            queue.number(records)
        except BaseException:
            queue.unreserve(room, self.size)
            raise
        queue.pending_posts += 1

    def end(self) -> None:
        """The copies are there, or never come."""
        self.queue.pending_posts -= 1
        self.queue.unreserve(len(self.records), self.size)

    def undo(self) -> None:
        """Take back the offsets."""
        self.end()
        self.queue.unnumber(self.first_offset)


class Shared:
    """What becomes of one posting: the copies of it, and for whom how many of its messages were not. Nobody
    got `unrouted` of them.
    """

    __slots__ = ("copies", "passed_over", "unrouted")

    def __init__(self) -> None:
        self.copies: list[Copies] = []
        self.passed_over: list[tuple[Member, int]] = []
        self.unrouted = 0


class Topic(Queue):
    """One topic. `members` tells who gets what is posted to an address, and `pump` distributes what a queue
    has. Counts since the start: `copied` are all copies, and of those of members that are gone, too;
    `passed_over` would have been more; nobody got the messages that are `unrouted`.
    """

    __slots__ = (
        "_members", "_posted", "_pump", "copied", "routing", "node_id", "passed_over", "temporary",
        "unrouted",
    )  # fmt: skip

    def __init__(
        self, name: str, memory: MemoryBudget, members: Callable[[str], list[Member]],
        pump: Callable[[Queue], None], *, temporary: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, 0, NO_LIMITS, memory=memory)
        self.routing = ""  # as which it was declared
        self.node_id = 0  # in the store; 0: the store does not know it
        self.temporary = temporary
        self._members = members
        self._pump = pump
        self.copied = 0
        self.passed_over = 0
        self.unrouted = 0
        self._posted: dict[int, Shared] = {}  # by the first offset of a posting that is not decided
        self.by_writer = True  # which knows what stands before a posting

    @property
    def declared(self) -> bool:
        """Whether it is a topic after a restart, too, whatever the configuration says."""
        return self.node_id != 0

    def expect_delays(self) -> None:
        """Each copy waits for its own queue."""
        for member in self._members(self.name):
            member.queue.expect_delays()

    def takes_one_by_one(self) -> bool:
        """Whether there may be room for some messages of a run, and none for the rest."""
        for member in self._members(self.name):
            limits = member.queue.limits
            if limits.max_messages < UNBOUNDED or limits.max_bytes < UNBOUNDED:
                return True
        return False

    def reserve(self, records: Sequence[Record]) -> int:
        """All may be part of a transaction; whether there is room is judged at its end."""
        return len(records)

    def unreserve(self, messages: int, size: int) -> None:
        """Nothing was kept."""

    def number(self, records: Sequence[Record], container: str = "") -> None:
        """Decide who gets the messages. Raises NotYet where one of these queues has no room for them."""
        if not records:
            return
        shared = self._share(records, container)
        done: list[Copies] = []
        try:
            for each in shared.copies:
                each.number()
                done.append(each)
        except BaseException:
            for each in reversed(done):
                each.undo()
            raise
        first_offset = self.next_offset
        super().number(records)
        self._posted[first_offset] = shared

    def unnumber(self, first_offset: int) -> None:
        """Take back the offsets of a posting, the last one that was numbered."""
        shared = self._posted.pop(first_offset, None)
        if shared is not None:
            for each in reversed(shared.copies):
                each.undo()
        super().unnumber(first_offset)

    def _share(self, records: Sequence[Record], container: str) -> Shared:
        """Each different filter is asked once about each message."""
        found = Shared()
        count = len(records)
        for_all = False
        bound: dict[Queue, list[tuple[Member, list[int] | None]]] = {}
        fields: list[MessageFields] = []
        passed: dict[Any, list[int]] = {}
        for member in self._members(self.name):
            wanted = member.filter
            if member.not_from and member.not_from == container:
                found.passed_over.append((member, count))
                continue
            positions = None if wanted is None else passed.get(wanted.key)
            if wanted is None:
                for_all = True
            elif positions is None:
                fields = fields or [MessageFields(record) for record in records]
                positions = [at for at, each in enumerate(fields) if wanted.matches(each)]
                passed[wanted.key] = positions
            if positions is not None and len(positions) < count:
                found.passed_over.append((member, count - len(positions)))
            if member.bound:
                bound.setdefault(member.queue, []).append((member, positions))
            elif positions is None or positions:
                found.copies.append(_copies(member, records, positions))
        for several in bound.values():
            member, positions = several[0] if len(several) == 1 else _once(several)
            if positions is None or positions:
                found.copies.append(_copies(member, records, positions))
        if not for_all:
            got: set[int] = set()
            for each in found.copies:
                got.update(each.positions or ())
            found.unrouted = count - len(got)
        return found

    def post_verbs(self, records: Sequence[Record], durable_count: int) -> Unit:
        """The verbs that post the copies; what is durable is stored once for all."""
        unit: Unit = []
        if not records:
            return unit
        shared: list[Copies] = []
        for each in self._posted[records[0].offset].copies:
            queue = each.queue
            waits = queue.waits and any(record.due_at_ms for record in each.records)
            if waits or queue.stores_all or queue.by_writer:
                durable = sum([record.durable for record in each.records])
                unit.extend(queue.post_verbs(each.records, durable))
            elif queue.persistent and durable_count:
                shared.append(each)
        if len(shared) == 1:
            each = shared[0]
            durable = sum([record.durable for record in each.records])
            unit.extend(each.queue.post_verbs(each.records, durable))
        elif shared:
            unit.extend(_shared_posts(records, shared, durable_count))
        return unit

    def make_available(self, records: Sequence[Record], size: int, account: Account | None = None) -> None:
        """The copies are available where they belong, once their commit has returned."""
        if not records:
            return
        shared = self._posted.pop(records[0].offset)
        self.unrouted += shared.unrouted
        for member, count in shared.passed_over:
            member.passed_over += count
            self.passed_over += count
        for each in shared.copies:
            each.end()
            queue = each.queue
            each.member.copied += len(each.records)
            self.copied += len(each.records)
            if not queue.deleted:
                queue.make_available(each.records, each.size, account)
                self._pump(queue)


def _copies(member: Member, records: Sequence[Record], positions: list[int] | None) -> Copies:
    """Of the messages at these positions, or (None) of all."""
    chosen = records if positions is None else [records[at] for at in positions]
    return Copies(member, [_copy(record, member.queue) for record in chosen], positions)


def _once(several: list[tuple[Member, list[int] | None]]) -> tuple[Member, list[int] | None]:
    """What one queue gets by several bindings: each message once, in order. The first one that has some
    counts them.
    """
    got: set[int] = set()
    for member, positions in several:
        if positions is None:
            return member, None
        got.update(positions)
    first = next((member for member, positions in several if positions), several[0][0])
    return first, sorted(got)


def _shared_posts(records: Sequence[Record], shared: list[Copies], durable_count: int) -> Unit:
    """A post for each queue, of the durable messages among those that it gets."""
    if durable_count == len(records):
        contents = Contents(records)
        return [Post(each.queue.queue_id, each.records, contents, each.positions) for each in shared]
    unit: Unit = []
    place: dict[int, int] = {}  # among the durable ones
    for at, record in enumerate(records):
        if record.durable:
            place[at] = len(place)
    contents = Contents([record for record in records if record.durable])
    for each in shared:
        positions = each.positions if each.positions is not None else range(len(records))
        durable = [record for record in each.records if record.durable]
        if durable:
            places = [place[at] for at in positions if at in place]
            unit.append(Post(each.queue.queue_id, durable, contents, places))
    return unit


def _copy(record: Record, queue: Queue) -> Record:
    """The message as one of `queue`, which changes for itself; the body is the same object."""
    durable = record.durable and queue.persistent
    header_bytes = record.header_bytes if durable == record.durable else b""
    copy = Record(
        0, record.body, record.message_format, record.priority, record.expires_at_ms, record.enqueued_at_ms,
        durable, record.delivery_count, False, None, header_bytes, queue.queue_id, record.due_at_ms,
    )  # fmt: skip
    if record.due_at_ms and not queue.waits:
        queue.expect_delays()
    if queue.stores_all:
        store_all([copy])
    return copy
