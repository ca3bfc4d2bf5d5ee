"""What all connections share: the nodes, the writer, the clock, and the distribution of messages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import trio

from amqp_broker import counts, message_events
from amqp_broker.addresses import TEMPORARY_PREFIX, AddressError, parse_address
from amqp_broker.at_hand import TurnsAtHand
from amqp_broker.authorisation import CREATE, Principal, authoriser_of
from amqp_broker.clock import BrokerClock
from amqp_broker.configuration import DEAD_LETTERS, BrokerConfig
from amqp_broker.connection import Sink
from amqp_broker.connection import Source as LinkSource
from amqp_broker.credit import CreditShares
from amqp_broker.endings import EXPIRED, Letter, as_it_is
from amqp_broker.expiries import Expiries
from amqp_broker.expiry import ExpirySweep, Swept
from amqp_broker.frames import Error
from amqp_broker.large_messages import SpoolRoom, Unread
from amqp_broker.link_names import LinkNames
from amqp_broker.links import MemoryBudget, OutgoingDelivery, Refusals
from amqp_broker.live_transactions import LiveTransactions
from amqp_broker.log_setup import logger
from amqp_broker.names import Names
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.commit_counts import AGES, Buckets
from amqp_broker.operations.posting import Leaving, Step, retire_verbs
from amqp_broker.operations.removal import Removal
from amqp_broker.operations.settings import SettingsStep
from amqp_broker.operations.writer import Writer
from amqp_broker.page_turns import PageTurns
from amqp_broker.persistence import Record, Store, StoreError, Unit
from amqp_broker.persistence.questions import FoundDamaged, PageOf, ReadResult
from amqp_broker.queue import Consumer, Queue, Shares, deleted_error, shown_to
from amqp_broker.queues import Queues, Site
from amqp_broker.records import replace_annotations
from amqp_broker.selection import LOOKED_AT_ONCE, Grants
from amqp_broker.timers import Timers

PAGE_WITHOUT_ROOM_BYTES: Final = 65_536  # of the next page, or one message, where memory is short
WITHHELD_AT_ONCE: Final = 128  # messages that are read for who holds them: some milliseconds
LETTERS_WAIT_S: Final = 10  # of one attach or request, behind which its connection hears nothing
TEMPORARY_NAME_BYTES: Final = (
    12  # random: a name that the broker makes is hard to guess (behaviour paper 2.1)
)


class BrokerNodes:
    """The nodes of one broker, and what moves messages between them and the store."""

    def __init__(
        self,
        config: BrokerConfig,
        writer: Writer,
        timers: Timers,
        clock: BrokerClock,
        memory: MemoryBudget,
    ) -> None:
        self.config = config
        self.config_at_start = config
        self.memory = memory
        memory.freed = self._page_again
        self.writer = writer
        self.timers = timers
        self.at_hand = TurnsAtHand()
        self.authoriser = authoriser_of(config)
        self.clock = clock
        self.queues = Queues(config, self.store_step, memory)
        self.names = Names(config)
        self.link_names = LinkNames()
        self.sole_containers: dict[tuple[str, str], object] = {}
        """Which connection has a user's container-id for itself."""
        self.live_transactions = LiveTransactions()
        self.refusals = Refusals()
        """By limit, of all connections."""
        self.spool_room = SpoolRoom()
        self._unread = Unread(self)
        self.ages = Buckets(AGES)
        """How old messages were when they were sent, in seconds: those of one offer as its first."""
        self.store_id = ""
        """The uuid of the store, after its recovery."""
        self.turns = PageTurns(writer, timers, config.limits.retained_read_share_percent / 100)
        self.expiry = ExpirySweep(self)
        self._looking: set[Queue] = set()  # links with filters go on there in a turn to come
        self._seeking: set[Queue] = set()  # a page is read for them
        self._paging: set[Queue] = set()
        self._without_page: dict[Queue, None] = {}  # they wait for memory
        self._behind_letters: dict[Queue, list[Callable[[], None]]] = {}  # what waits for those that leave
        self._log = logger("nodes")

    # Termini

    def site(self, principal: Principal, address: str, action: str) -> Site:
        """Where the queue stands that a terminus or a message names, or would be made for `principal`, who
        may do `action` there. Raises NodeRefused.
        """
        try:
            parsed = parse_address(address, self.config.limits.address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        authorise = self.authoriser.authorise
        if not authorise(principal, action, parsed):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not {action} at {parsed.name!r}"
            )
        return self.queues.site(parsed, lambda: authorise(principal, CREATE, parsed))

    @property
    def dead_letters(self) -> Queue:
        """The queue for messages that have no queue of their own any more; `dead_letter_site` was made
        before.
        """
        queue = self.queues.find(DEAD_LETTERS)
        assert queue is not None, "a half message for a queue that may go, and no queue of dead letters"
        return queue

    @property
    def dead_letter_site(self) -> Site:
        """The site of the queue of dead letters, which has to be made before something is accepted that may
        need it.
        """
        return self.queues.site_by_name(DEAD_LETTERS)

    def dynamic_site(self, principal: Principal, container_id: str, link_name: str) -> Site:
        """Where a fresh queue for a dynamic terminus would stand, named after its link (3.5.3, 3.5.4). Raises
        NodeRefused.
        """
        room = self.config.limits.address_bytes - len(TEMPORARY_PREFIX) - 2 * TEMPORARY_NAME_BYTES
        peer = ".".join(_plain(part, room // 2) for part in (container_id, link_name))
        name = f"{TEMPORARY_PREFIX}{peer}.{secrets.token_urlsafe(TEMPORARY_NAME_BYTES)}"
        if not self.authoriser.authorise(principal, CREATE, parse_address(name)):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not create dynamic nodes"
            )
        return self.queues.site_of_dynamic(name)

    # Movement

    def store(self, verbs: Unit) -> None:
        """Have verbs stored that nobody waits for."""
        self.writer.submit(Step(verbs))

    def pump(self, queue: Queue) -> None:
        """Hand what `queue` assigns to the tasks that own the links, and have the disk read where it is
        needed.
        """
        if queue.consumers:
            for consumer, records in queue.assign(self.clock.now_ms()):
                consumer.deliver(records)
        if queue.expired:
            self.expire(queue, queue.take_expired())
        if queue.backlog.oversized.count or queue.logged_oversized:
            self._log_oversized(queue)
        if queue.backlog.disk_from >= 0:
            self._page(queue)
        if queue.selection is not None and queue.selection.unfinished and queue not in self._looking:
            self._looking.add(queue)
            self.writer.read(partial(self._look_on, queue))
        expiries = queue.expiries
        if expiries is not None:
            self.expiry.arm(queue, expiries)

    def _look_on(self, queue: Queue, _store: Store) -> None:
        """There is more for links with filters to look at; others have had their turn."""
        self._looking.discard(queue)
        if self.queues.holds(queue):
            self.pump(queue)
            self._answer_drains(queue)

    def _log_oversized(self, queue: Queue) -> None:
        """Log once that messages are too large for all links, and again after an end of that."""
        count = queue.oversized_for_all()
        if count and not queue.logged_oversized:
            queue.logged_oversized = True
            largest = max(consumer.largest for consumer in queue.consumers if not consumer.browser)
            self._log.warning("messages.too_large", queue=queue.name, count=count, max_message_size=largest)
        elif not count and queue.consumers:
            queue.logged_oversized = False

    def _page(self, queue: Queue) -> None:
        if queue.backlog.page_wanted() and queue not in self._paging and queue.consumers:
            if self._has_memory_for_page(queue):
                self._paging.add(queue)
                self.writer.read(partial(self._read_page, queue))
            else:
                self._without_page[queue] = None
        if queue.selection is not None and queue not in self._seeking and queue.selection.page_wanted() >= 0:
            self._seeking.add(queue)
            self.writer.read(partial(self._read_sought, queue))
        for browser in queue.browsers.links():
            if queue.browse_page_wanted(browser) >= 0:
                browser.paging = True
                self.writer.read(partial(self._read_browsed, browser))

    def _has_memory_for_page(self, queue: Queue) -> bool:
        """Where copies fill their part of the memory, a queue is read on when all that it has in memory is
        with consumers; where hardly any is left, when they have settled that. So each goes on for ever.
        """
        memory = self.memory
        if queue.in_memory or not memory.cache_full() or not queue.cached_bytes:
            return True
        return not queue.backlog.loaded() and not memory.nearly_used()

    def _page_again(self) -> None:
        """There is more memory: queues that wait for a page may have it."""
        if self._without_page:
            waiting, self._without_page = self._without_page, {}
            for queue in waiting:
                self._page(queue)

    def load(self, queue: Queue) -> None:
        """Have the next messages that wait on disk read, also where nobody receives."""
        if queue not in self._paging and queue.backlog.disk_from >= 0:
            self._paging.add(queue)
            self.writer.read(partial(self._read_page, queue))

    def _read_page(self, queue: Queue, store: Store) -> None:
        self._paging.discard(queue)
        backlog = queue.backlog
        if backlog.disk_from < 0 or not self.queues.holds(queue):
            return
        self.page_in(queue, store)
        self.pump(queue)
        self._answer_drains(queue)

    def page_in(self, queue: Queue, store: Store) -> None:
        """The next messages that wait on disk are read, between two commits."""
        backlog = queue.backlog
        messages, size = backlog.page_room()
        if self.memory.cache_full() and not queue.in_memory:
            size = min(size, PAGE_WITHOUT_ROOM_BYTES)
        page = self.page_of(queue, store, backlog.disk_from, messages, size)
        records = self._still_there(queue, page.records)
        grown = self._adopt(queue, records)
        queue.paged(records, page.next_offset, grown, len(page.quarantined))
        self.lose(queue, page)

    def page_of(self, queue: Queue, store: Store, start: int, messages: int, size: int) -> ReadResult:
        """A page of messages for consumers: of large ones the head."""
        page = store.ask(PageOf(queue.queue_id, start, messages, size, whole=False))
        if page.large:
            queue.large = True
        return page

    def damaged(self, queue: Queue, record: Record, why: str) -> None:
        """The body of a message that a consumer held was found damaged: nobody gets it any more."""
        self.writer.read(partial(self._put_away, queue, record, why))

    def unread(self, queue: Queue, record: Record, why: str) -> None:
        """The body of a message that a consumer held could not be read: it is offered again, in a while."""
        self._unread.enter(queue, record, why)

    def _put_away(self, queue: Queue, record: Record, why: str, store: Store) -> None:
        if not self.queues.holds(queue):
            return
        if queue.persistent:  # else the store does not know it
            store.ask(FoundDamaged(queue.queue_id, record.offset, why))
        self._log.error("message.quarantined", queue=queue.name, offset=record.offset, reason=why)
        queue.retire([record], counts.REMOVED)
        self.drained(queue)
        if queue.events:
            self._journal_dead(queue, [record.offset], f"damaged: {why}")

    def _still_there(self, queue: Queue, records: list[Record]) -> list[Record]:
        """Without what is expired, and what consumers have taken ahead of the window."""
        if queue.expiries is not None:
            gone = queue.expiries.gone
            records = [record for record in records if record.offset not in gone]
        ahead = queue.backlog.ahead
        return [record for record in records if record.offset not in ahead] if ahead else records

    def _read_sought(self, queue: Queue, store: Store) -> None:
        """A page that links with filters look at; what they are not for stays on disk only."""
        self._seeking.discard(queue)
        selection, backlog = queue.selection, queue.backlog
        start = selection.page_wanted() if selection is not None and self.queues.holds(queue) else -1
        if selection is not None and start >= 0:
            page = self.page_of(queue, store, start, LOOKED_AT_ONCE, backlog.window_bytes)
            records = self._still_there(queue, page.records)
            self._adopt(queue, records)
            backlog.lose(len(page.quarantined))
            self.lose(queue, page)
            before = page.next_offset if page.next_offset > start else None
            all_of_it = len(records) + backlog.available()
            shown, end = backlog.shown(records, start, before, all_of_it)
            grants: Grants = []
            selection.page(shown, start, end, grants, self.clock.now_ms())
            for consumer, run in grants:
                consumer.deliver(run)
        self.pump(queue)
        self._answer_drains(queue)

    def page_at(self, queue: Queue, store: Store, start: int, count: int) -> tuple[list[Record], int]:
        """At most `count` of the available messages from offset `start` on, in memory or, between two
        commits, from the disk, and the offset from which the next ones are. They stay where they are: what is
        wanted of them is taken out (`Queue.take_out`) before anybody else has a turn.
        """
        backlog = queue.backlog
        found = backlog.next_in_order(start, count)
        if len(found) == count:
            return found, found[-1].offset + 1
        if backlog.disk_from < 0:
            return found, max(start, backlog.available_to)
        if found:
            return found, max(start, backlog.disk_from)
        start = max(start, backlog.disk_from)
        if start >= backlog.available_to:
            return [], start
        page = self.page_of(queue, store, start, count, backlog.window_bytes)
        records = self._still_there(queue, page.records)
        self._adopt(queue, records)
        backlog.lose(len(page.quarantined))
        self.lose(queue, page)
        return backlog.shown(records, start, page.next_offset if page.next_offset > start else None, count)

    def withhold(self, queue: Queue, store: Store, offsets: Sequence[int]) -> None:
        """After a restart somebody still holds these, in ascending order: they are on disk only, and nobody
        else gets them before `take_withheld`.
        """
        queue.backlog.withhold(offsets)
        if queue.looks_at_withheld():
            for at in range(0, len(offsets), WITHHELD_AT_ONCE):
                queue.withheld(self._read_at(queue, store, offsets[at : at + WITHHELD_AT_ONCE]))

    def take_withheld(self, queue: Queue, store: Store, offsets: Sequence[int]) -> list[Record]:
        """Read, between two commits, messages that are withheld, in ascending order; those that are there.
        Whoever asks holds them from now on.
        """
        found = self._read_at(queue, store, offsets)
        queue.byte_count += self._adopt(queue, found)
        queue.take_up(found)
        return found

    def _read_at(self, queue: Queue, store: Store, offsets: Sequence[int]) -> list[Record]:
        found: list[Record] = []
        left = list(offsets) if self.queues.holds(queue) else []
        while left:
            first, wanted = left[0], set(left)
            page = self.page_of(queue, store, first, len(left), queue.backlog.window_bytes)
            self.lose(queue, page)
            found += [record for record in page.records if record.offset in wanted]
            end = page.next_offset if page.next_offset > first else left[-1] + 1
            left = [offset for offset in left if offset >= end]
        return found

    def _read_browsed(self, browser: Consumer, store: Store) -> None:
        browser.paging = False
        queue = browser.queue
        backlog = queue.backlog
        if browser not in queue.consumers:
            return
        start = queue.browse_page_wanted(browser)
        if start >= 0 and not backlog.peek(browser.cursor, 1):  # else the window has it by now
            page = self.page_of(queue, store, start, browser.demand, backlog.window_bytes)
            self._adopt(queue, page.records)
            backlog.lose(len(page.quarantined))
            self.lose(queue, page)
            before = page.next_offset if page.next_offset > start else None
            others = queue.in_sight(start, queue.next_offset if before is None else before)
            shown, browser.cursor = backlog.shown(page.records, start, before, browser.demand, others)
            shown = shown_to(browser, shown, self.clock.now_ms())
            if shown:
                browser.demand -= len(shown)
                browser.deliver(shown)
        self.pump(queue)
        self._answer_drains(queue)

    def lose(self, queue: Queue, page: ReadResult) -> None:
        """The store found messages of `queue` damaged: they are gone."""
        quarantined = page.quarantined
        for lost in quarantined:
            self._log.error("message.quarantined", queue=queue.name, offset=lost.offset, reason=lost.reason)
        if quarantined:
            queue.message_count -= len(quarantined)
            queue.byte_count -= page.lost_bytes
            self.drained(queue)
            if queue.events:
                for lost in quarantined:
                    self._journal_dead(queue, [lost.offset], f"damaged: {lost.reason}")

    def _journal_dead(self, queue: Queue, offsets: list[int], reason: str) -> None:
        verbs = message_events.dead(queue, offsets, reason, self.clock.now_ms())
        self.writer.defer(Step(verbs, only_events=True))

    def _answer_drains(self, queue: Queue) -> None:
        """A page may have brought nothing for a consumer that drains: its task looks again."""
        for consumer in queue.consumers:
            if consumer.draining:
                consumer.deliver([])

    def _adopt(self, queue: Queue, records: list[Record]) -> int:
        """Make records that were read what they are in memory; returns by how many bytes they grew."""
        growth = 0
        for record in records:
            if record.expires_at_ms and queue.expiries is not None:
                queue.expiries.note(record.offset, record.expires_at_ms)
            record.acquired_before = record.acquired_before or record.offset < queue.recovered_to
            if record.annotations is not None:
                growth -= len(record.body)
                replace_annotations(record)
                growth += len(record.body)
        return growth

    def expire(self, queue: Queue, expired: list[Record], on_disk: Expiries | None = None) -> None:
        """The time to live of these ran out; the store may still give those that are `on_disk`."""
        queue.retire(expired, counts.EXPIRED, cached=on_disk is None)
        verbs = retire_verbs(queue.queue_id, expired)
        if queue.events:
            verbs.extend(message_events.expired(queue, expired, self.clock.now_ms()))
        letter = queue.endings.letter(EXPIRED, "", [as_it_is(record) for record in expired])
        if on_disk is not None:
            self.leave(queue, Swept(on_disk, expired, verbs, letter), letter)
        elif verbs or letter is not None:
            self.leave(queue, Leaving(verbs, letter), letter)
        self._log.info("messages.expired", queue=queue.name, count=len(expired))
        self.drained(queue)

    def leave(self, queue: Queue, leaving: Leaving, letter: Letter | None) -> None:
        """Have it stored that messages leave their queue, as soon as there is a place for what is kept. Until
        that is stored the queue does not go: with it the store would forget them before.
        """
        if letter is None:
            self.writer.submit(leaving)
            return
        self.letter_leaves(queue)
        leaving.then = partial(self.letter_over, queue)
        letter.when_ready(partial(self.writer.submit, leaving))

    def letter_leaves(self, queue: Queue) -> None:
        """Messages of `queue` are on their way elsewhere; `letter_over` has to follow."""
        queue.leaving += 1

    def letter_over(self, queue: Queue, kept_back: int = 0) -> None:
        """They are there, or never will be, and the store has those that were `kept_back`: what waits for the
        last of them goes on.
        """
        queue.leaving -= 1
        queue.kept_back += kept_back
        if not queue.leaving:
            for then in self._behind_letters.pop(queue, ()):
                self.behind_letters(queue, then)
            self.drained(queue)

    def behind_letters(self, queue: Queue, then: Callable[[], None]) -> None:
        """Call `then`, which may end `queue`, when no message that has left it is on its way elsewhere."""
        if queue.leaving:
            self._behind_letters.setdefault(queue, []).append(then)
        else:
            then()

    async def letters_stored(self, queue: Queue) -> None:
        """Wait until no message that has left `queue` is on its way elsewhere. Raises NodeRefused where they
        wait for room longer than `LETTERS_WAIT_S`: what would make some may stand behind who asks. While they
        find room there may be more all the time, and what is stored next is stored behind them.
        """
        before = queue.counts[counts.DEAD_LETTERS]
        with trio.move_on_after(LETTERS_WAIT_S):
            while queue.leaving:
                await self._next_letters(queue)
            return
        if queue.counts[counts.DEAD_LETTERS] > before:
            return
        raise NodeRefused(
            "amqp:resource-limit-exceeded",
            f"messages that have left {queue.name!r:.200} were not stored as dead letters within "
            f"{LETTERS_WAIT_S} s: see that the disk has room, a purge gives some, and try again",
        )

    async def _next_letters(self, queue: Queue) -> None:
        told = trio.Event()
        self.behind_letters(queue, told.set)
        try:
            await told.wait()
        finally:
            waiting = self._behind_letters.get(queue, [])
            if told.set in waiting:  # who gives up is not told, and leaves nothing behind
                waiting.remove(told.set)

    def rejected(self, queue: Queue, deliveries: list[OutgoingDelivery], state: Any) -> None:
        """A consumer said that these are invalid: they leave the queue, and the log says why."""
        condition = None if state.error is None else state.error.condition
        self._log.warning("delivery.rejected", queue=queue.name, count=len(deliveries), condition=condition)

    def drained(self, queue: Queue) -> None:
        """Senders that waited for room are given credit again, each in its own task's turn."""
        if queue in self._without_page:
            del self._without_page[queue]
            self._page(queue)
        if queue.scarce:
            self.shares_of(queue).share()
        if queue.groups is not None and queue.groups.freed and not queue.deleted:
            self.pump(queue)
        if queue.lifetime is not None and not queue.deleted and not queue.leaving:
            if queue.lifetime.over(queue.message_count + queue.pending_posts + queue.reserved_messages):
                verbs = self.drop(queue)
                if verbs:
                    self.writer.submit(Removal(verbs, _nothing))

    def shares_of(self, queue: Queue) -> Shares:
        """What shares out the credit of `queue` while it is scarce."""
        if queue.shares is None:
            queue.shares = CreditShares(queue, self.timers, lambda: self.config.limits.idle_credit_ms / 1000)
        return queue.shares

    # The end of a queue

    def left(self, queue: Queue, link: Sink | LinkSource) -> None:
        """A link to a dynamic node is gone, and perhaps the node with it (3.5.10 to 3.5.13)."""
        assert queue.lifetime is not None, f"{queue.name!r} is no dynamic node"
        queue.lifetime.left(link)
        self.drained(queue)

    def drop(self, queue: Queue, reason: str = "its temporary queue is gone") -> Unit:
        """Nothing keeps a queue any more, or it is deleted by hand: it is gone, and all its links end.
        `reason` is for the journal. Returns what has to be stored for that.
        """
        verbs = self.queues.remove(queue)
        if queue.kept_back:
            self._log.error("queue.kept_back_lost", queue=queue.name, count=queue.kept_back)
        self._without_page.pop(queue, None)
        if queue.events:
            waiting = queue.backlog.peek(0, queue.backlog.available())
            self._journal_dead(queue, [record.offset for record in waiting], reason)
        queue.forget()
        error = deleted_error(queue)
        for consumer in list(queue.consumers):
            consumer.end(error)
        for sink in queue.producers:
            sink.end(error)
        return verbs

    async def store_step(self, verbs: Unit, stored: Callable[[], None] | None = None) -> None:
        """Have `verbs` stored and wait for the commit. Raises StoreError.

        `stored` is called once they are, also when the one who waits is gone by then.
        """
        await self._step(partial(Step, verbs), stored)

    async def keep_settings(self, queue: Queue) -> None:
        """Have the settings of `queue` stored as they are, and wait for the commit. Raises StoreError."""
        await self._step(partial(SettingsStep, queue))

    async def _step(
        self, make: Callable[[Callable[[Exception | None], None]], Step],
        stored: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        done = trio.Event()
        failures: list[StoreError] = []

        def then(error: Exception | None) -> None:
            if error is not None:
                assert isinstance(error, StoreError)
                failures.append(error)
            elif stored is not None:
                stored()
            done.set()

        self.writer.submit(make(then))
        await done.wait()
        if failures:
            raise failures[0]


def _nothing(_: Error | None) -> None:
    """Nobody waits for it."""


def _plain(text: str, most: int) -> str:
    """A peer's text as part of an address: ASCII letters, digits and `-`, everything else as `_`, cut."""
    return re.sub(r"[^A-Za-z0-9-]", "_", text[:most])
