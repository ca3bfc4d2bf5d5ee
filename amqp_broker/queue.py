"""A queue: first in, first out, competing consumers, each message to one of them. Pure: no I/O, no clock, no
engine.

    make_available --> backlog --assign--> consumer (ACQUIRED) --retire--> gone (ARCHIVED)
                          ^                   |
                          +-----give_back-----+

`assign` says who gets what; carrying it there is the caller's work.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.backlog import Backlog
from amqp_broker.compilation import mypyc_attr
from amqp_broker.connection import Connection, Sink, Source
from amqp_broker.counts import ACCEPTED, ARRIVED, COUNTS
from amqp_broker.endings import GONE, Endings
from amqp_broker.expiries import Expiries
from amqp_broker.filters.fields import MessageFields
from amqp_broker.frames import Error
from amqp_broker.hungry import Hungry
from amqp_broker.links import Account, Holdings, MemoryBudget
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    LargeRecord,
    Post,
    PostLarge,
    Record,
    Unit,
    octets_of,
    size_of,
    tails_bytes,
)
from amqp_broker.places import Places
from amqp_broker.records import octets
from amqp_broker.selection import Selection
from amqp_broker.waiting import NO_DELAYS, Delays

if TYPE_CHECKING:
    from amqp_broker.filters.source_filter import SourceFilter
    from amqp_broker.lifetime import Lifetime
    from amqp_broker.links import OutgoingDelivery, SenderLink
    from amqp_broker.message_groups import MessageGroups

MISSED_PERIODS: Final = 2  # in the first one unused credit is asked back
ARCHIVED: Final = "archived"  # the outcome of a message of a log: it never waits for a consumer
RESUME_PART: Final = 0.8  # of a full queue's capacity: below it senders are given credit again


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(Source):
    """One link that receives from a queue; `demand` is how many messages it could be sent now."""

    __slots__ = (
        "browser",
        "cursor",
        "default_outcome",
        "demand",
        "draining",
        "filter",
        "largest",
        "outcomes",
        "paging",
        "pending",
        "place",
        "priority",
        "queue",
        "served",
        "settled",
        "standing",
        "stuck",
        "suspect",
    )

    def __init__(
        self, connection: Connection, link: SenderLink, queue: Queue, *, browser: bool, settled: bool,
        default_outcome: object = None, outcomes: frozenset[str] = frozenset(), largest: int = 0,
        filter: SourceFilter | None = None,
    ) -> None:  # fmt: skip
        super().__init__(connection, link)
        self.filter = filter  # which messages it is for; None is for all
        self.largest = largest  # octets of a message, as the peer takes them (2.7.3); 0 is of any size
        self.default_outcome = default_outcome
        self.outcomes = outcomes
        self.queue = queue
        self.browser = browser
        self.settled = settled
        self.demand = 0
        self.served = 0
        self.place = 0
        self.standing: Hungry | None = None  # while it receives: those that it takes turns with
        self.priority = 0  # before others with a lower one
        self.draining = False  # waits for the answer to a drain that a page from the disk delays
        self.cursor = 0
        self.paging = False
        self.pending: deque[Record] = deque()
        self.stuck = False  # it kept a message too long, and its link ends for that
        self.suspect: OutgoingDelivery | None = None
        """What the client may have died of, or is stuck at: the oldest that nobody said anything of."""

    @property
    def container_id(self) -> str:
        """The container-id of the peer."""
        return self.connection.container_id

    def ask(self, count: int) -> None:
        """It could be sent `count` messages now: the queue finds it where that is more than none."""
        wanted = self.demand > 0
        self.demand = count
        if count > 0 and not wanted and self.standing is not None:
            self.standing.enter(self)

    def deliver(self, records: list[Record]) -> None:
        """A queue assigned `records`, to be sent in the next turn of the connection; none: look again."""
        raise AssertionError("a queue assigns, and its source sends")

    def send_mixed(self, records: list[Record], state: Any = None) -> tuple[int, list[OutgoingDelivery]]:
        """Send `records`, among which may be large ones; as `send_in` of the link, where there is a `state`.
        """
        raise AssertionError("a queue assigns, and its source sends")

    def on_settled(self, settlement: Any) -> None:
        """Outcomes that the receiver gave were stored. From any task."""

    def outcome_verbs(self, items: Sequence[Any]) -> Unit:
        """What the commit of an outcome of these, messages or what they were delivered as, has to store
        beside what becomes of the messages.
        """
        return []

    def apply(self, deliveries: list[OutgoingDelivery], outcome: Any, settled: bool) -> None:
        """Do what an outcome says with deliveries that no transaction holds."""
        raise AssertionError("its source has the messages")

    def give_back(self, items: list[Any], outcome: Any) -> None:
        """Messages, or what they were delivered as, return to their places as an outcome says, which the
        store knows already.
        """
        raise AssertionError("its source has the messages")

    def left(self, deliveries: list[OutgoingDelivery]) -> None:
        """These were unsettled at the end of the link, and nobody said anything of them."""
        raise AssertionError("its source has the messages")


@mypyc_attr(allow_interpreted_subclasses=True)
class Shares:
    """Shares out the credit of one queue while it is scarce (`credit.CreditShares`)."""

    __slots__ = ()

    def share(self) -> None:
        """Give what room there is to those who wait."""

    def watch(self) -> None:
        """Look again in a while: credit that is out may lie unused."""


class QueueLimits:
    """Capacity of one queue: messages and bytes in all, and bytes that only memory holds."""

    __slots__ = ("max_bytes", "max_messages", "max_volatile_bytes")

    def __init__(self, max_messages: int, max_bytes: int, max_volatile_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.max_volatile_bytes = max_volatile_bytes


class Queue:
    """One queue and the distribution of its messages; the base of `Log`."""

    __slots__ = (
        "_excluded",
        "_in_sight",
        "_kept",
        "_volatile_bytes",
        "backlog",
        "blocked",
        "browsers",
        "by_writer",
        "byte_count",
        "cached_bytes",
        "consumers",
        "counts",
        "delays",
        "deleted",
        "endings",
        "events",
        "expired",
        "expiries",
        "groups",
        "in_memory",
        "kept_back",
        "large",
        "left_messages",
        "leaving",
        "levels",
        "lifetime",
        "limits",
        "logged_oversized",
        "memory",
        "message_count",
        "missed",
        "name",
        "next_offset",
        "owner",
        "pending_posts",
        "persistent",
        "producers",
        "queue_id",
        "recovered_to",
        "reserved_bytes",
        "reserved_messages",
        "retains",
        "scarce",
        "selection",
        "sequences",
        "settings",
        "shares",
        "stores_all",
        "waits",
        "wished",
        "_octets_full",
    )

    def __init__(
        self, name: str, queue_id: int, limits: QueueLimits, *, persistent: bool = True,
        memory: MemoryBudget | None = None,
    ) -> None:  # fmt: skip
        self.memory = memory or MemoryBudget()
        self.in_memory = False  # as the store is: no message of it is on disk
        self._kept = Holdings()
        self.cached_bytes = 0
        """The octets of messages that are on disk, too, here and with consumers."""
        self.name = name
        self.queue_id = queue_id
        self.limits = limits
        self.persistent = persistent
        self.retains = False  # settled messages are kept
        self.stores_all = False  # also those that are not durable: no offset comes twice
        self.large = False  # messages of which only the head is in memory may be here, or with consumers
        self.logged_oversized = False  # logged: messages are too large for all links
        self.events = False  # whether the journal tells what becomes of each message
        self.sequences = Places()
        self.settings: dict[str, object] = {}  # of its node, as the store has them
        self.endings: Endings = GONE
        self.delays: Delays = NO_DELAYS
        self.waits = False  # a message came that waits for its time
        self.backlog = Backlog()
        self.consumers: dict[Consumer, None] = {}
        self.levels: list[Hungry] = []  # of those that take, the highest priority first
        self.browsers = Hungry()
        self.counts = [0] * len(COUNTS)
        self.next_offset = 0
        self.recovered_to = 0
        self.pending_posts = 0
        self.kept_back = 0  # messages that have left it in memory, and could not be stored elsewhere
        self.leaving = 0  # operations that take messages of it elsewhere, and are not stored yet
        self.by_writer = False  # each posting is for the writer, durable or not
        self.message_count = 0
        self.byte_count = 0
        self._volatile_bytes = 0
        self.reserved_messages = 0
        self.reserved_bytes = 0
        self._in_sight: dict[int, Record] = {}
        self.producers: dict[Sink, int] = {}  # each with the credit that it may have
        self.wished = 0  # all of that
        self.scarce = False  # not all of them can have as much: what is out is counted
        self.missed = 0  # somebody who has no credit found no room: for so many periods one is kept for him
        self.shares: Shares | None = None  # of a queue with senders
        self._octets_full = False
        self.deleted = False
        self.blocked: list[Sink] = []  # who waits for room
        self.left_messages = 0  # posted on links that are gone, and not decided
        self.expired: list[Record] = []
        self.expiries: Expiries | None = None  # since a message had a ttl
        self._excluded: dict[int, set[Consumer]] = {}
        self.selection: Selection | None = None  # since somebody had a filter
        self.lifetime: Lifetime | None = None  # of a dynamic node, or one that goes by itself
        self.owner: object = None  # the connection that alone may receive; None: any
        self.groups: MessageGroups | None = None  # of a queue that keeps those of a group together

    def recover(self, first_offset: int, next_offset: int, messages: int, size: int) -> None:
        """Take up what the store has: everything below `next_offset` may have been acquired before
        (3.2.1).
        """
        self.next_offset = self.recovered_to = next_offset
        self.message_count = messages
        self.byte_count = size
        self.backlog.recovered(first_offset, next_offset, messages)
        if self.in_memory:
            self._kept.add(self.memory.own, size + messages * RECORD_OVERHEAD_BYTES)

    def number(self, records: Sequence[Record], container: str = "") -> None:
        """Give newly posted messages of a container their offsets; the order of calls is the order of the
        queue. What raises here has changed nothing.
        """
        if self.waits:
            records, later = _now_and_later(records)
            if later:
                self.delays.number(later)
        offset = self.next_offset
        for record in records:
            record.offset = offset
            offset += 1
        self.next_offset = offset

    def number_again(self, records: Sequence[Record]) -> None:
        """Give messages that the broker itself brings, which may have been here before, their offsets."""
        self.number(records)

    def unnumber(self, first_offset: int) -> None:
        """Take back the offsets from `first_offset` on: their messages are not posted."""
        self.next_offset = first_offset

    def post_verbs(self, records: Sequence[Record], durable_count: int) -> Unit:
        """What the store has to take of numbered messages, of which `durable_count` are durable."""
        if not durable_count:
            return []
        if self.waits:
            records, later = _now_and_later(records)
            if later:
                durable_count = sum([record.durable for record in records])
                return [*self.post_verbs(records, durable_count), *self.delays.post_verbs(self, later)]
        if self.large:
            return _post_each(self.queue_id, records)
        if durable_count == len(records):
            return [Post(self.queue_id, records)]
        return [Post(self.queue_id, run) for run in _durable_runs(records)]

    def outcome_at_once(self) -> str:
        """What a message that becomes available has come to by that; empty where it waits."""
        return ""

    def may_stream(self) -> bool:
        """Whether large messages may come piece by piece: the queue has no rules about what comes, tells
        nothing of it, and keeps nothing that is gone.
        """
        plain = type(self) is Queue and not self.events
        return plain and self.persistent and not (self.in_memory or self.retains)

    def octets_of(self, records: Sequence[Record]) -> int:
        """All octets of some messages behind their headers, as its bounds count them, in memory or not."""
        if self.large:
            return octets_of(records)
        return len(records[0].body) if len(records) == 1 else sum([len(record.body) for record in records])

    def make_available(self, records: Sequence[Record], size: int, account: Account | None = None) -> None:
        """Make numbered messages of `size` octets in all available, once their commit has returned. What
        only memory has of them is kept for `account`; without one, for the broker itself. Those that come
        later wait from now on.
        """
        if self.waits:
            records, later = _now_and_later(records)
            if later:
                size -= self.octets_of(later)
                self.delays.enter(self, later, account)
        self.message_count += len(records)
        self.counts[ARRIVED] += len(records)
        self.byte_count += size
        if self.large:
            size -= tails_bytes(records)
        volatile = 0
        for record in records:
            if not record.durable:
                volatile += len(record.body) + RECORD_OVERHEAD_BYTES
            if record.expires_at_ms:
                self._note_expiry(record)
        self._volatile_bytes += volatile
        octets = size + len(records) * RECORD_OVERHEAD_BYTES
        if self.in_memory:
            volatile = octets
        copies = volatile == octets or not self.cached_bytes or not self.memory.cache_full()
        spilled = self.backlog.add(records, copies)
        if volatile:
            self._kept.add(account or self.memory.own, volatile)
        if volatile < octets:
            self._cached(octets - volatile - spilled)
        if self.selection:
            self.selection.added(records)
        self.count_credit()

    def expect_delays(self) -> None:
        """A message is about to come that waits for its time."""
        self.waits = self.delays.make_ready()

    def take_out(self, records: Sequence[Record]) -> None:
        """Links get these messages, wherever they stand; what was on disk only is in memory now, too."""
        on_disk = self.backlog.take_out(records)
        if on_disk and not self.in_memory:
            self._cached(sum([len(record.body) + RECORD_OVERHEAD_BYTES for record in on_disk]))

    def looks_at_withheld(self) -> bool:
        """Whether the messages that the backlog withholds have to be read for `withheld`."""
        return self.groups is not None

    def withheld(self, records: Sequence[Record]) -> None:
        """After a restart somebody still holds these."""
        if self.groups is not None:
            self.groups.withhold(records)

    def take_up(self, records: Iterable[Record]) -> None:
        """What the backlog withheld is in memory now, too; they can be given back from now on."""
        self._cached(sum([len(record.body) + RECORD_OVERHEAD_BYTES for record in records]))

    def paged(self, records: Sequence[Record], next_offset: int, grown: int, lost: int = 0) -> None:
        """A page was read, as `Backlog.paged` says. Its messages are larger by `grown` octets by now."""
        self.byte_count += grown
        self.backlog.paged(records, next_offset, lost)
        if self.in_memory:
            self._kept.add(self.memory.own, grown)
        else:
            size = sum([len(record.body) for record in records])
            self._cached(size + len(records) * RECORD_OVERHEAD_BYTES)

    def _cached(self, octets: int) -> None:
        """Count octets of messages on disk that are in memory, too, or (negative) are no longer."""
        self.cached_bytes += octets
        self.memory.cache.change(octets)

    def forget(self) -> None:
        """The queue is gone, with all its messages."""
        self.deleted = True
        self.delays.forget(self)
        self.forget_messages()

    def forget_messages(self) -> None:
        """Drop all messages from memory."""
        self.backlog.clear()
        self._kept.clear()
        self._cached(-self.cached_bytes)

    def _note_expiry(self, record: Record) -> None:
        if self.expiries is None:
            self.expiries = Expiries()
        self.expiries.note(record.offset, record.expires_at_ms)

    def may_expire(self, first_offset: int, end: int) -> Expiries:
        """Some stored messages from `first_offset` up to `end` may have a ttl: they have to be read."""
        if self.expiries is None:
            self.expiries = Expiries()
        if first_offset < end:
            self.expiries.unread.append((first_offset, end))
        return self.expiries

    def make_stored_available(
        self, first_offset: int, count: int, size: int, *, may_expire: bool = False
    ) -> None:
        """Messages that are on disk only, numbered without holes, become available; with `may_expire` some
        may have a ttl.
        """
        self.message_count += count
        self.counts[ARRIVED] += count
        self.byte_count += size
        self.backlog.add_stored(first_offset, count)
        if self.selection:
            self.selection.added_on_disk()
        if self.in_memory:
            self._kept.add(self.memory.own, size + count * RECORD_OVERHEAD_BYTES)
        if may_expire:
            self.may_expire(first_offset, first_offset + count)
        self.count_credit()

    # Room, and the credit that stands for it

    def produce(self, sink: Sink, credit: int) -> None:
        """A link begins to post here, and may have so much credit."""
        self.producers[sink] = credit
        self.wished += credit
        self.count_credit()

    def produce_no_more(self, sink: Sink) -> None:
        """A link posts here no longer, and its credit is gone with it, but for what it has posted already."""
        if sink in self.producers:
            self.wished -= self.producers.pop(sink)
            if sink.coming:
                sink.left = self
                self.left_messages += sink.coming
        if sink in self.blocked:
            self.blocked.remove(sink)

    def count_credit(self) -> None:
        """Count each credit: from now on not every link can have what it may."""
        limits = self.limits
        if not self.scarce and (
            self.message_count + self.reserved_messages + self.left_messages + self.wished
            >= limits.max_messages
            or self.byte_count + self.reserved_bytes >= limits.max_bytes
            or self._volatile_bytes >= limits.max_volatile_bytes
        ):
            self.scarce = True
            for sink in self.producers:
                sink.link.renews_no_more()
            if self.shares is not None:
                self.shares.watch()

    def plenty(self) -> bool:
        """Whether every link can have as much credit as it may, and there is some room beyond."""
        used = self._taken()
        most = self.limits.max_messages
        return used + self.wished < most and used <= most * RESUME_PART and not self.octets_full()

    def octets_full(self) -> bool:
        """Whether a bound of octets was reached, until there is some room again."""
        limits = self.limits
        part = RESUME_PART if self._octets_full else 1.0
        size = self.byte_count + self.reserved_bytes
        self._octets_full = (
            size >= limits.max_bytes * part or self._volatile_bytes >= limits.max_volatile_bytes * part
        )
        return self._octets_full

    def volatile_full(self) -> bool:
        """Whether what only memory has of it has reached its bound."""
        return self._volatile_bytes >= self.limits.max_volatile_bytes

    def room(self) -> int:
        """How many messages can come beside those for which there is credit; only while it is counted."""
        if self.octets_full():
            return 0
        out = sum([sink.out() for sink in self.producers])
        return max(0, self.limits.max_messages - self._taken() - out)

    def _taken(self) -> int:
        """How many messages are there, or come without any credit."""
        return self.message_count + self.reserved_messages + self.left_messages

    def full(self) -> bool:
        """Whether there is no room for a message without credit."""
        return self.scarce and self.room() == 0

    def find_room(self) -> bool:
        """Whether there is room for one message. If not, credit that lies unused is asked back, and a later
        one has a chance.
        """
        if not self.full():
            return True
        self.missed = MISSED_PERIODS
        if self.shares is not None:
            self.shares.watch()
        return False

    def reserve(self, records: Sequence[Record]) -> int:
        """Keep room for messages that a transaction posts, in their order; returns how many of them have
        it.
        """
        limits = self.limits
        messages = max(0, limits.max_messages - self._taken())
        room = limits.max_bytes - self.byte_count - self.reserved_bytes
        if self._volatile_bytes >= limits.max_volatile_bytes:
            return 0
        count = 0
        size = 0
        for record in records[:messages]:
            if size >= room:  # as `full`: the message that crosses the bound is still taken
                break
            size += size_of(record)
            count += 1
        self.reserved_messages += count
        self.reserved_bytes += size
        self.count_credit()
        return count

    def reserve_one(self, size: int, *, anyway: bool = False) -> bool:
        """Keep room for one message of `size` bytes; False if there is none (and `anyway` is not asked
        for).
        """
        if not anyway and not self.find_room():
            return False
        self.reserved_messages += 1
        self.reserved_bytes += size
        self.count_credit()
        return True

    def keep_room(self, records: Sequence[Record]) -> None:
        """Keep room for messages that wait for their time; it is given back by `free_room`."""
        self.reserved_messages += len(records)
        self.reserved_bytes += octets_of(records)
        self._volatile_bytes += _volatile_octets(records)
        self.count_credit()

    def free_room(self, records: Sequence[Record]) -> None:
        """They wait no longer."""
        self.unreserve(len(records), octets_of(records))
        self._volatile_bytes -= _volatile_octets(records)

    def unreserve(self, messages: int, size: int) -> None:
        """Give back what `reserve` kept: the messages are there now, or never will be."""
        self.reserved_messages -= messages
        self.reserved_bytes -= size

    def assign(self, now_ms: int) -> list[tuple[Consumer, list[Record]]]:
        """Distribute what is loaded over the consumers with demand. Those with the highest priority are
        first, as if nobody below wanted anything; where there is more to look at for one, those below wait.
        """
        grants: list[tuple[Consumer, list[Record]]] = []
        for level in self.levels:
            if self.selection:
                self.selection.assign(grants, now_ms, level.priority)
            if self.groups is not None:
                grants.extend(self.groups.assign(level, now_ms))
            else:
                self._share_out(level, grants, now_ms)
            if self.unfinished():
                break
        if self.browsers.wants():
            self._show(grants, now_ms)
        return grants

    def nobody_waits(self) -> bool:
        """Whether a message that came plainly makes no difference to anybody: the queue has no links that
        receive, and no message of it ever expires or was too large.
        """
        oversized = self.logged_oversized or self.backlog.oversized.count
        return not (self.consumers or self.expired or oversized or self.expiries is not None)

    def unfinished(self) -> bool:
        """Whether links with filters have more to look at, in a turn to come."""
        return self.selection is not None and self.selection.unfinished

    def _share_out(
        self, level: Hungry, grants: list[tuple[Consumer, list[Record]]], now_ms: int
    ) -> None:  # fmt: skip
        """Rounds of even shares, until nothing is left or nobody left wants what is: in a round nobody is
        served twice, and what can't be divided goes to those who were served least.
        """
        backlog = self.backlog
        oversized = backlog.oversized
        level.at(now_ms)
        progress = True
        while progress and ((loaded := backlog.loaded()) or oversized.count) and level.wants():
            progress = False
            share, extra = divmod(loaded, len(level))
            least = level.least
            taken: list[Consumer] = []
            try:
                while (backlog.loaded() or oversized.count) and (consumer := level.take()) is not None:
                    taken.append(consumer)
                    count = share + 1 if extra > 0 else share or 1
                    extra -= 1
                    if count < least:
                        count = max(count, min(least, consumer.demand // 2))
                    run = self._take_for(consumer, min(count, consumer.demand), now_ms)
                    if run:
                        progress = True
                        level.serve(consumer, len(run))
                        grants.append((consumer, run))
            finally:
                level.put_back(taken)

    def _take_for(self, consumer: Consumer, count: int, now_ms: int) -> list[Record]:
        if consumer.largest or self.backlog.oversized.count:
            return self._take_sized(consumer, count, now_ms)
        run = self.backlog.take(count)
        for record in run:
            if record.expires_at_ms or self._excluded:
                return self._take_fit(run, consumer, count, now_ms)
        return run

    def _take_sized(self, consumer: Consumer, count: int, now_ms: int) -> list[Record]:
        if consumer.largest and self.backlog.oversized.full():
            return []
        run = self.backlog.take_for(consumer.largest, count)
        return self._take_fit(run, consumer, count, now_ms)

    def _take_fit(self, run: list[Record], consumer: Consumer, count: int, now_ms: int) -> list[Record]:
        fit: list[Record] = []
        unfit: list[Record] = []
        largest = consumer.largest
        backlog = self.backlog
        while run:
            for record in run:
                if 0 < record.expires_at_ms <= now_ms:
                    self.expired.append(record)
                elif consumer in self._excluded.get(record.offset, ()):
                    unfit.append(record)
                elif largest and octets(record, largest, now_ms) > largest:
                    if backlog.oversized.full():
                        unfit.append(record)
                    else:
                        backlog.oversized.add(largest, record)
                else:
                    fit.append(record)
            if len(fit) >= count or (largest and backlog.oversized.full()):
                break
            run = backlog.take_for(largest, count - len(fit))
        for record in unfit:
            backlog.put_back(record)
        return fit

    def oversized_for_all(self) -> int:
        """How many messages are too large for every link that receives here now."""
        oversized = self.backlog.oversized
        if not oversized.count or not self.consumers:
            return 0
        largest = 0
        for consumer in self.consumers:
            if not consumer.browser:
                if not consumer.largest:
                    return 0
                largest = max(largest, consumer.largest)
        return oversized.beyond(largest) if largest else 0

    def available_for(self, consumer: Consumer) -> int:
        """How many messages `consumer` could be sent, as far as it is known: of those with a filter, none."""
        backlog = self.backlog
        if consumer.filter is not None:
            return 0
        if not backlog.oversized.count:
            return backlog.available()
        return backlog.available() - backlog.oversized.beyond(consumer.largest)

    def _show(self, grants: list[tuple[Consumer, list[Record]]], now_ms: int) -> None:
        """Give browsers what they have not seen."""
        for browser in self.browsers.links():
            while browser.demand > 0 and (run := self._shown_to(browser, browser.demand)):
                browser.cursor = run[-1].offset + 1
                run = shown_to(browser, run, now_ms)
                browser.demand -= len(run)
                if run:
                    grants.append((browser, run))

    def _shown_to(self, browser: Consumer, count: int) -> list[Record]:
        """The next messages in memory for a browser, at most `count`, with those that are kept in sight."""
        backlog = self.backlog
        run = backlog.peek(browser.cursor, count)
        if self._in_sight:
            end = backlog.disk_from if backlog.disk_from >= 0 else self.next_offset
            if seen := self.in_sight(browser.cursor, end):
                run = sorted([*run, *seen], key=_offset)[:count]
        return run

    def in_sight(self, start: int, end: int) -> list[Record]:
        """The messages between two offsets that browsers see although nobody can have them now."""
        return [record for offset, record in self._in_sight.items() if start <= offset < end]

    def keep_in_sight(self, records: Iterable[Record]) -> None:
        """Browsers go on seeing these: a live transaction acquires what a consumer was sent, or what failed
        waits until it is given back.
        """
        for record in records:
            self._in_sight[record.offset] = record

    def end_in_sight(self, records: Iterable[Record]) -> None:
        """The transaction that acquired these, or did not, is over, or they have waited."""
        if self._in_sight:
            for record in records:
                self._in_sight.pop(record.offset, None)

    def browse_page_wanted(self, browser: Consumer) -> int:
        """The offset from which a browser wants to be read from disk, or -1."""
        return self._disk_from_for(browser) if browser.demand > 0 and not browser.paging else -1

    def _disk_from_for(self, browser: Consumer) -> int:
        """Where the disk begins to have something that a browser has not seen, or -1."""
        backlog = self.backlog
        start = max(browser.cursor, backlog.disk_from)
        return start if backlog.disk_from >= 0 and start < backlog.available_to else -1

    def give_back(self, records: Iterable[Record]) -> None:
        """Messages that a consumer held are available again, each in its old place."""
        for record in records:
            record.acquired_before = True
            self._put_back(record)
            if record.expires_at_ms:
                self._note_expiry(record)

    def take_back(self, records: Iterable[Record]) -> None:
        """Messages that were assigned and never sent are available again: nobody has acquired them."""
        for record in records:
            self._put_back(record)
            if record.expires_at_ms:
                self._note_expiry(record)

    def _put_back(self, record: Record) -> None:
        self.backlog.put_back(record)
        if self.groups is not None:
            self.groups.returned(record)
        if self.selection:
            self.selection.returned(record)

    def offers(self, offset: int) -> bool:
        """Whether the message of this offset is available, in memory or on disk."""
        backlog = self.backlog
        if any(record.offset == offset for record in backlog.peek(offset, 1)):
            return True
        return 0 <= backlog.disk_from <= offset < backlog.available_to and offset not in backlog.ahead

    def is_excluded(self, record: Record, consumer: Consumer) -> bool:
        """Whether `consumer` said undeliverable-here of `record`."""
        return consumer in self._excluded.get(record.offset, ())

    def exclude(self, record: Record, consumer: Consumer) -> None:
        """`consumer` said undeliverable-here: it never gets `record` again (3.4.5)."""
        self._excluded.setdefault(record.offset, set()).add(consumer)

    def grew(self, record: Record, size: int) -> None:
        """The body of a message has `size` bytes more than it had."""
        self.byte_count += size
        if not record.durable:
            self._volatile_bytes += size
        self.count_credit()
        if self.deleted:
            return
        if record.durable and not self.in_memory:
            self._cached(size)
        elif size >= 0:
            self._kept.add(self.memory.own, size)
        else:
            self._kept.remove(-size)

    def refused_somewhere(self, record: Record) -> bool:
        """Whether a link that receives here said undeliverable-here of `record`."""
        return record.offset in self._excluded

    def refused_everywhere(self, record: Record) -> bool:
        """Whether every link that could have `record` said undeliverable-here of it, and there is one."""
        takers = [each for each in self.consumers if not each.browser and _is_for(each, record)]
        excluded = self._excluded.get(record.offset, ())
        return bool(takers) and all(each in excluded for each in takers)

    def retire(self, records: Sequence[Record], why: int = ACCEPTED, *, cached: bool = True) -> None:
        """Messages left the queue for good, counted as `why`. Those that are not `cached` were on disk
        only.
        """
        self.message_count -= len(records)
        self.counts[why] += len(records)
        if self.groups is not None:
            self.groups.over(records)
        octets = volatile = 0
        for record in records:
            size = len(record.body) + RECORD_OVERHEAD_BYTES
            octets += size
            if not record.durable:
                volatile += size
        self.byte_count -= octets - len(records) * RECORD_OVERHEAD_BYTES
        if self.large:
            self.byte_count -= tails_bytes(records)
        self._volatile_bytes -= volatile
        if not self.deleted:
            if self.in_memory:
                volatile = octets
            if volatile:
                self._kept.remove(volatile)
            if volatile < octets and cached:
                self._cached(volatile - octets)
        if self._excluded:
            for record in records:
                self._excluded.pop(record.offset, None)

    def take_expired(self) -> list[Record]:
        """The messages whose time to live ran out since the last call; they are no longer available."""
        expired = self.expired
        if expired:
            self.expired = []
        return expired

    def attach(self, consumer: Consumer) -> None:
        """A link begins to receive from this queue; what it wants it asks for from now on."""
        self.consumers[consumer] = None
        if consumer.browser:
            self.browsers.join(consumer)
            return
        level = self._level(consumer.priority)
        if self.groups is not None:
            self.groups.joined()
        elif consumer.filter is not None:
            level.members += 1
            if self.selection is None:
                self.selection = Selection(self)
            self.selection.attach(consumer)
            return
        level.join(consumer)

    def _level(self, priority: int) -> Hungry:
        """Those with this priority; made where there are none."""
        for level in self.levels:
            if level.priority == priority:
                return level
        made = Hungry(priority)
        insort(self.levels, made, key=_falling)
        return made

    def detach(self, consumer: Consumer) -> None:
        """A link receives no more; what it held is given back apart. Harmless when called again."""
        if consumer in self.consumers:
            del self.consumers[consumer]
            self._leave(consumer)
        for offset, excluded in list(self._excluded.items()):
            excluded.discard(consumer)
            if not excluded:
                del self._excluded[offset]

    def _leave(self, consumer: Consumer) -> None:
        if consumer.browser:
            self.browsers.leave(consumer)
            return
        level = self._level(consumer.priority)
        if self.groups is None and consumer.filter is not None:
            assert self.selection is not None
            self.selection.detach(consumer)
            level.members -= 1
        else:
            level.leave(consumer)
            if self.groups is not None:
                self.groups.gone(consumer)
        if not level.members:
            self.levels.remove(level)

    def asked(self) -> int:
        """For how many messages links wait, whatever these are."""
        hungry = [each for level in self.levels for each in level.links()]
        return sum([each.demand for each in hungry if each.filter is None])

    def empty_for(self, consumer: Consumer) -> bool:
        """Whether there is nothing that `consumer` could be sent now or after a page was read."""
        backlog = self.backlog
        if consumer.browser:
            return not self._shown_to(consumer, 1) and self._disk_from_for(consumer) < 0
        if self.groups is not None:
            return not backlog.page_wanted()  # it was offered all that is in memory
        if consumer.filter is not None:
            assert self.selection is not None
            return self.selection.looked_at_all(consumer)
        if backlog.page_wanted():
            return False
        if backlog.oversized.count:
            if backlog.oversized.beyond(consumer.largest) < backlog.oversized.count:
                return False
            if consumer.largest and backlog.oversized.full():
                return True  # it waits until others have taken some of them
        if not backlog.loaded():
            return True
        return bool(self._excluded) and all(
            consumer in self._excluded.get(record.offset, ())
            for record in backlog.next_loaded(0, backlog.loaded())
        )


def fresh(records: Sequence[Record], now_ms: int) -> list[Record]:
    """Those of `records` whose time to live has not run out."""
    return [record for record in records if not 0 < record.expires_at_ms <= now_ms]


def _now_and_later(records: Sequence[Record]) -> tuple[Sequence[Record], list[Record]]:
    """Those that come at once, and those that wait for their time."""
    later = [record for record in records if record.due_at_ms]
    return ([record for record in records if not record.due_at_ms] if later else records), later


def _volatile_octets(records: Iterable[Record]) -> int:
    return sum([len(each.body) + RECORD_OVERHEAD_BYTES for each in records if not each.durable])


def _durable_runs(records: Sequence[Record]) -> list[list[Record]]:
    runs: list[list[Record]] = []
    follows = False
    for record in records:
        if record.durable:
            if follows:
                runs[-1].append(record)
            else:
                runs.append([record])
        follows = record.durable
    return runs


def _post_each(queue_id: int, records: Sequence[Record]) -> Unit:
    """Where large ones may be among them: those are posted one by one."""
    unit: Unit = []
    for run in _durable_runs(records):
        begin = 0
        for at, record in enumerate(run):
            if isinstance(record, LargeRecord):
                if begin < at:
                    unit.append(Post(queue_id, run[begin:at]))
                unit.append(PostLarge(queue_id, record))
                begin = at + 1
        if begin < len(run):
            unit.append(Post(queue_id, run[begin:]))
    return unit


def shown_to(browser: Consumer, records: Sequence[Record], now_ms: int) -> list[Record]:
    """Those of `records` that are fresh, not too large for `browser`, and what it is for."""
    largest = browser.largest
    shown = fresh(records, now_ms)
    if browser.filter is not None:
        passes = browser.filter.matches
        shown = [each for each in shown if passes(MessageFields(each))]
    return [each for each in shown if octets(each, largest, now_ms) <= largest] if largest else shown


def _is_for(consumer: Consumer, record: Record) -> bool:
    return consumer.filter is None or consumer.filter.matches(MessageFields(record))


def _falling(level: Hungry) -> int:
    return -level.priority


def _offset(record: Record) -> int:
    return record.offset


def deleted_error(queue: Queue) -> Error:
    """Why a link of a queue that is gone ends, and why nothing comes into it."""
    return Error(condition="amqp:resource-deleted", description=f"queue {queue.name!r} was deleted")


def why_full(queue: Queue) -> str:
    """Why a message has no room in a queue, with the setting of its `[[queue]]` that bounds it."""
    limits = queue.limits
    if queue.byte_count + queue.reserved_bytes >= limits.max_bytes:
        bound = f"max_bytes, {limits.max_bytes}"
    elif queue.volatile_full():
        bound = f"max_volatile_bytes, {limits.max_volatile_bytes}"
    else:
        bound = f"max_messages, {limits.max_messages}"
    return f"queue {queue.name!r} is full ({bound}, of its [[queue]])"


def full_error(queue: Queue) -> Error:
    """The error for the sender of a message that has no room."""
    return Error(condition="amqp:resource-limit-exceeded", description=why_full(queue))
