"""Who gets what of a queue by filters: against a queue that is a plain list, whatever happens in which
order.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import attrs
import pytest

from amqp_broker.filters.fields import MessageFields
from amqp_broker.filters.source_filter import SourceFilter, source_filter
from amqp_broker.frames import Described, Symbol, encode_section
from amqp_broker.persistence import Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from amqp_broker.selection import Grants
from tests.support.by_hand import connection_by_hand, idle_link
from tests.support.examples import seeds

HUGE = 10**9
COLOURS = ("red", "green", "blue")
TEXTS = (
    *(f"colour = '{colour}'" for colour in COLOURS), "colour <> 'red'", "number > 3", "number = 2",
    "colour = 'red' AND number < 5", "TRUE", "FALSE", "nothing IS NOT NULL",
)  # fmt: skip


@functools.cache
def parsed(text: str) -> SourceFilter:
    """This selector: thousands of links ask for the same few."""
    name = Symbol("apache.org:selector-filter:string")
    found, _ = source_filter({Symbol("s"): Described(name, text)})
    assert found is not None
    return found


def filter_of(text: str) -> SourceFilter:
    """What a link with this selector asks for: a filter of its own."""
    return attrs.evolve(parsed(text))


def record_of(colour: str, number: int, durable: bool = True) -> Record:
    """A message with these application-properties."""
    fields = {"colour": colour, "number": number}
    return Record(0, encode_section("application-properties", fields), durable=durable)


class World:
    """A queue with its disk, and what it should do."""

    def __init__(self, window: int) -> None:
        self.queue = Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))
        self.queue.backlog.window_messages = window
        self.disk: dict[int, Record] = {}
        self.waiting: dict[int, Record] = {}
        self.held: dict[Consumer, list[Record]] = {}
        self.excluded: set[tuple[Consumer, int]] = set()
        self.judged: dict[tuple[Consumer, int], bool] = {}
        self.connection = connection_by_hand()

    def post(self, records: list[Record]) -> None:
        """Messages come."""
        self.queue.number(records)
        for record in records:
            self.waiting[record.offset] = record
            if record.durable:
                self.disk[record.offset] = record
        self.queue.make_available(records, sum(len(record.body) for record in records))

    def post_stored(self, records: list[Record]) -> None:
        """Messages come that are on disk only."""
        self.queue.number(records)
        self.disk |= {record.offset: record for record in records}
        self.waiting |= {record.offset: record for record in records}
        size = sum(len(record.body) for record in records)
        self.queue.make_stored_available(records[0].offset, len(records), size)

    def attach(self, text: str | None, browser: bool = False) -> Consumer:
        """A link begins to receive."""
        made = Consumer(
            self.connection, idle_link(self.connection), self.queue, browser=browser, settled=False,
            filter=filter_of(text) if text else None,
        )  # fmt: skip
        self.queue.attach(made)
        self.held[made] = []
        return made

    def pump(self) -> None:
        """Assign, and read pages, until nothing moves."""
        queue, backlog = self.queue, self.queue.backlog
        for _ in range(10_000):
            grants = queue.assign(0)
            self._take(grants)
            moved = bool(grants) or (queue.selection is not None and queue.selection.unfinished)
            if backlog.disk_from >= 0 and backlog.page_wanted() and queue.consumers:
                messages, _ = backlog.page_room()
                start = backlog.disk_from
                page = [each for at, each in sorted(self.disk.items()) if at >= start]
                page = [each for each in page if each.offset not in backlog.ahead][:messages]
                after = page[-1].offset + 1 if len(page) == messages else start
                queue.paged(page, after, 0)
                moved = True
            if queue.selection is not None and (start := queue.selection.page_wanted()) >= 0:
                page = [each for at, each in sorted(self.disk.items()) if at >= start][:5]
                before = page[-1].offset + 1 if len(page) == 5 else None
                page = [each for each in page if each.offset not in backlog.ahead]
                shown, end = backlog.shown(page, start, before, HUGE)
                grants = []
                queue.selection.page(shown, start, end, grants, 0)
                self._take(grants)
                moved = True
            if not moved:
                return
        raise AssertionError("it never rests")

    def _take(self, grants: Grants) -> None:
        for consumer, run in grants:
            for record in run:
                assert record.offset in self.waiting, f"{record} was not there"
                assert self.is_for(consumer, record)
                if not consumer.browser:
                    del self.waiting[record.offset]
                    self.held[consumer].append(record)

    def is_for(self, consumer: Consumer, record: Record) -> bool:
        """Whether a link may have a message."""
        if (consumer, record.offset) in self.excluded:
            return False
        if consumer.filter is None:
            return True
        key = consumer, record.offset
        if key not in self.judged:  # neither the filter of a link nor a message ever changes
            self.judged[key] = consumer.filter.matches(MessageFields(record))
        return self.judged[key]

    def check(self) -> None:
        """Nobody wants what is there, and the counts are right."""
        backlog = self.queue.backlog
        for consumer in self.queue.consumers:
            if consumer.demand > 0 and not consumer.browser:
                left = [record for record in self.waiting.values() if self.is_for(consumer, record)]
                assert not left, (consumer.filter, left)
                assert self.queue.empty_for(consumer), consumer.filter
        assert backlog.available() == len(self.waiting)

    def settle(self, consumer: Consumer, records: list[Record]) -> None:
        """Messages are consumed."""
        for record in records:
            self.held[consumer].remove(record)
            self.disk.pop(record.offset, None)
        self.queue.retire(records)

    def give_back(self, consumer: Consumer, records: list[Record], exclude: bool) -> None:
        """Messages come back."""
        for record in records:
            self.held[consumer].remove(record)
            self.waiting[record.offset] = record
            if exclude:
                self.excluded.add((consumer, record.offset))
                self.queue.exclude(record, consumer)
        self.queue.give_back(records)

    def detach(self, consumer: Consumer) -> None:
        """A link goes; what it held comes back."""
        self.queue.detach(consumer)
        self.excluded = {each for each in self.excluded if each[0] is not consumer}
        records = self.held[consumer]
        self.held[consumer] = []
        for record in records:
            self.waiting[record.offset] = record
        self.queue.give_back(records)
        del self.held[consumer]


@pytest.mark.parametrize("seed", seeds(400))
def test_any_order_of_things(seed: int) -> None:
    """Each message goes to one link that it is for, all that are for somebody go, and nothing is lost or
    twice.
    """
    dice = random.Random(seed)
    world = World(window=dice.choice([4, 16, 8_192]))
    crowded = world.queue.backlog.window_messages > 1_000  # what nobody may have does not fill the window
    links: list[Consumer] = []
    for _ in range(150):
        step = dice.random()
        held = [link for link in links if world.held[link]]
        if step < 0.35:
            durable = dice.random() < 0.8
            count = dice.randint(1, 12)
            some = [record_of(dice.choice(COLOURS), dice.randint(0, 6), durable) for _ in range(count)]
            if durable and dice.random() < 0.3:
                world.post([record_of(dice.choice(COLOURS), 1)])
                world.post_stored(some)
                world.post([record_of(dice.choice(COLOURS), 2)])
            else:
                world.post(some)
        elif step < 0.45 and len(links) < 12:
            text = dice.choice(TEXTS) if dice.random() < 0.85 else None
            links.append(world.attach(text, browser=False))
        elif step < 0.65 and links:
            dice.choice(links).ask(dice.randint(0, 8))
        elif step < 0.8 and held:
            link = dice.choice(held)
            some = dice.sample(world.held[link], dice.randint(1, len(world.held[link])))
            world.settle(link, some)
        elif step < 0.93 and held:
            link = dice.choice(held)
            some = dice.sample(world.held[link], dice.randint(1, len(world.held[link])))
            world.give_back(link, some, exclude=crowded and dice.random() < 0.3)
        elif links:
            link = links.pop(dice.randrange(len(links)))
            world.detach(link)
        world.pump()
        world.check()
    for link in list(links):
        world.detach(link)
    last = world.attach(None)
    last.ask(HUGE)
    world.pump()
    assert not world.waiting
    offsets = [record.offset for record in world.held[last]]
    assert offsets == sorted(offsets)


def test_a_thousand_links_do_not_judge_each_message() -> None:
    """Those that want one value are found by it: a message is judged by who wants its value, once."""
    queue = Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))
    connection = connection_by_hand()
    judged = []
    links = []
    for number in range(1_000):
        wanted = filter_of(f"number = {number}")

        def counted(fields: MessageFields, passes: Callable[[MessageFields], bool] = wanted.matches) -> bool:
            judged.append(1)
            return passes(fields)

        link = Consumer(
            connection, idle_link(connection), queue, browser=False, settled=False,
            filter=attrs.evolve(wanted, matches=counted),
        )  # fmt: skip
        queue.attach(link)
        link.ask(10)
        links.append(link)
    records = [record_of("red", number) for number in range(1_000)]
    queue.number(records)
    queue.make_available(records, 1_000)
    grants: Grants = []
    for _ in range(5):
        grants += queue.assign(0)
    assert len(grants) == len(judged) == 1_000
    assert all(links.index(link) == record.offset for link, (record,) in grants)
